// What the log says of a request, by what became of it; and what it never says.
#include "server/api/transaction.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace kipp::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The server's side, as far as a transaction sees it.
class FakeExchange final : public http::Exchange {
 public:
  FakeExchange(http::Request request, std::vector<http::Response>& sent) : request_(std::move(request)), sent_(sent) {}
  const http::Request& request() const override { return request_; }
  void respond(http::Response response) override { sent_.push_back(std::move(response)); }
  void begin_stream(http::Response head) override { sent_.push_back(std::move(head)); }
  void write(std::string piece) override { sent_.back().body += piece; }
  void end_stream() override {}
  size_t queued_bytes() const override { return 0; }
  bool is_open() const override { return true; }
  void on_closed(std::function<void()>) override {}

 private:
  http::Request request_;
  std::vector<http::Response>& sent_;
};

class TransactionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    make({});
  }
  void TearDown() override {
    logger_.reset();
    ::close(ends_[0]);
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  struct Wishes {
    bool log_prompts = false;
    log::Level level = log::Level::kInfo;
  };
  void make(Wishes wishes) {
    logger_ = std::make_unique<log::Logger>(
        log::Options{.format = log::Format::kJson, .level = wishes.level, .descriptor = ends_[1]});
    observers_ =
        std::make_shared<Observers>(logger_.get(), wishes.log_prompts, std::vector<KeyInfo>{{"alice", 1}, {"bob", 0}});
  }
  std::unique_ptr<Transaction> begin(std::string method = "POST", int32_t key = 0) {
    http::Request request{.method = std::move(method),
                          .path = "/v1/completions",
                          .query = {},
                          .headers = {},
                          .body = "{\"prompt\":\"a secret\"}",
                          .peer = "127.0.0.1:5",
                          .id = "req-7",
                          .key_index = key,
                          .received = std::chrono::steady_clock::now()};
    return std::make_unique<Transaction>(std::make_shared<FakeExchange>(std::move(request), sent_), observers_);
  }
  // All that was logged; the logger is gone then.
  std::string logged() {
    logger_.reset();
    ::close(std::exchange(ends_[1], -1));
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t count = 0; (count = ::read(ends_[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    return text;
  }
  Json line() {
    const std::string text = logged();
    EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
    return parse_json(text).value_or(Json());
  }
  static std::string field(const Json& json, const char* name) {
    const Json* value = json.find(name);
    return value == nullptr ? "absent" : value->is_string() ? value->as_string() : write_json(*value);
  }

  std::array<int, 2> ends_ = {-1, -1};
  std::unique_ptr<log::Logger> logger_;
  std::shared_ptr<Observers> observers_;
  std::vector<http::Response> sent_;
};

const openai::ApiError kQuoting{.code = "invalid_value", .param = "prompt", .message = "found \"a secret\""};

TEST_F(TransactionTest, AGenerationThatFinished) {
  {
    auto transaction = begin();
    transaction->start_generation({.id = "cmpl-1", .stream = true, .prompt_tokens = 4});
    transaction->generation()->generated_tokens = 3;
    transaction->generation()->cached_tokens = 2;
    transaction->generation()->queue_ms = 1.5;
    transaction->generation()->finish_reasons = {"stop"};
    transaction->begin_stream({.content_type = "text/event-stream"});
    transaction->write("data");
    transaction->end_stream();
  }
  const Json json = line();
  EXPECT_EQ(field(json, "event"), "request_finished");
  EXPECT_EQ(field(json, "request_id"), "req-7");
  EXPECT_EQ(field(json, "key"), "alice");
  EXPECT_EQ(field(json, "path"), "/v1/completions");
  EXPECT_EQ(field(json, "status"), "200");
  EXPECT_EQ(field(json, "id"), "cmpl-1");
  EXPECT_EQ(field(json, "stream"), "true");
  EXPECT_EQ(field(json, "prompt_tokens"), "4");
  EXPECT_EQ(field(json, "cached_tokens"), "2");
  EXPECT_EQ(field(json, "generated_tokens"), "3");
  EXPECT_EQ(field(json, "finish_reasons"), "[\"stop\"]");
  EXPECT_EQ(field(json, "queue_ms"), "1.500");
  EXPECT_EQ(field(json, "first_token_ms"), "null");
  EXPECT_GE(json.find("total_ms")->as_double().value_or(-1), 0.0);
  EXPECT_EQ(field(json, "error"), "absent");
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(sent_[0].body, "data");
}

TEST_F(TransactionTest, ARefusalIsCountedAndSaysNothingOfThePrompt) {
  begin()->refuse(kQuoting, {{"Retry-After", "7"}});
  EXPECT_EQ(observers_->refusals.snapshot().at({"invalid_value", 400}), 1U);
  EXPECT_EQ(sent_.at(0).status, 400);
  EXPECT_EQ(sent_.at(0).headers.at(0).value, "7");
  EXPECT_THAT(sent_.at(0).body, HasSubstr("a secret")) << "the client is told";
  const std::string text = logged();
  EXPECT_THAT(text, HasSubstr("\"event\":\"request_refused\""));
  EXPECT_THAT(text, HasSubstr("\"error\":\"invalid_value\""));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
}

TEST_F(TransactionTest, PromptsAreLoggedWhereTheyAreWanted) {
  make({.log_prompts = true});
  begin()->refuse(kQuoting);
  const Json json = line();
  EXPECT_EQ(field(json, "body"), "{\"prompt\":\"a secret\"}");
  EXPECT_EQ(field(json, "error_message"), "found \"a secret\"");
}

TEST_F(TransactionTest, FailuresAreErrorsAndLeavingIsNone) {
  begin()->refuse({.status = 500, .code = "internal"});
  begin();  // dropped without an answer
  {
    auto stream = begin();
    stream->begin_stream({});
    stream->note_error({.status = 500, .code = "numerical"});
    stream->end_stream();
  }
  {
    auto left = begin("POST", -1);
    left->start_generation({.id = "cmpl-2"});
    left->generation()->was_cancelled = true;
  }
  const std::string text = logged();
  std::vector<std::string> events;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    const Json json = parse_json(text.substr(begin, text.find('\n', begin) - begin)).value();
    events.push_back(field(json, "event") + " " + field(json, "level") + " " + field(json, "status") + " " +
                     field(json, "key") + " " + field(json, "error"));
  }
  EXPECT_THAT(events, ::testing::ElementsAre(
                          "request_failed error 500 alice internal", "request_failed error null alice absent",
                          "request_failed error 200 alice numerical", "request_cancelled info null absent absent"));
}

TEST_F(TransactionTest, QuestionsAboutTheServerAreForDebugging) {
  begin("GET")->respond({});
  EXPECT_EQ(logged(), "");
}

TEST_F(TransactionTest, AQuestionThatIsRefusedIsLogged) {
  begin("GET")->refuse({.status = 404, .code = "not_found"});
  EXPECT_EQ(field(line(), "event"), "request_refused");
}

TEST_F(TransactionTest, ThePlaceIsFreeBeforeTheClientHasItsAnswer) {
  auto first = begin();
  auto second = begin();
  ASSERT_TRUE(first->take_slot());
  EXPECT_FALSE(second->take_slot());
  EXPECT_EQ(sent_.at(0).status, 429);
  EXPECT_EQ(sent_.at(0).headers.at(0).name, "Retry-After");
  EXPECT_THAT(sent_.at(0).body, HasSubstr("1 request running"));
  first->respond({});
  auto third = begin();
  EXPECT_TRUE(third->take_slot());
  third->begin_stream({});
  auto fourth = begin();
  EXPECT_FALSE(fourth->take_slot());
  third->end_stream();
  EXPECT_TRUE(begin()->take_slot());
  auto fifth = begin();
  EXPECT_TRUE(fifth->take_slot()) << "dropped: given back";
  EXPECT_TRUE(begin("POST", 1)->take_slot());
  EXPECT_EQ(observers_->refusals.snapshot().at({"key_limit", 429}), 2U);
}

}  // namespace
}  // namespace kipp::api
