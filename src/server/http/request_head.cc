// Strict checks of a request's head (request_head.h). Header fields are parsed by Beast (request_reader.cc).
#include "server/http/request_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace kipp::http {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter_or_digit(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

Refusal malformed(std::string message) {
  return {400, "malformed_request", std::move(message)};
}

std::optional<Refusal> parse_version(std::string_view version, int& minor) {
  const bool is_version = version.size() == 8 && version.substr(0, 5) == "HTTP/" && version[6] == '.' &&
                          version[5] >= '0' && version[5] <= '9' && version[7] >= '0' && version[7] <= '9';
  if (!is_version) {
    return malformed("The request line does not end in an HTTP version.");
  }
  if (version[5] != '1' || version[7] > '1') {
    return Refusal{505, "http_version_not_supported", "This server speaks HTTP/1.1 and HTTP/1.0."};
  }
  minor = version[7] - '0';
  return std::nullopt;
}

// origin-form, absolute-form (as proxies get it), or "*" of OPTIONS.
std::optional<Refusal> parse_target(std::string_view target, RequestHead& head) {
  const bool is_text =
      std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c < 0x7F && c != '#'; });
  if (target.empty() || !is_text) {
    return malformed("The request target has characters that must be percent-encoded.");
  }
  if (target == "*") {
    head.path = "*";
    return head.method == "OPTIONS" ? std::nullopt
                                    : std::optional(malformed("The request target * is for OPTIONS only."));
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() > scheme.size() && equals_ignoring_case(target.substr(0, scheme.size()), scheme)) {
      const size_t authority_end = std::min(target.find_first_of("/?", scheme.size()), target.size());
      if (authority_end == scheme.size()) {
        return malformed("The request target has no host.");
      }
      target.remove_prefix(authority_end);
      head.path = target.empty() || target.front() == '?' ? "/" : "";  // an empty path is "/"
      break;
    }
  }
  if (head.path.empty() && target.front() != '/') {
    return malformed("The request target is neither a path nor an absolute URI.");
  }
  const size_t mark = std::min(target.find('?'), target.size());
  head.path += target.substr(0, mark);
  head.query = target.substr(std::min(mark + 1, target.size()));
  return std::nullopt;
}

std::optional<Refusal> check_framing(const RequestHead& head, std::string_view coding, size_t num_codings,
                                     size_t num_lengths) {
  if (num_codings + num_lengths > 1) {
    return malformed("A request has one Content-Length or one Transfer-Encoding.");
  }
  if (num_codings == 0) {
    return std::nullopt;
  }
  if (head.minor_version == 0) {
    return malformed("HTTP/1.0 has no Transfer-Encoding.");
  }
  if (!equals_ignoring_case(coding, "chunked")) {
    return Refusal{501, "transfer_encoding_not_supported", "The only Transfer-Encoding supported is chunked."};
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> HeadScanner::scan(std::string_view bytes) {
  for (; !refusal_ && scanned_ < std::min(bytes.size(), max_bytes_); ++scanned_) {
    refusal_ = check(bytes, scanned_);
    if (bytes[scanned_] == '\n' && !refusal_) {
      in_first_line_ = false;
      if (scanned_ >= 3 && bytes[scanned_ - 2] == '\n') {
        return scanned_ + 1;
      }
    }
  }
  if (!refusal_ && scanned_ >= max_bytes_) {
    refusal_ = in_first_line_
                   ? Refusal{414, "target_too_long", fmt::format("The request line exceeds {} bytes.", max_bytes_)}
                   : Refusal{431, "headers_too_large", fmt::format("The headers exceed {} bytes.", max_bytes_)};
  }
  return std::nullopt;
}

std::optional<Refusal> HeadScanner::check(std::string_view bytes, size_t at) const {
  const char c = bytes[at];
  const char before = at == 0 ? '\n' : bytes[at - 1];
  const auto byte = static_cast<unsigned char>(c);
  if (before == '\r' && c != '\n') {
    return malformed("A CR stands without LF.");
  }
  if (c == '\n' && before != '\r') {
    return malformed("A LF stands without CR.");
  }
  if (at == 0 && c == 0x16) {
    return malformed("This looks like TLS, but the port speaks plain HTTP.");
  }
  if ((byte < 0x20 && c != '\t' && c != '\r' && c != '\n') || byte == 0x7F) {
    return malformed("The head of the request has a control character.");
  }
  if (before == '\n' && (c == ' ' || c == '\t')) {
    return malformed("A line of the head begins with white space.");
  }
  return std::nullopt;
}

std::optional<Refusal> parse_request_line(std::string_view line, RequestHead& head) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || line.find(' ', first + 1) != last) {
    return malformed("The request line is not a method, a target and a version with single spaces between.");
  }
  head.method = line.substr(0, first);
  if (!is_token(head.method)) {
    return malformed("The method is not a token.");
  }
  if (auto refusal = parse_version(line.substr(last + 1), head.minor_version)) {
    return refusal;
  }
  return parse_target(line.substr(first + 1, last - first - 1), head);
}

std::optional<Refusal> check_headers(RequestHead& head) {
  size_t num_hosts = 0;
  size_t num_lengths = 0;
  size_t num_codings = 0;
  std::string_view coding;
  for (const Header& header : head.headers) {
    if (header.name == "host") {
      ++num_hosts;
    } else if (header.name == "content-length") {
      const bool is_number = !header.value.empty() && header.value.size() <= 19 &&
                             header.value.find_first_not_of("0123456789") == std::string::npos;
      if (!is_number) {
        return malformed("Content-Length is not a number of bytes.");
      }
      ++num_lengths;
    } else if (header.name == "transfer-encoding") {
      ++num_codings;
      coding = header.value;
    } else if (header.name == "content-encoding" && !equals_ignoring_case(header.value, "identity")) {
      return Refusal{415, "content_encoding_not_supported", "Compressed request bodies are not supported."};
    } else if (header.name == "expect") {
      if (!equals_ignoring_case(header.value, "100-continue")) {
        return Refusal{417, "expectation_failed", "The only expectation that is met is 100-continue."};
      }
      head.expects_continue = head.minor_version >= 1;
    }
  }
  if (num_hosts > 1 || (num_hosts == 0 && head.minor_version >= 1)) {
    return malformed("An HTTP/1.1 request has exactly one Host header.");
  }
  return check_framing(head, coding, num_codings, num_lengths);
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

const std::string* find_header(const std::vector<Header>& headers, std::string_view name) {
  const auto found =
      std::find_if(headers.begin(), headers.end(), [&](const Header& header) { return header.name == name; });
  return found != headers.end() ? &found->value : nullptr;
}

const std::string* Request::find_header(std::string_view name) const {
  return http::find_header(headers, name);
}

std::string request_id(const std::vector<Header>& headers) {
  constexpr size_t kMaxBytes = 128;
  const std::string* sent = find_header(headers, "x-request-id");
  const auto is_sane = [](char c) {
    return is_letter_or_digit(c) || std::string_view("-_.:/+=@~").find(c) != std::string_view::npos;
  };
  if (sent != nullptr && !sent->empty() && sent->size() <= kMaxBytes &&
      std::all_of(sent->begin(), sent->end(), is_sane)) {
    return *sent;
  }
  thread_local std::mt19937_64 generator{[] {
    std::random_device device;
    return (uint64_t{device()} << 32U) | device();
  }()};
  return fmt::format("req-{:016x}{:016x}", generator(), generator());
}

}  // namespace kipp::http
