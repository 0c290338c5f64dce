// Streams: order and framing, clients that go away, that do not read, and handlers that stop in the middle.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>

#include "server/http/raw_client.h"

namespace kipp::http::testing {
namespace {

using Clock = std::chrono::steady_clock;
// How fast a client's going away must be seen: at once, and 250 ms is what a busy machine may make of that.
constexpr auto kSoon = kIsSanitized ? 2000ms : 250ms;

constexpr auto kLate = 15s;  // what must happen, but need not be fast

const Response kStreamHead{.content_type = "text/event-stream"};

// A held exchange that counts the calls of on_closed.
struct Held {
  explicit Held(TestServer& server) : exchange(server.held()) {
    exchange->on_closed([calls = calls] { ++*calls; });
  }
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<Exchange> exchange;
};

TEST(HttpStream, PiecesOfAnotherThreadInOrder) {
  TestServer server;
  RawClient client = server.connect();
  client.send(get("/held"));
  Held held(server);
  constexpr int kPieces = 20'000;
  std::thread writer([exchange = held.exchange] {
    exchange->begin_stream(kStreamHead);
    for (int i = 0; i < kPieces; ++i) {
      exchange->write(fmt::format("{} ", i));
    }
    exchange->end_stream();
    exchange->write("behind the end");
    exchange->end_stream();
  });
  const Answer answer = client.read_answer();
  writer.join();
  std::string expected;
  for (int i = 0; i < kPieces; ++i) {
    expected += fmt::format("{} ", i);
  }
  EXPECT_EQ(answer.headers.at("transfer-encoding"), "chunked");
  EXPECT_FALSE(answer.headers.contains("content-length"));
  EXPECT_TRUE(answer.is_whole);
  EXPECT_EQ(answer.body, expected);
  EXPECT_TRUE(eventually([&] { return held.exchange->queued_bytes() == 0; }));
  client.send(get("/echo"));
  EXPECT_EQ(client.read_answer().status, 200);
  client.close();
  EXPECT_TRUE(eventually([&] { return server.server().statistics().open_connections == 0; }));
  EXPECT_EQ(*held.calls, 0);  // it had its whole answer
}

TEST(HttpStream, APieceIsSentWhenItIsWritten) {
  TestServer server;
  RawClient client = server.connect();
  client.send(get("/held"));
  Held held(server);
  held.exchange->begin_stream(kStreamHead);
  EXPECT_NE(client.read_for(100ms).find("text/event-stream"), std::string::npos);
  for (const char* piece : {"one", "two"}) {
    held.exchange->write(piece);
    EXPECT_EQ(client.read_for(100ms), fmt::format("3\r\n{}\r\n", piece));
  }
  held.exchange->end_stream();
  EXPECT_EQ(client.read_for(100ms), "0\r\n\r\n");
}

TEST(HttpStream, Version10EndsWithTheConnection) {
  TestServer server;
  RawClient client = server.connect();
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.body, "one two three");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
}

TEST(HttpStream, ADisconnectIsNoticedWhileNothingIsWritten) {
  TestServer server;
  for (const bool is_streaming : {false, true}) {
    for (const bool is_reset : {false, true}) {
      RawClient client = server.connect();
      client.send(get("/held"));
      Held held(server);
      if (is_streaming) {
        held.exchange->begin_stream(kStreamHead);
        client.read_for(20ms);
      }
      EXPECT_TRUE(held.exchange->is_open());
      if (is_reset) {
        const linger hard{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(client.descriptor(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
      }
      const auto gone = Clock::now();
      client.close();
      EXPECT_TRUE(eventually([&] { return *held.calls == 1; }, kSoon)) << is_streaming << is_reset;
      EXPECT_LT(Clock::now() - gone, kSoon);
      EXPECT_FALSE(held.exchange->is_open());
      held.exchange->write("nobody reads this");
      held.exchange->end_stream();
      held.exchange->respond({});
      EXPECT_EQ(held.exchange->queued_bytes(), 0U);
      std::atomic<int> late{0};
      held.exchange->on_closed([&] { ++late; });
      EXPECT_EQ(late, 1);
    }
  }
  EXPECT_TRUE(eventually([&] { return server.server().statistics().open_connections == 0; }));
}

TEST(HttpStream, AHalfClosedClientIsNoticedAndAnswered) {
  TestServer server;
  RawClient client = server.connect();
  client.send(get("/held"));
  Held held(server);
  client.close_sending_side();
  EXPECT_TRUE(eventually([&] { return *held.calls == 1; }, kSoon));
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("client_closed_request"), std::string::npos);
  EXPECT_TRUE(client.is_at_end());
  // A stream ends without its last chunk.
  RawClient streamed = server.connect();
  streamed.send(get("/held"));
  Held stream(server);
  stream.exchange->begin_stream(kStreamHead);
  stream.exchange->write("abc");
  EXPECT_NE(streamed.read_for(50ms), "");
  streamed.close_sending_side();
  EXPECT_TRUE(eventually([&] { return *stream.calls == 1; }, kSoon));
  EXPECT_EQ(streamed.read_to_end(), "");
}

TEST(HttpStream, WhatIsAnsweredAtOnceReachesAHalfClosedClient) {
  TestServer server;
  RawClient client = server.connect();
  client.send(get("/echo?1") + get("/stream") + get("/echo?2"));
  client.close_sending_side();
  EXPECT_EQ(client.read_answer().body, "GET /echo?1\n");
  EXPECT_EQ(client.read_answer().body, "one two three");
  EXPECT_EQ(client.read_answer().body, "GET /echo?2\n");
  EXPECT_TRUE(client.is_at_end());
  for (const char* part : {"GET /echo HTT", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"}) {
    RawClient cut = server.connect();
    cut.send(part);
    cut.close_sending_side();
    EXPECT_EQ(cut.read_answer().status, 400);
    EXPECT_TRUE(cut.is_at_end());
  }
}

TEST(HttpStream, AClientThatDoesNotReadIsCutAtTheLimit) {
  TestServer server({.max_queued_bytes = 1U << 20, .write_timeout = 60s});
  RawClient client = server.connect();
  client.send(get("/held"));
  Held held(server);
  held.exchange->begin_stream(kStreamHead);
  const std::string piece(64U << 10, 'x');
  size_t written = 0;
  // What the system buffers, up to some megabytes, and the limit.
  while (held.exchange->is_open() && written < (64U << 20)) {
    held.exchange->write(piece);
    written += piece.size();
    EXPECT_LE(held.exchange->queued_bytes(), 1U << 20);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_GE(written, 1U << 20);
  EXPECT_TRUE(eventually([&] { return *held.calls == 1; }, kSoon));
  EXPECT_EQ(held.exchange->queued_bytes(), 0U);
  EXPECT_TRUE(eventually([&] { return server.server().statistics().open_connections == 0; }));
  EXPECT_EQ(server.server().statistics().slow_clients, 1U);
}

TEST(HttpStream, AClientThatDoesNotReadIsCutInTime) {
  TestServer server({.max_queued_bytes = 64U << 20, .write_timeout = 100ms});
  RawClient client = server.connect();
  client.send(get("/held"));
  Held held(server);
  held.exchange->begin_stream(kStreamHead);
  held.exchange->write(std::string(32U << 20, 'x'));
  EXPECT_TRUE(eventually([&] { return *held.calls == 1; }, kLate));
  EXPECT_EQ(server.server().statistics().slow_clients, 1U);
  // The same with a whole answer.
  RawClient other = server.connect();
  other.send(get("/held"));
  Held whole(server);
  whole.exchange->respond({.body = std::string(32U << 20, 'x')});
  EXPECT_TRUE(eventually([&] { return *whole.calls == 1; }, kLate));
  EXPECT_TRUE(eventually([&] { return server.server().statistics().open_connections == 0; }));
}

TEST(HttpStream, ADroppedStreamIsVisiblyCut) {
  TestServer server;
  RawClient client = server.connect();
  client.send(get("/held"));
  std::shared_ptr<Exchange> exchange = server.held();
  exchange->begin_stream(kStreamHead);
  exchange->write("abc");
  EXPECT_NE(client.read_for(50ms), "");
  exchange.reset();
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(HttpStream, ManyStreamsFromManyThreads) {
  TestServer server({.num_threads = 3});
  constexpr int kStreams = 32;
  std::vector<RawClient> clients;
  std::vector<std::thread> writers;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(server.connect());
    clients.back().send(get(fmt::format("/held?{}", i)));
    writers.emplace_back([exchange = server.held()] {
      exchange->begin_stream(kStreamHead);
      for (int k = 0; k < 200; ++k) {
        exchange->write(exchange->request().query + " ");
        exchange->queued_bytes();
      }
      exchange->end_stream();
    });
    if (i % 4 == 3) {
      clients.back().close();
    }
  }
  for (int i = 0; i < kStreams; ++i) {
    if (i % 4 != 3) {
      std::string expected;
      for (int k = 0; k < 200; ++k) {
        expected += fmt::format("{} ", i);
      }
      EXPECT_EQ(clients[static_cast<size_t>(i)].read_answer().body, expected);
    }
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
}

}  // namespace
}  // namespace kipp::http::testing
