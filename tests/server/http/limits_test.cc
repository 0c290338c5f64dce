// Every limit answers, and in time: sizes, slow clients, too many connections, too many descriptors, idle ones.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <string>
#include <thread>

#include "server/http/raw_client.h"

namespace kipp::http::testing {
namespace {

using Clock = std::chrono::steady_clock;

TEST(HttpLimits, BodiesAndHeadersThatAreTooLarge) {
  TestServer server({.max_header_bytes = 1000, .max_body_bytes = 100'000});
  EXPECT_EQ(server.ask(post("/echo", std::string(100'000, 'x'))).status, 200);
  const Answer large = server.ask(post("/echo", std::string(100'001, 'x')));
  EXPECT_EQ(large.status, 413);
  EXPECT_NE(large.body.find("100000 bytes"), std::string::npos) << large.body;
  EXPECT_EQ(server.ask("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFF\r\n").status, 413);
  EXPECT_EQ(server.ask(get("/echo", "A: " + std::string(2000, 'x') + "\r\n")).status, 431);
  EXPECT_EQ(server.ask(get("/echo?" + std::string(2000, 'x'))).status, 414);
}

// A client that sends all of a large body before it reads still gets the answer: it is not lost in a reset.
TEST(HttpLimits, ARefusalReachesAClientThatIsStillSending) {
  TestServer server({.max_body_bytes = 1000});
  RawClient client = server.connect();
  EXPECT_TRUE(client.send(post("/echo", std::string(20'000'000, 'x'))));
  EXPECT_EQ(client.read_answer().status, 413);
}

TEST(HttpLimits, ALargeBodyThatIsAllowed) {
  TestServer server;
  const std::string body(kIsSanitized ? 4U << 20 : 64U << 20, 'x');
  RawClient client = server.connect();
  std::thread sender([&] { client.send(post("/echo", body)); });
  const Answer answer = client.read_answer(true, 20s);
  sender.join();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.size(), body.size() + 12);
}

TEST(HttpLimits, SlowHeadersAndBodies) {
  TestServer server({.header_timeout = 150ms, .body_timeout = 150ms});
  for (const char* start :
       {"GET /echo HTTP/1.1\r\nA: ", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"}) {
    RawClient client = server.connect();
    const auto begin = Clock::now();
    client.send(start);
    std::string got;
    while (got.empty() && Clock::now() < begin + 5s) {  // a byte now and then does not help
      client.send("x");
      got = client.read_for(20ms);
    }
    EXPECT_TRUE(got.starts_with("HTTP/1.1 408 ")) << start << got;
    EXPECT_GE(Clock::now() - begin, 140ms);
    EXPECT_TRUE(eventually([&] { return server.server().statistics().open_connections == 0; })) << "keeps " << start;
  }
  EXPECT_EQ(server.refusals(408), 2U);
}

TEST(HttpLimits, IdleConnectionsAreClosedWithoutAWord) {
  TestServer server({.idle_timeout = 100ms});
  RawClient fresh = server.connect();
  RawClient used = server.connect();
  used.send(get("/echo"));
  EXPECT_EQ(used.read_answer().status, 200);
  RawClient only_empty_lines = server.connect();
  only_empty_lines.send("\r\n\r\n");
  for (RawClient* client : {&fresh, &used, &only_empty_lines}) {
    EXPECT_EQ(client->read_to_end(), "");
  }
}

TEST(HttpLimits, TooManyConnectionsAreToldSo) {
  TestServer server({.max_connections = 2});
  RawClient first = server.connect();
  RawClient second = server.connect();
  first.send(get("/echo"));
  EXPECT_EQ(first.read_answer().status, 200);
  RawClient third = server.connect();
  third.send(get("/echo"));
  const Answer refused = third.read_answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_NE(refused.body.find("too_many_connections"), std::string::npos);
  EXPECT_TRUE(third.is_at_end());
  // More of them than are told so at a time: the rest is closed, and the first two are served on.
  std::vector<RawClient> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(server.connect());
  }
  second.send(get("/echo"));
  EXPECT_EQ(second.read_answer().status, 200);
  crowd.clear();
  second.close();
  EXPECT_TRUE(eventually([&] { return server.server().statistics().open_connections == 1; }));
  EXPECT_EQ(server.ask(get("/echo")).status, 200);
}

rlim_t raise_descriptor_limit(rlim_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(wanted, limit.rlim_max));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(HttpLimits, RunningOutOfDescriptorsNeitherKillsNorSpins) {
  TestServer server;
  RawClient before = server.connect();
  before.send(get("/echo"));
  ASSERT_EQ(before.read_answer().status, 200);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  // One descriptor is left. It is the client's, so there is none for the server's side of the connection.
  Descriptor placeholder(::dup(before.descriptor()));
  const rlimit tight{.rlim_cur = static_cast<rlim_t>(placeholder.get()) + 1, .rlim_max = limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &tight);
  ::close(placeholder.release());
  RawClient unserved = server.connect();
  unserved.send(get("/echo"));
  const double begin = processor_seconds();
  std::this_thread::sleep_for(200ms);
  EXPECT_LT(processor_seconds() - begin, 0.1);
  before.send(get("/echo"));
  EXPECT_EQ(before.read_answer().status, 200);
  EXPECT_EQ(server.server().statistics().connections, 1U);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(unserved.read_answer().status, 200);  // late, but served
  // A server that cannot have what it needs says so when it starts.
  ::setrlimit(RLIMIT_NOFILE, &tight);
  const auto second = Server::start({}, [](const std::shared_ptr<Exchange>&) {});
  ::setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_FALSE(second.has_value());
}

TEST(HttpLimits, AThousandIdleConnectionsCostNothing) {
  constexpr size_t kConnections = 1000;
  if (raise_descriptor_limit(4096) < 2 * kConnections + 100) {
    GTEST_SKIP() << "the system allows too few descriptors";
  }
  TestServer server;
  std::vector<RawClient> clients;
  for (size_t i = 0; i < kConnections; ++i) {
    clients.push_back(server.connect());
  }
  ASSERT_TRUE(eventually([&] { return server.server().statistics().open_connections == kConnections; }));
  const double begin = processor_seconds();
  std::this_thread::sleep_for(200ms);
  EXPECT_LT(processor_seconds() - begin, 0.05);
  const auto asked = Clock::now();
  EXPECT_EQ(server.ask(get("/echo")).status, 200);
  EXPECT_LT(Clock::now() - asked, kIsSanitized ? 5000ms : 500ms);
  const auto stopped = Clock::now();
  EXPECT_TRUE(server.server().drain(Clock::now() + 5s));
  EXPECT_LT(Clock::now() - stopped, kIsSanitized ? 5s : 2s);
}

TEST(HttpOptions, WhatMakesNoSenseIsRefused) {
  const auto error_of = [](Options options) {
    auto server = Server::start(std::move(options), [](const std::shared_ptr<Exchange>&) {});
    return server ? std::string("started") : server.error().message;
  };
  EXPECT_NE(error_of({.host = ""}).find("neither"), std::string::npos);
  EXPECT_NE(error_of({.tls_certificate = "x"}).find("both"), std::string::npos);
  EXPECT_NE(error_of({.num_threads = 0}).find("threads"), std::string::npos);
  EXPECT_NE(error_of({.max_header_bytes = 10}).find("256"), std::string::npos);
  EXPECT_NE(error_of({.write_timeout = 0ms}).find("time"), std::string::npos);
  EXPECT_NE(error_of({.api_keys = {"a", ""}}).find("empty"), std::string::npos);
  EXPECT_NE(error_of({.host = "no such host"}).find("no such host"), std::string::npos);
  EXPECT_NE(error_of({.host = "192.0.2.1"}).find("192.0.2.1"), std::string::npos);  // not an address of this machine
  TestServer server;
  EXPECT_NE(error_of({.port = server.server().port()}).find("in use"), std::string::npos);
}

}  // namespace
}  // namespace kipp::http::testing
