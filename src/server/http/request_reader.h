// Bytes of one connection to requests: the strict head (request_head.h), then Beast's parser for fields and body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/request_head.h"
#include "server/http/response.h"

namespace kipp::http {

// Reads one request. Touches no socket and no clock.
class RequestReader {
 public:
  enum class State : uint8_t {
    kHead,     // the head is incomplete
    kBody,     // the head is there, the body is not
    kDone,     // both are
    kRefused,  // see refusal(); nothing behind it on this connection can be understood
  };

  RequestReader(size_t max_header_bytes, size_t max_body_bytes);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // `bytes`: all that has come and was not consumed. Returns how many are consumed now; the rest is to be handed in
  // again, with more behind it, or belongs to the next request. Stops behind the head, so that it can be looked at.
  size_t feed(std::string_view bytes);

  State state() const { return state_; }
  const Refusal& refusal() const { return refusal_; }
  bool has_head() const { return has_head_; }  // also where it was refused for what it says
  const RequestHead& head() const { return head_; }
  RequestHead take_head() { return std::move(head_); }
  std::string take_body();

 private:
  struct Parser;
  size_t feed_head(std::string_view bytes);
  void parse_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  void refuse(Refusal refusal);

  size_t max_body_bytes_;
  HeadScanner scanner_;
  std::unique_ptr<Parser> parser_;
  State state_ = State::kHead;
  bool has_head_ = false;
  RequestHead head_;
  Refusal refusal_;
};

}  // namespace kipp::http
