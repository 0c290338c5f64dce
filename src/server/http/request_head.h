// What stands before a request's body, held to the letter of RFC 9112 where leniency lets two programs on the way
// disagree about where a request ends. Pure functions of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_server.h"
#include "server/http/response.h"

namespace kipp::http {

struct RequestHead {
  std::string method = {};
  std::string path = {};  // "*" only with OPTIONS
  std::string query = {};
  int minor_version = 1;             // of HTTP/1
  std::vector<Header> headers = {};  // names in lower case
  bool keep_alive = true;
  bool expects_continue = false;
};

// Finds the end of a head in bytes that come in pieces, and refuses what no head may hold: control characters, CR or LF
// alone, a line that continues the one before it (obs-fold), white space before the first line.
class HeadScanner {
 public:
  explicit HeadScanner(size_t max_bytes) : max_bytes_(max_bytes) {}

  // `bytes` begins where the head does, and has grown since the last call. The length of the head with its empty line;
  // nullopt: not yet complete, or refused.
  std::optional<size_t> scan(std::string_view bytes);
  const std::optional<Refusal>& refusal() const { return refusal_; }

 private:
  std::optional<Refusal> check(std::string_view bytes, size_t at) const;

  size_t max_bytes_;
  size_t scanned_ = 0;
  bool in_first_line_ = true;
  std::optional<Refusal> refusal_;
};

// Method, target and version of `line` (without CRLF) into `head`.
std::optional<Refusal> parse_request_line(std::string_view line, RequestHead& head);
// What headers must and must not say together: framing, Host, Expect, Content-Encoding. Sets head.expects_continue.
std::optional<Refusal> check_headers(RequestHead& head);

bool equals_ignoring_case(std::string_view a, std::string_view b);
const std::string* find_header(const std::vector<Header>& headers, std::string_view name);
// The client's X-Request-Id if it is at most 128 letters, digits and "-_.:/+=@~", else a random one.
std::string request_id(const std::vector<Header>& headers);

}  // namespace kipp::http
