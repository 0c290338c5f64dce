// HTTP as clients speak it: versions, keep-alive, pipelining, HEAD, OPTIONS, Expect, ids; and malformed requests over a
// real connection, which must be closed behind the answer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "server/http/raw_client.h"

namespace kipp::http::testing {
namespace {

TEST(HttpProtocol, KeepAliveAndItsEnd) {
  TestServer server;
  RawClient client = server.connect();
  for (int i = 0; i < 3; ++i) {
    client.send(post(fmt::format("/echo?{}", i), "body"));
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, fmt::format("POST /echo?{}\nbody", i));
    EXPECT_FALSE(answer.headers.contains("connection"));
    EXPECT_EQ(answer.headers.at("content-type"), "text/plain");
    EXPECT_EQ(answer.headers.at("date").size(), 29U);
  }
  client.send(get("/echo", "Connection: close\r\n"));
  EXPECT_EQ(client.read_answer().headers.at("connection"), "close");
  EXPECT_TRUE(client.is_at_end());
  EXPECT_EQ(server.server().statistics().connections, 1U);
  EXPECT_EQ(server.server().statistics().requests, 4U);
}

TEST(HttpProtocol, Version10) {
  TestServer server;
  RawClient client = server.connect();
  client.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.read_answer().headers.at("connection"), "keep-alive");
  client.send("GET /echo HTTP/1.0\r\n\r\n");
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(answer.body, "GET /echo?\n");
  EXPECT_TRUE(client.is_at_end());
}

TEST(HttpProtocol, PipelinedRequestsAreAnsweredInOrder) {
  TestServer server;
  RawClient client = server.connect();
  client.send(get("/held") + post("/echo", "second") + get("/stream") + get("/echo?fourth"));
  const std::shared_ptr<Exchange> first = server.held();
  EXPECT_EQ(client.read_for(50ms), "");  // the others wait for the first
  EXPECT_EQ(server.server().statistics().requests, 1U);
  first->respond({.body = "first"});
  EXPECT_EQ(client.read_answer().body, "first");
  EXPECT_EQ(client.read_answer().body, "POST /echo?\nsecond");
  EXPECT_EQ(client.read_answer().body, "one two three");
  EXPECT_EQ(client.read_answer().body, "GET /echo?fourth\n");
}

TEST(HttpProtocol, MoreIsPipelinedThanIsBuffered) {
  TestServer server;
  RawClient client = server.connect();
  std::string requests;
  constexpr int kRequests = 4000;
  for (int i = 0; i < kRequests; ++i) {
    requests += get(fmt::format("/echo?{}", i));
  }
  ASSERT_GT(requests.size(), 128U << 10);
  ASSERT_TRUE(client.send(requests));
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_EQ(client.read_answer().body, fmt::format("GET /echo?{}\n", i));
  }
}

TEST(HttpProtocol, HeadHasTheHeadersOfGet) {
  TestServer server;
  RawClient client = server.connect();
  client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n" + get("/echo"));
  const Answer head = client.read_answer(false);
  const Answer whole = client.read_answer();
  EXPECT_EQ(head.headers.at("content-length"), whole.headers.at("content-length"));
  EXPECT_EQ(head.headers.at("content-type"), whole.headers.at("content-type"));
  EXPECT_EQ(whole.body, "GET /echo?\n");
  // Of a stream, which then need not be made.
  client.send("HEAD /held HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::shared_ptr<Exchange> stream = server.held();
  EXPECT_EQ(stream->request().method, "GET");
  stream->begin_stream({.content_type = "text/event-stream"});
  EXPECT_EQ(client.read_answer(false).headers.at("transfer-encoding"), "chunked");
  EXPECT_TRUE(eventually([&] { return !stream->is_open(); }));
  client.send(get("/echo"));
  EXPECT_EQ(client.read_answer().body, "GET /echo?\n");
}

TEST(HttpProtocol, OptionsOfOneResourceAndOfAll) {
  TestServer server;
  for (const char* target : {"/echo", "*", "http://x/echo"}) {
    const Answer answer = server.ask(fmt::format("OPTIONS {} HTTP/1.1\r\nHost: x\r\n\r\n", target));
    EXPECT_EQ(answer.status, 204);
    EXPECT_EQ(answer.headers.at("allow"), "GET, HEAD, POST, OPTIONS");
  }
  EXPECT_EQ(server.server().statistics().requests, 0U);
}

TEST(HttpProtocol, ExpectContinue) {
  TestServer server;
  RawClient client = server.connect();
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_answer(false).status, 100);
  client.send("body");
  EXPECT_EQ(client.read_answer().body, "POST /echo?\nbody");
  // Without a body, or with one that has come already, nothing is to be continued.
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody");
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_EQ(
      server.ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n").status,
      413);
  EXPECT_EQ(server.ask(get("/echo", "Expect: a-pony\r\n")).status, 417);
}

