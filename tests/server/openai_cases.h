// What the tests of the requests share: refusals in one line, and values of every kind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/openai/api_error.h"
#include "server/openai/requests.h"

namespace kipp::openai::testing {

// "accepted", or "status code param | message".
template <typename Request>
std::string verdict(const ApiResult<Request>& request) {
  if (request) {
    return "accepted";
  }
  const ApiError& error = request.error();
  return std::to_string(error.status) + " " + error.code + " " + (error.param.empty() ? "-" : error.param) + " | " +
         error.message;
}

inline std::string completion_verdict(std::string_view body, const Defaults& defaults = {}) {
  return verdict(parse_completion_request(body, defaults));
}

inline std::string chat_verdict(std::string_view body, const Defaults& defaults = {}) {
  return verdict(parse_chat_completion_request(body, defaults));
}

// {"prompt": "Hi", <fields>}
inline std::string with_prompt(std::string_view fields) {
  return std::string(R"({"prompt":"Hi",)").append(fields).append("}");
}

// {"messages": [a user's "Hi"], <fields>}
inline std::string with_messages(std::string_view fields) {
  return std::string(R"({"messages":[{"role":"user","content":"Hi"}],)").append(fields).append("}");
}

inline CompletionRequest completion_of(std::string_view body, const Defaults& defaults = {}) {
  return parse_completion_request(body, defaults).value();
}

inline ChatCompletionRequest chat_of_body(std::string_view body, const Defaults& defaults = {}) {
  return parse_chat_completion_request(body, defaults).value();
}

}  // namespace kipp::openai::testing
