// The bytes of an answer's head, and the answers that the server gives by itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_server.h"

namespace kipp::http {

// Why a request is not handed on.
struct Refusal {
  int status = 400;
  std::string code;  // for programs, as "body_too_large"
  std::string message;
};

// {"error": {"message", "type", "param", "code"}} with the type that belongs to the status.
Response error_response(const Refusal& refusal);

std::string_view reason_phrase(int status);
// Whether an answer of that status has a body at all.
bool may_have_body(int status);

enum class Framing : uint8_t {
  kLength,   // Content-Length
  kChunked,  // Transfer-Encoding: chunked
  kClose,    // ends with the connection: streams for HTTP/1.0
};

struct HeadOptions {
  Framing framing = Framing::kLength;
  bool keep_alive = true;
  int minor_version = 1;          // of the request
  std::vector<Header> more = {};  // behind those of the response
};

// Status line and headers up to and with the empty line. Control characters in values become spaces.
std::string serialize_head(const Response& response, const HeadOptions& options);

}  // namespace kipp::http
