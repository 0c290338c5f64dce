// Statuses and names. Contract in api_error.h.
#include "server/openai/api_error.h"

#include <utility>

#include <fmt/format.h>

namespace kipp::openai {
namespace {

struct Row {
  int status;
  const char* type;
};

Row row_of(ErrorCode code) {
  constexpr Row kClient = {400, "invalid_request_error"};
  constexpr Row kServer = {500, "server_error"};
  switch (code) {
    case ErrorCode::kInvalidArgument: return kClient;
    case ErrorCode::kUnsupported: return kClient;
    case ErrorCode::kCapacity: return kClient;
    case ErrorCode::kNotFound: return {404, "not_found_error"};
    case ErrorCode::kInvalidArtifact: return kServer;
    case ErrorCode::kIo: return kServer;
    case ErrorCode::kNumerical: return kServer;
    case ErrorCode::kInternal: return kServer;
  }
  return kServer;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json::string(text);
}

}  // namespace

tl::unexpected<ApiError> refuse(std::string param, std::string code, std::string reason) {
  std::string message = param.empty() ? std::move(reason) : fmt::format("{}: {}", param, reason);
  return tl::unexpected<ApiError>(
      ApiError{.code = std::move(code), .param = std::move(param), .message = std::move(message)});
}

ApiError api_error(const Error& error) {
  const Row row = row_of(error.code);
  return {.status = row.status, .type = row.type, .code = error_code_name(error.code), .message = error.message};
}

ApiError prompt_too_long(int64_t num_prompt, int64_t context, std::string param) {
  const int64_t excess = num_prompt - context + 1;
  return {.code = "context_length_exceeded",
          .param = std::move(param),
          .message = fmt::format("the prompt has {} tokens and the context holds {}, output included: expected at most "
                                 "{}; shorten the prompt by at least {} token{}",
                                 num_prompt, context, context - 1, excess, excess == 1 ? "" : "s")};
}

Json error_json(const ApiError& error) {
  return Json::object({{"error", Json::object({{"message", Json::string(error.message)},
                                               {"type", Json::string(error.type)},
                                               {"param", text_or_null(error.param)},
                                               {"code", text_or_null(error.code)}})}});
}

}  // namespace kipp::openai
