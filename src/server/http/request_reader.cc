// Requests by Beast's parser, which sees only heads that were checked before (request_reader.h).
#include "server/http/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace kipp::http {
namespace beast = boost::beast;

// A chunk's size with its extensions, and trailers, must come whole into view.
constexpr size_t kMaxChunkHeadBytes = 16U << 10;

struct RequestReader::Parser {
  beast::http::request_parser<beast::http::string_body> beast;
};

RequestReader::RequestReader(size_t max_header_bytes, size_t max_body_bytes)
    : max_body_bytes_(max_body_bytes), scanner_(max_header_bytes), parser_(std::make_unique<Parser>()) {
  // The scanner has limited the head; this limit is for trailers.
  parser_->beast.header_limit(static_cast<uint32_t>(std::max<size_t>(max_header_bytes, kMaxChunkHeadBytes)));
  parser_->beast.body_limit(max_body_bytes);
  parser_->beast.eager(true);
}

RequestReader::~RequestReader() = default;

void RequestReader::refuse(Refusal refusal) {
  state_ = State::kRefused;
  refusal_ = std::move(refusal);
}

size_t RequestReader::feed(std::string_view bytes) {
  switch (state_) {
    case State::kHead: return feed_head(bytes);
    case State::kBody: return feed_body(bytes);
    default: return 0;
  }
}

size_t RequestReader::feed_head(std::string_view bytes) {
  // Empty lines before a request line are left over from clients that end a body with one (RFC 9112, 2.2).
  if (bytes == "\r" || bytes.empty()) {
    return 0;
  }
  if (bytes.substr(0, 2) == "\r\n") {
    return 2;
  }
  const std::optional<size_t> end = scanner_.scan(bytes);
  if (scanner_.refusal()) {
    refuse(*scanner_.refusal());
  }
  if (!end) {
    return 0;
  }
  parse_head(bytes.substr(0, *end));
  return *end;
}

void RequestReader::parse_head(std::string_view bytes) {
  if (auto refusal = parse_request_line(bytes.substr(0, bytes.find('\r')), head_)) {
    return refuse(*std::move(refusal));
  }
  beast::error_code error;
  parser_->beast.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
  const bool is_too_large = error == beast::http::error::body_limit;
  if (!parser_->beast.is_header_done() && !is_too_large) {
    return refuse({400, "malformed_request", fmt::format("The headers cannot be read: {}.", error.message())});
  }
  for (const auto& field : parser_->beast.get()) {
    std::string name(field.name_string());
    for (char& c : name) {
      c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    }
    head_.headers.push_back({std::move(name), std::string(field.value())});
  }
  head_.keep_alive = !is_too_large && parser_->beast.keep_alive();
  has_head_ = true;
  if (auto refusal = check_headers(head_)) {
    return refuse(*std::move(refusal));
  }
  if (is_too_large) {
    return refuse({413, "body_too_large", fmt::format("The body exceeds {} bytes.", max_body_bytes_)});
  }
  state_ = parser_->beast.is_done() ? State::kDone : State::kBody;
}

size_t RequestReader::feed_body(std::string_view bytes) {
  beast::error_code error;
  const size_t consumed = parser_->beast.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
  if (parser_->beast.is_done()) {
    state_ = State::kDone;
  } else if (error == beast::http::error::body_limit) {
    refuse({413, "body_too_large", fmt::format("The body exceeds {} bytes.", max_body_bytes_)});
  } else if (error && error != beast::http::error::need_more) {
    refuse({400, "malformed_request", fmt::format("The chunked body cannot be read: {}.", error.message())});
  } else if (bytes.size() - consumed > kMaxChunkHeadBytes) {
    refuse({400, "malformed_request", "The size line of a chunk, or the trailers, are too long."});
  }
  return consumed;
}

std::string RequestReader::take_body() {
  return std::move(parser_->beast.get().body());
}

}  // namespace kipp::http