TEST(HttpProtocol, ChunkedBodyInSingleBytes) {
  TestServer server;
  RawClient client = server.connect();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char c : head + "1;x=\"y\"\r\na\r\n1\r\nb\r\n0\r\nTrailer: z\r\n\r\n") {
    client.send(std::string(1, c));
  }
  EXPECT_EQ(client.read_answer().body, "POST /echo?\nab");
  client.send(get("/echo"));
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST(HttpProtocol, RequestIds) {
  TestServer server;
  EXPECT_EQ(server.ask(get("/echo", "X-Request-Id: mine-1\r\n")).headers.at("x-request-id"), "mine-1");
  EXPECT_TRUE(server.ask(get("/echo", "X-Request-Id: a b\r\n")).headers.at("x-request-id").starts_with("req-"));
  RawClient client = server.connect();
  client.send(get("/held", "X-Request-Id: mine-2\r\n"));
  const std::shared_ptr<Exchange> exchange = server.held();
  EXPECT_EQ(exchange->request().id, "mine-2");
  EXPECT_TRUE(exchange->request().peer.starts_with("127.0.0.1:"));
  ASSERT_NE(exchange->request().find_header("x-request-id"), nullptr);
  exchange->respond({});
  EXPECT_EQ(client.read_answer().headers.at("x-request-id"), "mine-2");
  // Also with an error of the server's own.
  EXPECT_EQ(server.ask(get("/echo", "X-Request-Id: mine-3\r\nExpect: x\r\n")).headers.at("x-request-id"), "mine-3");
}

TEST(HttpProtocol, WhatAHandlerSaysCannotSplitAnAnswer) {
  TestServer server;
  RawClient client = server.connect();
  client.send(get("/held"));
  server.held()->respond({.headers = {{"X-A", "a\r\nX-B: b"}}, .content_type = ""});
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.headers.at("x-a"), "a  X-B: b");
  EXPECT_FALSE(answer.headers.contains("x-b"));
  EXPECT_FALSE(answer.headers.contains("content-type"));
}

TEST(HttpProtocol, MalformedRequestsAreAnsweredAndEndTheConnection) {
  TestServer server;
  const std::string smuggled = get("/echo?smuggled");
  const std::vector<std::pair<std::string, int>> cases = {
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n", 400},
      {std::string("GET /echo HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 38), 400},
      {"GET /echo HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\nHost: x\n\n", 400},
      {"GET /echo HTTP/1.1\r\n\r\n", 400},
      {"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"\x16\x03\x01\x02\x05\x01", 400},
  };
  for (const auto& [bytes, status] : cases) {
    RawClient client = server.connect();
    client.send(bytes + smuggled);
    Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, status) << bytes;
    EXPECT_EQ(answer.headers["connection"], "close");
    EXPECT_EQ(answer.headers["content-type"], "application/json");
    EXPECT_TRUE(answer.body.starts_with(R"({"error":{"message":")")) << answer.body;
    EXPECT_NE(answer.body.find(R"("param":null,"code":")"), std::string::npos) << answer.body;
    EXPECT_TRUE(client.is_at_end()) << bytes;
  }
  EXPECT_EQ(server.server().statistics().requests, 0U);
}

TEST(HttpProtocol, AHandlerThatFailsOrForgets) {
  TestServer server;
  RawClient client = server.connect();
  client.send(get("/quiet") + get("/throw") + get("/echo"));
  EXPECT_EQ(client.read_answer().status, 500);
  EXPECT_EQ(client.read_answer().status, 500);
  EXPECT_EQ(client.read_answer().status, 200);
}

}  // namespace
}  // namespace kipp::http::testing
