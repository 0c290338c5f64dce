// The head of a request, from its bytes to a head or a refusal: every rule with what keeps it and what breaks it.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/http/request_head.h"

namespace kipp::http {
namespace {

constexpr size_t kLimit = 4096;

// The status that scanning refuses with; 0: a whole head; -1: incomplete.
int scan_in_pieces(const std::string& bytes, size_t step) {
  HeadScanner scanner(kLimit);
  for (size_t end = step; end < bytes.size() + step; end += step) {
    if (scanner.scan(std::string_view(bytes).substr(0, end))) {
      return 0;
    }
    if (scanner.refusal()) {
      return scanner.refusal()->status;
    }
  }
  return -1;
}

TEST(HeadScanner, WhatAHeadMayHold) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0},
      {"GET / HTTP/1.1\r\n\r\n", 0},
      {"GET / HTTP/1.1\r\nX:\ttab\xC3\xA9\r\n\r\n", 0},
      {"GET / HTTP/1.1\r\nHost: x\r\n", -1},
      {"GET / HTTP/1.1\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\n\n", 400},
      {"GET / HTTP/1.1\rHost: x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n", 400},
      {" GET / HTTP/1.1\r\n\r\n", 400},
      {std::string("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", 27), 400},
      {"GET / HTTP/1.1\r\nA: b\x7F\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA: b\x1B\r\n\r\n", 400},
      {"\x16\x03\x01\x02", 400},
      {"\n", 400},
      {"GET /" + std::string(kLimit, 'a'), 414},
      {"GET / HTTP/1.1\r\nA: " + std::string(kLimit, 'a'), 431},
  };
  for (const auto& [bytes, status] : cases) {
    for (const size_t step : {size_t{1}, size_t{7}, bytes.size()}) {
      EXPECT_EQ(scan_in_pieces(bytes, step), status) << ::testing::PrintToString(bytes.substr(0, 60)) << step;
    }
  }
}

TEST(HeadScanner, EndsBehindTheEmptyLineAndNoLater) {
  HeadScanner scanner(kLimit);
  EXPECT_EQ(scanner.scan("GET / HTTP/1.1\r\n\r\n\n\n"), 18U);
  HeadScanner exact(18);
  EXPECT_EQ(exact.scan("GET / HTTP/1.1\r\n\r\n"), 18U);
  HeadScanner short_by_one(17);
  EXPECT_EQ(short_by_one.scan("GET / HTTP/1.1\r\n\r\n"), std::nullopt);
  EXPECT_EQ(short_by_one.refusal()->status, 431);
}

struct Line {
  std::string text;
  int status;  // 0: fine
  std::string path;
  std::string query;
};

TEST(RequestLine, TargetsInEveryForm) {
  const std::vector<Line> lines = {
      {"GET / HTTP/1.1", 0, "/", ""},
      {"GET /v1/models?a=b?c HTTP/1.0", 0, "/v1/models", "a=b?c"},
      {"GET /%00%2e HTTP/1.1", 0, "/%00%2e", ""},
      {"GET http://host:80/p?q HTTP/1.1", 0, "/p", "q"},
      {"GET HTTPS://host HTTP/1.1", 0, "/", ""},
      {"GET http://host?q HTTP/1.1", 0, "/", "q"},
      {"OPTIONS * HTTP/1.1", 0, "*", ""},
      {"GET * HTTP/1.1", 400, "", ""},
      {"CONNECT host:80 HTTP/1.1", 400, "", ""},
      {"GET http:///p HTTP/1.1", 400, "", ""},
      {"GET ftp://host/p HTTP/1.1", 400, "", ""},
      {"GET p HTTP/1.1", 400, "", ""},
      {"GET /a#b HTTP/1.1", 400, "", ""},
      {"GET /\xC3\xA9 HTTP/1.1", 400, "", ""},
      {"GET  / HTTP/1.1", 400, "", ""},
      {"GET / HTTP/1.1 ", 400, "", ""},
      {"GET /a b HTTP/1.1", 400, "", ""},
      {"GET\t/ HTTP/1.1", 400, "", ""},
      {"GET /", 400, "", ""},
      {"GET", 400, "", ""},
      {"", 400, "", ""},
      {"G(T / HTTP/1.1", 400, "", ""},
      {"GET / http/1.1", 400, "", ""},
      {"GET / HTTP/1", 400, "", ""},
      {"GET / HTTP/1.1x", 400, "", ""},
      {"GET / HTTP/01.1", 400, "", ""},
      {"GET / HTTP/1.2", 505, "", ""},
      {"GET / HTTP/2.0", 505, "", ""},
      {"PRI * HTTP/2.0", 505, "", ""},
      {"GET / HTTP/0.9", 505, "", ""},
  };
  for (const Line& line : lines) {
    RequestHead head;
    const std::optional<Refusal> refusal = parse_request_line(line.text, head);
    EXPECT_EQ(refusal ? refusal->status : 0, line.status) << line.text;
    if (line.status == 0) {
      EXPECT_EQ(head.path, line.path) << line.text;
      EXPECT_EQ(head.query, line.query) << line.text;
    }
  }
}

