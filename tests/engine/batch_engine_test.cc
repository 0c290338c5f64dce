// Many requests at once give each what it gets alone, and every end leaves nothing behind.
#include "engine/batch_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/recording_backend.h"
#include "engine/twin.h"
#include "sampling/logprobs.h"

namespace kipp {
namespace {

using ::testing::HasSubstr;

// What a sink was told of a choice.
struct Heard {
  std::vector<int32_t> ids;
  std::vector<SampledToken> tokens;
  std::string text;
  std::optional<BatchEnd> end;
};

class Listener final : public BatchSink {
 public:
  void on_prompt_logprobs(std::span<const SampledToken> tokens) override {
    EXPECT_TRUE(choices.empty()) << "the prompt's come first";
    prompt_logprobs.assign(tokens.begin(), tokens.end());
  }
  bool on_token(const BatchToken& token) override {
    Heard& choice = choices[token.choice];
    EXPECT_FALSE(choice.end) << "nothing comes after the end";
    choice.ids.push_back(token.token.id);
    choice.tokens.push_back(token.token);
    choice.text += token.text;
    return choice.ids.size() < most_tokens;
  }
  void on_end(const BatchEnd& end) override {
    Heard& choice = choices[end.choice];
    EXPECT_FALSE(choice.end) << "one end each";
    choice.text += end.last_text;
    choice.end = end;
  }
  void on_finished(const RequestInfo& finished) override {
    EXPECT_FALSE(info);
    info = finished;
  }

  size_t most_tokens = SIZE_MAX;  // then the sink ends a choice
  std::map<int32_t, Heard> choices;
  std::vector<SampledToken> prompt_logprobs;
  std::optional<RequestInfo> info;
};

struct Running {
  BatchRequest request;
  std::shared_ptr<Listener> listener = std::make_shared<Listener>();
  uint64_t id = 0;
};

void run_all(BatchEngine& engine) {
  while (engine.advance()) {
  }
}

// Requests of every kind; many begin alike.
BatchRequest draw_request(std::mt19937& random, uint64_t seed) {
  const auto below = [&random](uint32_t bound) { return static_cast<int32_t>(random() % bound); };
  BatchRequest request;
  request.prompt_ids = draw_tokens(static_cast<size_t>(below(3) * 40), 100 + static_cast<uint64_t>(below(2)));
  const std::vector<int32_t> own = draw_tokens(static_cast<size_t>(1 + below(40)), seed);
  request.prompt_ids.insert(request.prompt_ids.end(), own.begin(), own.end());
  request.sampling.temperature = static_cast<float>(below(3)) * 0.7F;
  request.sampling.top_k = below(2) * 50;
  if (below(4) == 0) request.sampling.repetition_penalty = 1.3F;
  if (below(4) == 0) request.sampling.presence_penalty = 0.5F;
  request.seed = seed;
  request.num_choices = 1 + below(3);
  request.max_tokens = 1 + below(16);
  if (below(2) == 0) request.min_tokens = below(4);
  request.num_logprobs = below(3) - 1;
  request.priority = below(2);
  if (below(4) == 0) {
    request.stop = {"a", "th", "0"};
    request.min_tokens = 0;  // which generate() does not know
  }
  if (below(3) == 0) request.cache_salt = "tenant";
  return request;
}

class BatchEngineTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(alone_, nullptr); }

  std::unique_ptr<Model> open(int32_t num_blocks) {
    ModelOptions options = twin_options();
    options.num_blocks = num_blocks;
    options.placement_seed = 5;
    return open_twin(options);
  }

  Result<GenerateResult> generate_alone(const BatchRequest& request, int32_t choice,
                                        std::vector<SampledToken>& tokens) {
    GenerateOptions options{.sampling = request.sampling,
                            .seed = request.seed,
                            .choice = choice,
                            .max_tokens = request.max_tokens,
                            .num_logprobs = request.num_logprobs,
                            .stop_token_ids = request.stop_token_ids,
                            .stop = request.stop};
    Session session = alone_->new_session().value();
    return generate(*alone_, session, request.prompt_ids, options, [&](const GenerateStep* step) {
      if (step != nullptr) tokens.push_back(step->token);
      return true;
    });
  }

