// What a client is told when its request cannot be served: an HTTP status and OpenAI's error object.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "kipp/error.h"

namespace kipp::openai {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string code = {};   // what kind, for programs; empty: null
  std::string param = {};  // path of the field, as messages[2].role; empty: null
  std::string message = {};
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;

// 400 about one field: the message begins with its path.
tl::unexpected<ApiError> refuse(std::string param, std::string code, std::string reason);

// The one table from error codes to HTTP: what the client can mend is 400 (404 for what is not there), the rest 500.
ApiError api_error(const Error& error);

// A prompt of num_prompt tokens leaves no room in the context for one more: both numbers, and by how much to cut.
ApiError prompt_too_long(int64_t num_prompt, int64_t context, std::string param);

// {"error": {"message", "type", "param", "code"}}: the body of every answer that is no success.
Json error_json(const ApiError& error);

}  // namespace kipp::openai