int status_of(std::vector<Header> headers, int minor_version = 1) {
  RequestHead head{.method = "POST", .minor_version = minor_version, .headers = std::move(headers)};
  const std::optional<Refusal> refusal = check_headers(head);
  return refusal ? refusal->status : 0;
}

TEST(CheckHeaders, FramingIsUnambiguous) {
  const Header host{"host", "x"};
  EXPECT_EQ(status_of({host}), 0);
  EXPECT_EQ(status_of({host, {"content-length", "5"}}), 0);
  EXPECT_EQ(status_of({host, {"transfer-encoding", "Chunked"}}), 0);
  for (const char* length : {"", "-1", "+5", "5, 5", "5,6", "0x5", "5 5", "5.0", "18446744073709551616", "five"}) {
    EXPECT_EQ(status_of({host, {"content-length", length}}), 400) << length;
  }
  EXPECT_EQ(status_of({host, {"content-length", "5"}, {"content-length", "5"}}), 400);
  EXPECT_EQ(status_of({host, {"content-length", "5"}, {"content-length", "6"}}), 400);
  EXPECT_EQ(status_of({host, {"content-length", "5"}, {"transfer-encoding", "chunked"}}), 400);
  EXPECT_EQ(status_of({host, {"transfer-encoding", "chunked"}, {"transfer-encoding", "chunked"}}), 400);
  for (const char* coding : {"gzip", "gzip, chunked", "chunked, gzip", "xchunked", "identity", "", "\vchunked"}) {
    EXPECT_EQ(status_of({host, {"transfer-encoding", coding}}), 501) << coding;
  }
  EXPECT_EQ(status_of({{"transfer-encoding", "chunked"}}, 0), 400);
}

TEST(CheckHeaders, HostExpectAndCompression) {
  EXPECT_EQ(status_of({}), 400);
  EXPECT_EQ(status_of({}, 0), 0);
  EXPECT_EQ(status_of({{"host", "x"}, {"host", "x"}}), 400);
  EXPECT_EQ(status_of({{"host", "x"}, {"expect", "100-Continue"}}), 0);
  EXPECT_EQ(status_of({{"host", "x"}, {"expect", "a-pony"}}), 417);
  EXPECT_EQ(status_of({{"host", "x"}, {"content-encoding", "gzip"}}), 415);
  EXPECT_EQ(status_of({{"host", "x"}, {"content-encoding", "identity"}}), 0);
}

TEST(RequestId, KeepsWhatIsSane) {
  const auto id_of = [](std::string sent) { return request_id({{"x-request-id", std::move(sent)}}); };
  EXPECT_EQ(id_of("a-Z_0.9:/+=@~"), "a-Z_0.9:/+=@~");
  EXPECT_EQ(id_of(std::string(128, 'x')), std::string(128, 'x'));
  for (const std::string& bad : {std::string(129, 'x'), std::string(), std::string("a b"), std::string("a\"b"),
                                 std::string("a,b"), std::string("\xC3\xA9")}) {
    const std::string made = id_of(bad);
    EXPECT_TRUE(made.starts_with("req-") && made.size() == 36) << made;
  }
  EXPECT_NE(request_id({}), request_id({}));
}

}  // namespace
}  // namespace kipp::http
