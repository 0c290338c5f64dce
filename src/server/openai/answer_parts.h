// What whole answers and chunks are put together from; private to this folder.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/openai/answers.h"

namespace kipp::openai {

// {"id", "object", "created", "model", "system_fingerprint", "choices"}, to which more is set.
Json answer_head(const Identity& identity, std::string_view object, Json choices);
// The same for a chunk, with the usage where the options want one.
Json chunk_head(const StreamOptions& options, std::string_view object, Json choices, const Usage& usage);
std::string_view finish_name(Finish finish, bool has_calls);

inline constexpr std::string_view kCompletionObject = "text_completion";  // of chunks, too
inline constexpr std::string_view kChatObject = "chat.completion";
inline constexpr std::string_view kChatChunkObject = "chat.completion.chunk";

}  // namespace kipp::openai
