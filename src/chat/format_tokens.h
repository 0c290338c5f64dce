// The added tokens that structure a ChatML conversation, by their text: what the renderer writes and the parser of
// answers looks for.
#pragma once

#include <string_view>

namespace kipp::chat {

inline constexpr std::string_view kTurnBegin = "<|im_start|>";
inline constexpr std::string_view kTurnEnd = "<|im_end|>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kCallBegin = "<tool_call>";
inline constexpr std::string_view kCallEnd = "</tool_call>";
inline constexpr std::string_view kResponseBegin = "<tool_response>";
inline constexpr std::string_view kResponseEnd = "</tool_response>";

}  // namespace kipp::chat
