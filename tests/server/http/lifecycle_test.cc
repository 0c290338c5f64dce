// Where a server listens, and how it ends: draining, its deadline, destruction under load.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "server/http/raw_client.h"

namespace kipp::http::testing {
namespace {

using Clock = std::chrono::steady_clock;

TEST(HttpDrain, IdleConnectionsCloseAtOnceAndAnswersAreFinished) {
  TestServer server;
  RawClient idle = server.connect();
  RawClient waiting = server.connect();
  RawClient streaming = server.connect();
  waiting.send(get("/held"));
  const std::shared_ptr<Exchange> whole = server.held();
  streaming.send(get("/held") + get("/echo"));
  const std::shared_ptr<Exchange> stream = server.held();
  stream->begin_stream({});
  server.server().stop_accepting();
  EXPECT_FALSE(server.connect().is_connected());
  EXPECT_TRUE(idle.is_at_end(1s));
  std::atomic<bool> is_finished{false};
  std::thread drain([&] { is_finished = server.server().drain(Clock::now() + 10s); });
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(whole->is_open());
  whole->respond({.body = "last"});
  const Answer answer = waiting.read_answer();
  EXPECT_EQ(answer.body, "last");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  stream->write("final event");
  stream->end_stream();
  EXPECT_EQ(streaming.read_answer().body, "final event");
  EXPECT_TRUE(streaming.is_at_end());  // the request behind it was not begun
  drain.join();
  EXPECT_TRUE(is_finished);
  EXPECT_EQ(server.server().statistics().requests, 2U);
}

TEST(HttpDrain, TheDeadlineEndsWhatIsLeft) {
  TestServer server;
  RawClient waiting = server.connect();
  waiting.send(get("/held"));
  const std::shared_ptr<Exchange> whole = server.held();
  RawClient streaming = server.connect();
  streaming.send(get("/held"));
  const std::shared_ptr<Exchange> stream = server.held();
  RawClient half_sent = server.connect();
  half_sent.send("GET /echo HTTP/1.1\r\n");
  std::atomic<int> closed{0};
  whole->on_closed([&] { ++closed; });
  stream->on_closed([&] { ++closed; });
  stream->begin_stream({});
  stream->write("abc");
  EXPECT_NE(streaming.read_for(50ms), "");
  const auto begin = Clock::now();
  EXPECT_FALSE(server.server().drain(Clock::now() + 100ms));
  EXPECT_LT(Clock::now() - begin, 2s);
  EXPECT_EQ(waiting.read_answer().status, 503);
  EXPECT_EQ(streaming.read_to_end(), "");  // without a last chunk
  EXPECT_EQ(half_sent.read_to_end(), "");
  EXPECT_EQ(closed, 2);
  EXPECT_FALSE(whole->is_open());
  EXPECT_EQ(server.server().statistics().open_connections, 0U);
}

TEST(HttpDrain, DestructionWithHeldExchanges) {
  auto server = std::make_unique<TestServer>();
  std::vector<RawClient> clients;
  std::vector<std::shared_ptr<Exchange>> held;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(server->connect());
    clients.back().send(get("/held"));
    held.push_back(server->held());
  }
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    while (!is_over) {
      for (size_t i = 0; i < 4; ++i) {
        held[i]->begin_stream({});
        held[i]->write("piece ");
      }
    }
  });
  std::this_thread::sleep_for(20ms);
  server->destroy_server();
  is_over = true;
  writer.join();
  for (const std::shared_ptr<Exchange>& exchange : held) {  // they outlive the server, and do nothing
    EXPECT_FALSE(exchange->is_open());
    exchange->write("x");
    exchange->respond({});
    int calls = 0;
    exchange->on_closed([&] { ++calls; });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(exchange->request().path, "/held");
  }
}

TEST(HttpDrain, StoppingIsIdempotentAndDestructionIsQuickWithoutWork) {
  const auto begin = Clock::now();
  {
    TestServer server;
    RawClient idle = server.connect();
    server.server().stop_accepting();
    server.server().stop_accepting();
    EXPECT_TRUE(server.server().drain(Clock::now() + 5s));
    EXPECT_TRUE(server.server().drain(Clock::now()));
  }
  EXPECT_LT(Clock::now() - begin, 1s);
}

class UnixSocket : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("kipp-http-{}", ::getpid());
    std::filesystem::create_directory(folder_);
    path_ = (folder_ / "s").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Options options() const { return {.host = "", .unix_socket = path_}; }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(UnixSocket, ServesItsOwnerAndIsRemoved) {
  {
    TestServer server(options());
    EXPECT_EQ(server.server().port(), 0);
    struct stat status{};
    ASSERT_EQ(::lstat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0600U);
    RawClient client = RawClient::unix_socket(path_);
    client.send(get("/echo") + get("/held"));
    EXPECT_EQ(client.read_answer().body, "GET /echo?\n");
    const std::shared_ptr<Exchange> held = server.held();
    EXPECT_EQ(held->request().peer, "unix");
    std::atomic<int> calls{0};
    held->on_closed([&] { ++calls; });
    client.close();
    EXPECT_TRUE(eventually([&] { return calls == 1; }));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocket, ALeftoverIsReplacedAndALiveOneIsNot) {
  {
    auto first = Listener::unix_socket(path_);
    ASSERT_TRUE(first.has_value());
    EXPECT_FALSE(Listener::unix_socket(path_).has_value());
    std::filesystem::rename(path_, path_ + "2");  // as a process that was killed leaves it
  }
  std::filesystem::rename(path_ + "2", path_);
  TestServer server(options());
  RawClient client = RawClient::unix_socket(path_);
  client.send(get("/echo"));
  EXPECT_EQ(client.read_answer().status, 200);
  // A file that took its place is left alone.
  std::filesystem::remove(path_);
  std::ofstream(path_) << "not a socket";
  server.server().stop_accepting();
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
}

TEST_F(UnixSocket, WhatIsNotASocketIsRefused) {
  std::ofstream(path_) << "a file";
  const auto over_file = Listener::unix_socket(path_);
  ASSERT_FALSE(over_file.has_value());
  EXPECT_NE(over_file.error().message.find("not a socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
  EXPECT_FALSE(Listener::unix_socket(path_ + std::string(200, 'x')).has_value());
  EXPECT_FALSE(Listener::unix_socket((folder_ / "no" / "such" / "folder").string()).has_value());
}

TEST(HttpAddresses, Version6AndNames) {
  auto server = Server::start({.host = "[::1]"}, [](const std::shared_ptr<Exchange>& e) { e->respond({}); });
  if (!server) {
    GTEST_SKIP() << "no IPv6 here: " << server.error().message;
  }
  RawClient client = RawClient::tcp6((*server)->port());
  client.send(get("/"));
  EXPECT_EQ(client.read_answer().status, 200);
  TestServer all({.host = "::"});
  EXPECT_EQ(all.ask(get("/echo")).status, 200);  // of version 4, too
  TestServer named({.host = "localhost"});
  EXPECT_NE(named.server().port(), 0);
}

}  // namespace
}  // namespace kipp::http::testing
