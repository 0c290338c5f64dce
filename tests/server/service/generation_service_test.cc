// Requests from many threads: each gets its own answer, every end comes, and nothing is left.
#include "server/service/generation_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "engine/twin.h"

namespace kipp {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

struct Answer {
  std::vector<int32_t> ids;
  std::vector<BatchEnd> ends;
  std::thread::id thread;
};

// A request's owner that can be waited for.
class Waiter final : public BatchSink {
 public:
  explicit Waiter(std::function<void()> on_first = {}) : on_first_(std::move(on_first)) {}

  void on_prompt_logprobs(std::span<const SampledToken>) override {}
  bool on_token(const BatchToken& token) override {
    answer_.ids.push_back(token.token.id);
    if (answer_.ids.size() == 1 && on_first_) on_first_();
    return true;
  }
  void on_end(const BatchEnd& end) override { answer_.ends.push_back(end); }
  void on_finished(const RequestInfo&) override {
    answer_.thread = std::this_thread::get_id();
    done_.set_value(answer_);
  }
  Answer wait() { return done_.get_future().get(); }

 private:
  std::function<void()> on_first_;
  Answer answer_;
  std::promise<Answer> done_;
};

BatchRequest request_of(uint64_t seed, int32_t max_tokens = 8) {
  return {.prompt_ids = draw_tokens(5 + seed % 50, seed), .seed = seed, .max_tokens = max_tokens};
}

class GenerationServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ModelOptions options = twin_options();
    options.backend = "cpu";
    options.num_blocks = 60;
    model_ = open_twin(options);
    ASSERT_NE(model_, nullptr);
    start({});
  }
  void start(const ServiceOptions& options) {
    service_.reset();
    service_ = GenerationService::start(*model_, options).value();
  }
  std::shared_ptr<Waiter> submit(BatchRequest request) {
    auto waiter = std::make_shared<Waiter>();
    const auto id = offer(std::move(request), waiter);
    EXPECT_TRUE(id.has_value()) << id.error().error.message;
    return waiter;
  }
  tl::expected<uint64_t, Refusal> offer(BatchRequest request, std::shared_ptr<BatchSink> sink) {
    std::vector<GenerationService::Order> orders;
    orders.push_back({std::move(request), std::move(sink)});
    return service_->submit(std::move(orders)).map([](const std::vector<uint64_t>& ids) { return ids.front(); });
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<GenerationService> service_;
};

TEST_F(GenerationServiceTest, ManyThreadsGetWhatOneGets) {
  constexpr uint64_t kRequests = 24;
  std::vector<std::vector<int32_t>> alone;
  for (uint64_t seed = 0; seed < kRequests; ++seed) alone.push_back(submit(request_of(seed))->wait().ids);
  std::vector<std::future<std::vector<int32_t>>> together;
  for (uint64_t seed = 0; seed < kRequests; ++seed) {
    together.push_back(std::async(std::launch::async, [&, seed] { return submit(request_of(seed))->wait().ids; }));
  }
  for (uint64_t seed = 0; seed < kRequests; ++seed) EXPECT_EQ(together[seed].get(), alone[seed]);
  EXPECT_TRUE(service_->drain(steady_clock::now() + seconds(60)));
  const ServiceStats stats = service_->stats();
  EXPECT_EQ(stats.num_taken, 2 * kRequests);
  EXPECT_EQ(stats.num_requests, 0);
  EXPECT_EQ(stats.num_waiting, 0);
}

TEST_F(GenerationServiceTest, CancellingEndsItWithinAStep) {
  uint64_t id = 0;
  std::promise<void> began;
  auto waiter = std::make_shared<Waiter>([&] { began.set_value(); });
  id = offer(request_of(3, 400), waiter).value();
  began.get_future().wait();
  service_->cancel(id);
  service_->cancel(id + 1000);
  const Answer answer = waiter->wait();
  ASSERT_EQ(answer.ends.size(), 1U);
  EXPECT_EQ(answer.ends[0].reason, FinishReason::kCancelled);
  EXPECT_LT(answer.ids.size(), 400U);
  EXPECT_EQ(submit(request_of(4))->wait().ids.size(), 8U) << "the service goes on";
}

