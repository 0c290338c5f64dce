// Stateless evaluation: bit for bit the cached path at every position, with taps, with and without rounding of K and V.
#include <gmock/gmock.h>

#include <algorithm>

#include "backend/backend.h"
#include "engine/twin.h"
#include "kipp_checkpoints.h"

namespace kipp {
namespace {

std::vector<Logits> stateless_logits(Model& model, std::span<const int32_t> tokens) {
  std::vector<Logits> rows;
  StatelessObserver observer;
  observer.on_logits = [&](int32_t row, std::span<const float> logits) {
    EXPECT_EQ(row, static_cast<int32_t>(rows.size()));
    rows.emplace_back(logits.begin(), logits.end());
  };
  const auto result = model.backend().evaluate_stateless(tokens, observer);
  EXPECT_TRUE(result) << result.error().message;
  return rows;
}

TEST(StatelessTest, EqualsTheCachedPathAtEveryPosition) {
  for (const bool round_kv : {true, false}) {
    ModelOptions options = twin_options();
    options.round_kv = round_kv;
    options.placement_seed = 5;
    const auto model = open_twin(options);
    ASSERT_NE(model, nullptr);
    const auto tokens = draw_tokens(70, 30);
    const auto expected = stateless_logits(*model, tokens);
    ASSERT_EQ(expected.size(), tokens.size());
    Session session = *model->new_session();
    for (size_t i = 0; i < tokens.size(); ++i) {  // one token at a time: every row comes from the cache
      ASSERT_TRUE(session.append(std::span(tokens).subspan(i, 1)));
      ASSERT_TRUE(same_bits(session.logits(), expected[i])) << "row " << i << ", rounding " << round_kv;
    }
  }
}

TEST(StatelessTest, RoundingOfKAndVIsWhatTheSwitchTurnsOff) {
  const auto tokens = draw_tokens(12, 31);
  ModelOptions options = twin_options();
  const auto rounded = open_twin(options);
  options.round_kv = false;
  const auto exact = open_twin(options);
  ASSERT_TRUE(rounded != nullptr && exact != nullptr);
  const auto a = stateless_logits(*rounded, tokens);
  const auto b = stateless_logits(*exact, tokens);
  double error = 0.0;
  double power = 0.0;
  for (size_t row = 0; row < tokens.size(); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i) {
      const double difference = static_cast<double>(a[row][i]) - static_cast<double>(b[row][i]);
      error += difference * difference;
      power += static_cast<double>(b[row][i]) * static_cast<double>(b[row][i]);
    }
  }
  // BF16 keeps 8 bits: the mean square error is (2^-7)²/12 of a binade, on average 2.8e-6 of the value's square, at
  // most 2^-16 = 1.5e-5. Of that the logits show what attention adds to the residual stream, in two layers. Below: a
  // thousandth of it, still a thousand times what the order of FP32 sums costs (1e-12 on two layers). Above: the worst
  // case of K and of V in both layers, 4 · 2^-16 = 6e-5, rounded up.
  EXPECT_GT(error / power, 1e-9);
  EXPECT_LT(error / power, 1e-4);
}

TEST(StatelessTest, TapsShowEveryLayerAndTheFinalHidden) {
  const auto model = open_twin();
  ASSERT_NE(model, nullptr);
  const auto tokens = draw_tokens(35, 32);
  const auto hidden = static_cast<size_t>(model->info().dimensions.hidden);
  std::vector<int32_t> layers;
  size_t final_size = 0;
  int32_t rows = 0;
  StatelessObserver observer;
  observer.on_residual = [&](int32_t layer, std::span<const float> residual) {
    layers.push_back(layer);
    EXPECT_EQ(residual.size(), tokens.size() * hidden);
    EXPECT_TRUE(std::ranges::all_of(residual, [](float value) { return std::isfinite(value); }));
  };
  observer.on_final_hidden = [&](std::span<const float> values) { final_size = values.size(); };
  observer.on_logits = [&](int32_t, std::span<const float> logits) {
    ++rows;
    EXPECT_EQ(logits.size(), static_cast<size_t>(kVocabSize));
  };
  ASSERT_TRUE(model->backend().evaluate_stateless(tokens, observer));
  EXPECT_THAT(layers, testing::ElementsAre(-1, 0, 1));
  EXPECT_EQ(final_size, tokens.size() * hidden);
  EXPECT_EQ(rows, 35);
}

TEST(StatelessTest, BadPromptsAreRefused) {
  const auto model = open_twin();
  ASSERT_NE(model, nullptr);
  const auto code_of = [&](const std::vector<int32_t>& tokens) {
    const auto result = model->backend().evaluate_stateless(tokens, {});
    EXPECT_FALSE(result);
    return result ? ErrorCode::kInternal : result.error().code;
  };
  EXPECT_EQ(code_of({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({1, kVocabSize}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({-1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(std::vector<int32_t>(513, 1)), ErrorCode::kCapacity);
}

}  // namespace
}  // namespace kipp