  void expect_as_alone(const Running& running) {
    for (int32_t c = 0; c < running.request.num_choices; ++c) {
      std::vector<SampledToken> tokens;
      const auto expected = generate_alone(running.request, c, tokens);
      ASSERT_TRUE(expected.has_value()) << expected.error().message;
      const Heard& heard = running.listener->choices[c];
      ASSERT_TRUE(heard.end.has_value());
      EXPECT_FALSE(heard.end->error);
      EXPECT_EQ(heard.ids, expected->ids);
      EXPECT_EQ(heard.text, expected->text);
      EXPECT_EQ(heard.end->reason, expected->finish_reason);
      EXPECT_EQ(heard.end->stop_string, expected->stop_string);
      EXPECT_EQ(heard.end->context_full, expected->context_full);
      ASSERT_EQ(heard.tokens.size(), tokens.size());
      for (size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(heard.tokens[i].logprob, tokens[i].logprob);
        EXPECT_EQ(heard.tokens[i].top_logprobs, tokens[i].top_logprobs);
      }
    }
    ASSERT_TRUE(running.listener->info.has_value());
    EXPECT_EQ(running.listener->info->num_prompt_tokens, static_cast<int32_t>(running.request.prompt_ids.size()));
  }

  // Requests that arrive while others run.
  void expect_all_as_alone(BatchEngine& engine, uint32_t seed, int32_t count) {
    std::mt19937 random(seed);
    std::vector<Running> all;
    for (int32_t i = 0; i < count; ++i) {
      Running& running = all.emplace_back();
      running.request = draw_request(random, seed * 1000 + static_cast<uint64_t>(i));
      running.id = static_cast<uint64_t>(i);
      const auto added = engine.add(running.id, running.request, running.listener);
      ASSERT_TRUE(added.has_value()) << added.error().message;
      for (uint32_t turn = random() % 4; turn > 0; --turn) engine.advance();
      ASSERT_TRUE(engine.check_invariants().has_value());
    }
    run_all(engine);
    for (const Running& running : all) expect_as_alone(running);
    EXPECT_EQ(engine.num_requests(), 0U);
    EXPECT_EQ(engine.stats().num_blocks_used, 0);
  }

  std::unique_ptr<Model> alone_ = open_twin();
};

TEST_F(BatchEngineTest, EachGetsWhatItGetsAlone) {
  for (const bool look_ahead : {false, true}) {
    const auto model = open(200);
    const auto engine = BatchEngine::create(*model, {.look_ahead = look_ahead}).value();
    expect_all_as_alone(*engine, 1, 8);
    EXPECT_GT(engine->stats().num_prefix_hit_tokens, 0U);
  }
}

TEST_F(BatchEngineTest, AlsoWhereBlocksRunOut) {
  for (const bool look_ahead : {false, true}) {
    const auto model = open(6);
    const auto engine = BatchEngine::create(*model, {.look_ahead = look_ahead}).value();
    expect_all_as_alone(*engine, 2, 8);
    EXPECT_GT(engine->stats().num_preemptions, 0U);
  }
}

TEST_F(BatchEngineTest, AStopTokenEndsAChoiceUnlessItComesTooEarly) {
  BatchRequest request{.prompt_ids = draw_tokens(5, 1), .sampling = with_temperature(0.0F), .max_tokens = 6};
  std::vector<SampledToken> tokens;
  const std::vector<int32_t> ids = generate_alone(request, 0, tokens).value().ids;
  request.stop_token_ids = {ids[2]};
  ASSERT_EQ(std::count(ids.begin(), ids.begin() + 3, ids[2]), 1);
  const auto model = open(20);
  const auto engine = BatchEngine::create(*model).value();
  const auto stopped = std::make_shared<Listener>();
  ASSERT_TRUE(engine->add(1, request, stopped).has_value());
  request.min_tokens = 4;
  const auto later = std::make_shared<Listener>();
  ASSERT_TRUE(engine->add(2, request, later).has_value());
  run_all(*engine);
  EXPECT_EQ(stopped->choices[0].ids, std::vector(ids.begin(), ids.begin() + 2));
  EXPECT_EQ(stopped->choices[0].end->reason, FinishReason::kStop);
  EXPECT_EQ(stopped->choices[0].end->stop_token, ids[2]);
  EXPECT_GE(later->choices[0].ids.size(), 4U);
  EXPECT_THAT(std::vector(later->choices[0].ids.begin(), later->choices[0].ids.begin() + 4),
              ::testing::Not(::testing::Contains(ids[2])));
}

