// Who goes away, who fails and who has to come back later: counted in steps and rows of the backend.
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>

#include <fmt/format.h>

#include "server/api/api_fixture.h"
#include "server/sse.h"

namespace kipp::testing {
namespace {

using openai::testing::at;
using ::testing::HasSubstr;

constexpr size_t kLongAnswer = 400;

class Cancel : public ApiTest {
 protected:
  explicit Cancel(int32_t max_waiting = 256) : ApiTest(400, 16, max_waiting) {}

  // Of two prompts the first fails at once, while the second would take many steps. leaves: the client, with its
  // answer.
  ApiAnswer ask_what_fails(bool stream, bool leaves) {
    endless(5000, 700, "\"n\":1");
    backend().add({.prompt = {7}, .choices = {{8, 9}}, .breaks_at = 0});
    std::string items;
    for (int32_t id = 5000; id < 5700; ++id) items += (items.empty() ? "" : ",") + std::to_string(id);
    backend().close_gate(leaves ? 0 : 1);  // it has to be there until it may leave
    const auto exchange =
        send("/v1/completions",
             fmt::format(R"({{"prompt":[[7],[{}]],"temperature":0,"max_tokens":400,"stream":{}}})", items, stream));
    exchange->wait_until_taken();
    if (leaves) exchange->close_at_end();
    backend().open_gate();
    const ApiAnswer answer = read(*exchange);
    EXPECT_EQ(answer.status, 500);
    return answer;
  }

  // A client that leaves before the service has its request is another matter: wait until it does.
  static void leave(RecordedExchange& exchange) {
    exchange.wait_until_taken();
    exchange.close();
  }

