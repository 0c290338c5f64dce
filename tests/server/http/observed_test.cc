// What the server counts and tells of the requests that no handler sees.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "server/http/raw_client.h"

namespace kipp::http::testing {
namespace {

class Refusals {
 public:
  std::function<void(const RefusedRequest&)> listener() {
    return [this](const RefusedRequest& refused) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(std::to_string(refused.status) + " " + std::string(refused.code) + " " +
                       std::string(refused.method) + " " + std::string(refused.path) + " " +
                       std::string(refused.request_id));
      has_peers_ = has_peers_ && refused.peer.starts_with("127.0.0.1:");
    };
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool has_peers() const { return has_peers_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  bool has_peers_ = true;
};

TEST(HttpObserved, RefusalsAreTold) {
  Refusals refusals;
  {
    TestServer server({.max_body_bytes = 4, .api_keys = {"k"}, .on_refusal = refusals.listener()});
    EXPECT_EQ(server.ask(get("/echo", "X-Request-Id: mine\r\n")).status, 401);
    EXPECT_EQ(server.ask("GARBAGE\r\n\r\n").status, 400);
    const std::string large = "POST /echo HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nX-Request-Id: big\r\n";
    EXPECT_EQ(server.ask(large + "Content-Length: 5\r\n\r\n12345").status, 413);
    EXPECT_EQ(server.ask(get("/echo", "X-Api-Key: k\r\n")).status, 200) << "a handler's, and no refusal";
  }
  const std::vector<std::string> lines = refusals.lines();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "401 invalid_api_key GET /echo mine");
  EXPECT_TRUE(lines[1].starts_with("400 ")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("413 ") && lines[2].ends_with(" POST /echo big")) << lines[2];
  EXPECT_TRUE(refusals.has_peers());
}

TEST(HttpObserved, EveryAnswerIsCountedByItsStatus) {
  TestServer server({.api_keys = {"k"}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(server.ask(get("/echo", "X-Api-Key: k\r\n")).status, 200);
  EXPECT_EQ(server.ask(get("/echo")).status, 401);
  EXPECT_EQ(server.ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n").status, 204);
  const std::map<int, uint64_t> expected = {{200, 3}, {204, 1}, {401, 1}};
  EXPECT_EQ(server.server().statistics().responses, expected);
}

}  // namespace
}  // namespace kipp::http::testing