TEST_F(BatchEngineTest, ASinkEndsAChoiceAndStopStringsCountFromTheLeastLengthOn) {
  BatchRequest request{.prompt_ids = draw_tokens(5, 1), .num_choices = 2, .max_tokens = 9};
  const auto model = open(20);
  const auto engine = BatchEngine::create(*model).value();
  const auto listener = std::make_shared<Listener>();
  listener->most_tokens = 3;
  ASSERT_TRUE(engine->add(1, request, listener).has_value());
  run_all(*engine);
  for (int32_t c = 0; c < 2; ++c) {
    EXPECT_EQ(listener->choices[c].ids.size(), 3U);
    EXPECT_EQ(listener->choices[c].end->reason, FinishReason::kStop);
  }
  std::vector<SampledToken> tokens;
  const GenerateResult whole = generate_alone(request, 0, tokens).value();
  const std::string first = alone_->tokenizer().decode(std::span(whole.ids).first(1), true).value();
  ASSERT_FALSE(first.empty());
  request.stop = {first};
  request.min_tokens = 2;
  const auto later = std::make_shared<Listener>();
  ASSERT_TRUE(engine->add(2, request, later).has_value());
  run_all(*engine);
  EXPECT_GT(later->choices[0].ids.size(), 2U);
  EXPECT_EQ(later->choices[0].text.substr(0, first.size()), first);
}

TEST_F(BatchEngineTest, ThePromptsLogProbabilitiesAreThoseOfItsLogits) {
  const std::vector<int32_t> prompt = draw_tokens(70, 3);
  const std::vector<Logits> logits = fresh_logits(prompt);
  const int32_t num_tokens = alone_->tokenizer().num_tokens();
  const auto model = open(20);
  for (const bool look_ahead : {false, true}) {
    const auto engine = BatchEngine::create(*model, {.look_ahead = look_ahead}).value();
    for (int32_t again = 0; again < 2; ++again) {  // the second time the prefix is cached, but its logits are not
      const auto listener = std::make_shared<Listener>();
      ASSERT_TRUE(engine
                      ->add(1,
                            {.prompt_ids = prompt,
                             .sampling = with_temperature(0.0F),
                             .num_choices = 2,
                             .max_tokens = 3,
                             .num_logprobs = 2,
                             .prompt_logprobs = true},
                            listener)
                      .has_value());
      run_all(*engine);
      ASSERT_EQ(listener->prompt_logprobs.size(), prompt.size() - 1);
      for (size_t i = 1; i < prompt.size(); ++i) {
        const LogSoftmax expected = log_softmax(logits[i - 1], num_tokens);
        const SampledToken& found = listener->prompt_logprobs[i - 1];
        ASSERT_EQ(found.id, prompt[i]);
        ASSERT_EQ(found.logprob, expected(logits[i - 1][static_cast<size_t>(prompt[i])]));
        ASSERT_EQ(found.top_logprobs, best_logprobs(logits[i - 1], num_tokens, 2, expected));
      }
      EXPECT_EQ(listener->choices[1].ids.size(), 3U);
    }
  }
}

TEST_F(BatchEngineTest, CancellingAtAnyTurnLeavesNothingAndDisturbsNobody) {
  for (const bool look_ahead : {false, true}) {
    const auto model = open(14);
    for (const int32_t turns : {0, 1, 2, 4, 7}) {
      const auto engine = BatchEngine::create(*model, {.look_ahead = look_ahead}).value();
      std::mt19937 random(7);
      Running kept{.request = draw_request(random, 71)};
      Running cancelled{.request = draw_request(random, 72)};
      cancelled.request.prompt_ids = kept.request.prompt_ids;  // it may lead, or wait for, the other
      cancelled.id = 1;
      kept.id = 2;
      ASSERT_TRUE(engine->add(cancelled.id, cancelled.request, cancelled.listener).has_value());
      ASSERT_TRUE(engine->add(kept.id, kept.request, kept.listener).has_value());
      for (int32_t turn = 0; turn < turns; ++turn) engine->advance();
      const bool had_ended = cancelled.listener->info.has_value();
      engine->cancel(cancelled.id);
      engine->cancel(cancelled.id);
      run_all(*engine);
      expect_as_alone(kept);
      ASSERT_TRUE(cancelled.listener->info.has_value());
      for (const auto& [choice, heard] : cancelled.listener->choices) {
        ASSERT_TRUE(heard.end.has_value());
        if (!had_ended && heard.ids.empty()) {
          EXPECT_EQ(heard.end->reason, FinishReason::kCancelled);
        }
      }
      EXPECT_EQ(engine->stats().num_blocks_used, 0);
      ASSERT_TRUE(engine->check_invariants().has_value());
    }
  }
}

