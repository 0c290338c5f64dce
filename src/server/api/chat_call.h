// An answer of /v1/chat/completions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/api/call.h"
#include "server/openai/requests.h"

namespace kipp::api {

std::shared_ptr<Call> make_chat_call(CallContext context, const openai::ChatCompletionRequest& request,
                                     const std::vector<int32_t>& prompt_ids);

}  // namespace kipp::api