  // A body whose prompt is `count` ids from `first` on and whose answer goes on and on.
  std::string endless(int32_t first, size_t count, std::string_view fields) {
    std::vector<int32_t> prompt;
    std::string items;
    for (size_t i = 0; i < count; ++i) {
      prompt.push_back(first + static_cast<int32_t>(i));
      items += (i == 0 ? "" : ",") + std::to_string(prompt.back());
    }
    backend().add({.prompt = prompt, .choices = {std::vector<int32_t>(kLongAnswer, 1000)}});
    return fmt::format(R"({{"prompt":[{}],"temperature":0,"max_tokens":400,{}}})", items, fields);
  }
};

TEST_F(Cancel, AClientThatLeavesEndsItsAnswerWithTheStepThatRuns) {
  for (const char* stream : {"true", "false"}) {
    const uint64_t before = backend().num_steps();
    backend().close_gate(20);
    const auto exchange = send("/v1/completions", endless(2000, 10, fmt::format(R"("stream":{})", stream)));
    backend().wait_at_gate();
    EXPECT_EQ(backend().num_steps() - before, 20U);
    leave(*exchange);
    backend().open_gate();
    expect_idle();
    EXPECT_EQ(backend().num_steps() - before, 21U) << "only the step that stood at the gate";
  }
}

TEST_F(Cancel, AClientThatLeavesDuringThePrefillEndsIt) {
  backend().close_gate(2);
  const auto exchange = send("/v1/completions", endless(2000, 900, R"("stream":true)"));
  backend().wait_at_gate();
  leave(*exchange);
  backend().open_gate();
  expect_idle();
  EXPECT_EQ(backend().num_prompt_rows(), 3U * 64U) << "of 900";
}

TEST_F(Cancel, AClientThatLeavesWhileItWaitsIsNeverServed) {
  backend().close_gate();
  const auto running = send("/v1/completions", endless(2000, 10, R"("n":16)"));
  backend().wait_at_gate();
  const auto waiting = send("/v1/completions", endless(40'000, 10, R"("n":1)"));
  leave(*waiting);
  leave(*running);
  backend().open_gate();
  expect_idle();
  EXPECT_LE(backend().num_prompt_rows(), 10U);
}

TEST_F(Cancel, OthersGoOnWithTheirOwnText) {
  script_prompt("stay", {" one two three four five six seven eight nine ten"});
  backend().close_gate(4);
  const auto leaves = send("/v1/completions", endless(2000, 10, R"("stream":true)"));
  const auto stays = send("/v1/completions", R"({"prompt":"stay","temperature":0,"max_tokens":50})");
  backend().wait_at_gate();
  leave(*leaves);
  backend().open_gate();
  EXPECT_EQ(read(*stays).said().content, " one two three four five six seven eight nine ten");
}

TEST_F(Cancel, APromptThatFailsEndsTheOthersOfItsRequest) {
  for (const bool stream : {false, true}) {
    const uint64_t before = backend().num_prompt_rows();
    const ApiAnswer answer = ask_what_fails(stream, false);
    EXPECT_EQ(at(answer.json, "error", "code").as_string(), "numerical");
    expect_idle();
    EXPECT_LE(backend().num_prompt_rows() - before, 2U * 64U) << "of 701: the rest is nobody's";
  }
}

TEST_F(Cancel, WhoLeavesWithAnErrorWasNotCancelled) {
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe(ends.data()), 0);
  log_to(ends[1]);
  ask_what_fails(false, true);
  std::string line;
  std::array<char, 4096> buffer;
  while (!line.ends_with('\n')) {
    const ssize_t count = ::read(ends[0], buffer.data(), buffer.size());
    ASSERT_GT(count, 0);
    line.append(buffer.data(), static_cast<size_t>(count));
  }
  EXPECT_THAT(line, HasSubstr(R"("event":"request_failed")"));
  EXPECT_THAT(line, HasSubstr(R"("error":"numerical")"));
  for (const int end : ends) ::close(end);
}

TEST_F(Cancel, AFailureInAStreamIsAnEventAndItsEnd) {
  backend().add({.prompt = {7}, .choices = {{8, 9, 10, 11}}, .breaks_at = 3});
  const auto exchange =
      send("/v1/completions", R"({"prompt":[7],"temperature":0,"max_tokens":40,"stream":true,"n":2})");
  EXPECT_EQ(exchange->wait().status, 200);
  std::string text;
  for (const std::string& piece : exchange->pieces()) text += piece;
  const std::vector<std::string> events = openai::testing::event_data(text);
  EXPECT_THAT(events.back(), HasSubstr(R"("code":"numerical")"));
}

class FewMayWait : public Cancel {
 protected:
  FewMayWait() : Cancel(20) {}
  std::string one(std::string_view fields = R"("n":1)") { return endless(2000, 3, fields); }
};

TEST_F(FewMayWait, ChoicesAreCounted) {
  backend().close_gate();
  const auto first = send("/v1/completions", one(R"("n":12)"));
  backend().wait_at_gate();
  EXPECT_EQ(service_->stats().num_waiting_choices, 12);
  EXPECT_EQ(service_->stats().num_waiting, 1);
  const ApiAnswer refused = ask("/v1/completions", one(R"("n":9)"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(at(refused.json, "error", "message").as_string(), HasSubstr("12 answers wait to begin and 9 more"));
  const auto second = send("/v1/completions", one(R"("n":8)"));
  leave(*first);
  leave(*second);
  backend().open_gate();
}

TEST_F(FewMayWait, WhoHasLeftSaysNothingAboutTheTimeThatAnswersTake) {
  for (int i = 0; i < 60; ++i) {  // they last for a moment each
    backend().close_gate();
    const auto exchange = send("/v1/completions", one());
    backend().wait_at_gate();
    leave(*exchange);
    backend().open_gate();
    expect_idle();
  }
  backend().close_gate();
  std::vector<std::shared_ptr<RecordedExchange>> waiting;
  waiting.reserve(20);
  for (int i = 0; i < 20; ++i) waiting.push_back(send("/v1/completions", one()));
  while (service_->stats().num_waiting < 20) std::this_thread::yield();
  const auto refused = send("/v1/completions", one());
  const http::Response response = refused->wait();
  EXPECT_EQ(response.status, 429);
  ASSERT_FALSE(response.headers.empty());
  EXPECT_EQ(response.headers.front().name, "Retry-After");
  EXPECT_EQ(response.headers.front().value, "20") << "a second each, as nothing else is known";
  for (const auto& exchange : waiting) leave(*exchange);
  backend().open_gate();
}

}  // namespace
}  // namespace kipp::testing