TEST_F(BatchEngineTest, TheContextIsTheLastLimit) {
  const auto model = open(0);
  const auto engine = BatchEngine::create(*model).value();
  const auto listener = std::make_shared<Listener>();
  const int32_t context = model->context();
  ASSERT_TRUE(engine->add(1, {.prompt_ids = draw_tokens(static_cast<size_t>(context) - 1, 1)}, listener).has_value());
  run_all(*engine);
  EXPECT_EQ(listener->choices[0].ids.size(), 1U);
  EXPECT_EQ(listener->choices[0].end->reason, FinishReason::kLength);
  EXPECT_TRUE(listener->choices[0].end->context_full);
  const auto full = engine->add(2, {.prompt_ids = draw_tokens(static_cast<size_t>(context) + 7, 1)}, listener);
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(full.error().message, HasSubstr("519 tokens, the context holds 512"));
  EXPECT_THAT(full.error().message, HasSubstr("shorten it by 8"));
}

TEST_F(BatchEngineTest, WhatCannotRunIsRefusedByName) {
  const auto model = open(14);
  const auto engine = BatchEngine::create(*model).value();
  const BatchRequest good{.prompt_ids = {1, 2, 3}, .max_tokens = 2};
  const auto refusal = [&](const auto& change) {
    BatchRequest request = good;
    change(request);
    const auto added = engine->add(9, request, std::make_shared<Listener>());
    return added ? std::string("accepted") : added.error().message;
  };
  EXPECT_THAT(refusal([](BatchRequest& r) { r.prompt_ids = {}; }), HasSubstr("prompt is empty"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.prompt_ids[1] = 151800; }), HasSubstr("prompt[1]"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.stop_token_ids = {-1}; }), HasSubstr("stop_token_ids[0]"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.sampling.top_p = 2.0F; }), HasSubstr("top_p"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.stop = {""}; }), HasSubstr("stop"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.num_choices = 0; }), HasSubstr("n: expected 1 to 128, found 0"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.max_tokens = 0; }), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.min_tokens = -1; }), HasSubstr("min_tokens"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.num_logprobs = 21; }), HasSubstr("logprobs"));
  EXPECT_THAT(refusal([](BatchRequest& r) { r.max_tokens = 700; }), HasSubstr("need 16 KV blocks, the pool has 14"));
  EXPECT_FALSE(engine->advance());
}

// A backend whose sample() fails: the step is lost, its requests are told why, and others may follow.
TEST(BatchEngineFailures, AStepThatFailsEndsItsRequestsWithTheError) {
  for (const bool look_ahead : {false, true}) {
    const auto model = make_recorded_model();
    ASSERT_NE(model, nullptr);
    const auto engine = BatchEngine::create(*model, {.look_ahead = look_ahead}).value();
    for (uint64_t id = 1; id <= 2; ++id) {
      const auto listener = std::make_shared<Listener>();
      const BatchRequest request{.prompt_ids = {1, 2, 3}, .num_choices = static_cast<int32_t>(id), .max_tokens = 4};
      ASSERT_TRUE(engine->add(id, request, listener).has_value());
      run_all(*engine);
      ASSERT_EQ(listener->choices.size(), id);
      for (const auto& [choice, heard] : listener->choices) {
        ASSERT_TRUE(heard.end.has_value());
        ASSERT_TRUE(heard.end->error.has_value());
        EXPECT_THAT(heard.end->error->message, HasSubstr("not part of an evaluation"));
      }
      EXPECT_TRUE(listener->info.has_value());
      EXPECT_EQ(engine->num_requests(), 0U);
      EXPECT_EQ(engine->stats().num_blocks_used, 0);
    }
  }
}

}  // namespace
}  // namespace kipp
