// Requests with their bodies, fed whole and byte by byte: the same requests, or the same refusal at the same place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/http/request_reader.h"

namespace kipp::http {
namespace {

constexpr size_t kMaxHeaders = 1024;
constexpr size_t kMaxBody = 64;

struct Read {
  int status = -1;  // 0: a request; -1: incomplete; else refused
  std::string body = {};
  std::string rest = {};  // of the bytes, behind the request
};

Read read_in_pieces(std::string_view bytes, size_t step) {
  RequestReader reader(kMaxHeaders, kMaxBody);
  std::string input;
  size_t given = 0;
  for (;;) {
    const size_t consumed = reader.feed(input);
    input.erase(0, consumed);
    if (reader.state() == RequestReader::State::kDone) {
      return {.status = 0, .body = reader.take_body(), .rest = input + std::string(bytes.substr(given))};
    }
    if (reader.state() == RequestReader::State::kRefused) {
      return {.status = reader.refusal().status, .body = "", .rest = ""};
    }
    if (consumed == 0 || input.empty()) {
      if (given == bytes.size()) {
        return {};
      }
      input += bytes.substr(given, step);
      given = std::min(given + step, bytes.size());
    }
  }
}

Read read(std::string_view bytes) {
  const Read whole = read_in_pieces(bytes, bytes.size());
  for (const size_t step : {size_t{1}, size_t{3}}) {
    const Read pieces = read_in_pieces(bytes, step);
    EXPECT_EQ(pieces.status, whole.status) << bytes.substr(0, 200);
    EXPECT_EQ(pieces.body, whole.body) << bytes.substr(0, 200);
    EXPECT_EQ(pieces.rest, whole.rest) << bytes.substr(0, 200);
  }
  return whole;
}

std::string chunked(std::string_view body) {
  return fmt::format("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{}", body);
}

TEST(RequestReader, BodiesByLength) {
  const Read none = read("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /next");
  EXPECT_EQ(none.status, 0);
  EXPECT_EQ(none.rest, "GET /next");
  const Read five = read("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcdefgh");
  EXPECT_EQ(five.status, 0);
  EXPECT_EQ(five.body, "abcde");
  EXPECT_EQ(five.rest, "fgh");
  EXPECT_EQ(read("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").status, 0);
  EXPECT_EQ(read("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcd").status, -1);
  EXPECT_EQ(read("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 64\r\n\r\n" + std::string(64, 'x')).body.size(), 64U);
  EXPECT_EQ(read("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 65\r\n\r\n").status, 413);
  EXPECT_EQ(read("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999999999\r\n\r\n").status, 413);
}

TEST(RequestReader, EmptyLinesBeforeARequestAreSkipped) {
  EXPECT_EQ(read("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n").status, 0);
  EXPECT_EQ(read("\r\nX\r\n\r\n").status, 400);
  EXPECT_EQ(read("\rGET / HTTP/1.1\r\nHost: x\r\n\r\n").status, 400);
}

TEST(RequestReader, ChunkedBodies) {
  EXPECT_EQ(read(chunked("5\r\nabcde\r\n0\r\n\r\nrest")).body, "abcde");
  EXPECT_EQ(read(chunked("5\r\nabcde\r\n0\r\n\r\nrest")).rest, "rest");
  EXPECT_EQ(read(chunked("1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n")).body, "abc");
  EXPECT_EQ(read(chunked("A;name=value;other=\"quoted \\\" text\";bare\r\n0123456789\r\n0;x\r\n\r\n")).body,
            "0123456789");
  EXPECT_EQ(read(chunked("2\r\n\r\n\r\n0\r\n\r\n")).body, "\r\n");
  EXPECT_EQ(read(chunked("0002\r\nab\r\n000\r\n\r\n")).body, "ab");
  EXPECT_EQ(read(chunked("1\r\na\r\n0\r\nX-Trailer: y\r\nAnother: z\r\n\r\nrest")).rest, "rest");
  EXPECT_EQ(read(chunked("0\r\n\r\n")).status, 0);
  EXPECT_EQ(read(chunked("40\r\n" + std::string(64, 'x') + "\r\n0\r\n\r\n")).status, 0);
  EXPECT_EQ(read(chunked("41\r\n")).status, 413);
  EXPECT_EQ(read(chunked("20\r\n" + std::string(32, 'x') + "\r\n21\r\n")).status, 413);
  EXPECT_EQ(read(chunked("5\r\nabcde\r\n0\r\n")).status, -1);
}

TEST(RequestReader, MalformedChunksAreRefused) {
  for (const char* body :
       {"x\r\n", "\r\n", "-1\r\na\r\n", "+1\r\na\r\n", "0x1\r\na\r\n\r\n", " 1\r\na\r\n", "1 1\r\na\r\n",
        "1\r\nab\r\n0\r\n\r\n", "1\r\na0\r\n\r\n", "1\na\n0\n\n\r\n", "1;\x01\r\na\r\n", "10000000000000000\r\n",
        "FFFFFFFFFFFFFFFFF\r\n", "1;a=\"b\"c\r\na\r\n", "0\r\nContent-Length: 3\r\n\r\nabc",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\nno colon\r\n\r\n", "0\r\na\nb: c\r\n\r\n"}) {
    EXPECT_EQ(read(chunked(body)).status, 400) << body;
  }
  EXPECT_EQ(read(chunked("1;a=\"open\r\na\r\n0\r\n\r\n")).status, -1);  // never a request
  EXPECT_EQ(read(chunked("1;" + std::string(40'000, 'a'))).status, 400);
  EXPECT_EQ(read(chunked("0\r\nA: " + std::string(40'000, 'a'))).status, 400);
}

TEST(RequestReader, TrailersAreNotHeaders) {
  RequestReader reader(kMaxHeaders, kMaxBody);
  std::string input = chunked("1\r\na\r\n0\r\nAuthorization: Bearer k\r\n\r\n");
  input.erase(0, reader.feed(input));
  reader.feed(input);
  ASSERT_EQ(reader.state(), RequestReader::State::kDone);
  EXPECT_EQ(find_header(reader.head().headers, "authorization"), nullptr);
}

TEST(RequestReader, HeaderFields) {
  const auto status = [](std::string_view fields) {
    return read(fmt::format("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", fields)).status;
  };
  EXPECT_EQ(status("A: b\r\n"), 0);
  EXPECT_EQ(status("A:b\r\n"), 0);
  EXPECT_EQ(status("A:\r\n"), 0);
  EXPECT_EQ(status("A: caf\xC3\xA9\r\n"), 0);
  for (const char* bad :
       {"A\r\n", ": b\r\n", "A : b\r\n", "A b: c\r\n", "A\t: b\r\n", "(: b\r\n", "\xC3\xA9: b\r\n",
        "Content-Length : 5\r\n", "Transfer-Encoding : chunked\r\n", "Content-Length: 5\r\n folded\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: +5\r\n", "Content-Length: -1\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n", "Host: y\r\n"}) {
    EXPECT_EQ(status(bad), 400) << bad;
  }
  EXPECT_EQ(status("A: " + std::string(2000, 'x') + "\r\n"), 431);
}

TEST(RequestReader, KeepAliveByVersionAndHeader) {
  const auto keeps = [](std::string_view version, std::string_view fields) {
    RequestReader reader(kMaxHeaders, kMaxBody);
    reader.feed(fmt::format("GET / HTTP/{}\r\nHost: x\r\n{}\r\n", version, fields));
    EXPECT_EQ(reader.state(), RequestReader::State::kDone);
    return reader.head().keep_alive;
  };
  EXPECT_TRUE(keeps("1.1", ""));
  EXPECT_FALSE(keeps("1.1", "Connection: close\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: te, CLOSE\r\n"));
  EXPECT_FALSE(keeps("1.0", ""));
  EXPECT_TRUE(keeps("1.0", "Connection: Keep-Alive\r\n"));
}

}  // namespace
}  // namespace kipp::http