TEST_F(GenerationServiceTest, ASinkMayCancelFromWithin) {
  uint64_t id = 0;
  std::promise<void> known;
  std::shared_future<void> is_known = known.get_future().share();
  auto waiter = std::make_shared<Waiter>([&, is_known] {
    is_known.wait();
    service_->cancel(id);
  });
  id = offer(request_of(3, 400), waiter).value();
  known.set_value();
  EXPECT_EQ(waiter->wait().ends.at(0).reason, FinishReason::kCancelled);
}

TEST_F(GenerationServiceTest, TooManyThatWaitAreRefusedWithATimeToComeBack) {
  start({.max_waiting = 2});
  std::vector<std::shared_ptr<Waiter>> taken;
  std::optional<Refusal> refusal;
  for (uint64_t seed = 0; seed < 400 && !refusal; ++seed) {
    auto waiter = std::make_shared<Waiter>();
    const auto id = offer(request_of(seed, 40), waiter);
    if (id) {
      taken.push_back(waiter);
    } else {
      refusal = id.error();
    }
  }
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->kind, Refusal::Kind::kBusy);
  EXPECT_GE(refusal->retry_after_seconds, 1);
  EXPECT_THAT(refusal->error.message, ::testing::HasSubstr("at most 2 may"));
  for (const auto& waiter : taken) EXPECT_EQ(waiter->wait().ids.size(), 40U);
  EXPECT_EQ(service_->stats().num_refused_busy, 1U);
  EXPECT_EQ(submit(request_of(1))->wait().ids.size(), 8U);
}

TEST_F(GenerationServiceTest, SeveralAreTakenTogetherOrNotAtAll) {
  std::vector<GenerationService::Order> orders;
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    waiters.push_back(std::make_shared<Waiter>());
    orders.push_back({request_of(seed), waiters.back()});
  }
  auto broken = orders;
  broken[1].request.prompt_ids = {};
  EXPECT_FALSE(service_->submit(broken).has_value());
  EXPECT_EQ(service_->stats().num_taken, 0U);
  EXPECT_EQ(service_->submit(orders)->size(), 3U);
  for (const auto& waiter : waiters) EXPECT_EQ(waiter->wait().ids.size(), 8U);
}

TEST_F(GenerationServiceTest, WhatCannotRunIsRefusedAtOnce) {
  const auto refused = offer({.prompt_ids = {}}, std::make_shared<Waiter>());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, Refusal::Kind::kInvalid);
  EXPECT_THAT(refused.error().error.message, ::testing::HasSubstr("prompt is empty"));
}

TEST_F(GenerationServiceTest, DrainingLetsFinishWhatRunsAndTakesNothingNew) {
  const auto running = submit(request_of(1, 30));
  auto drained = std::async(std::launch::async, [&] { return service_->drain(steady_clock::now() + seconds(60)); });
  while (true) {
    const auto late = offer(request_of(2, 1), std::make_shared<Waiter>());
    if (!late && late.error().kind == Refusal::Kind::kStopping) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(drained.get());
  EXPECT_EQ(running->wait().ids.size(), 30U);
}

TEST_F(GenerationServiceTest, TheDeadlineCancelsTheRest) {
  const auto running = submit(request_of(1, 450));
  EXPECT_FALSE(service_->drain(steady_clock::now()));
  EXPECT_EQ(running->wait().ends.at(0).reason, FinishReason::kCancelled);
}

TEST_F(GenerationServiceTest, ItsEndIsTheirs) {
  std::vector<std::shared_ptr<Waiter>> running;
  for (uint64_t seed = 0; seed < 5; ++seed) running.push_back(submit(request_of(seed, 450)));
  service_.reset();
  for (const auto& waiter : running) EXPECT_EQ(waiter->wait().ends.at(0).reason, FinishReason::kCancelled);
  EXPECT_EQ(model_->num_free_blocks(), 60);
}

}  // namespace
}  // namespace kipp
