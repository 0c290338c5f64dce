// An answer of /v1/completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/api/call.h"
#include "server/openai/requests.h"

namespace kipp::api {

// What is known of a prompt: its ids, and the text that echo shows.
struct CompletionPrompt {
  std::vector<int32_t> ids;
  std::string text;
};

std::shared_ptr<Call> make_completion_call(CallContext context, const openai::CompletionRequest& request,
                                           std::vector<CompletionPrompt> prompts);

}  // namespace kipp::api
