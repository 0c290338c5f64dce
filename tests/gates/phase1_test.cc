// Phase 1 is green on the twin, and red for tampered vectors and for tampered weights, naming the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gates/reference_twin.h"
#include "gates/vector_writer.h"

namespace kipp::gates {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> failures_of(const GateInput& input) {
  const auto record = run_phase1(input);
  EXPECT_TRUE(record.has_value()) << record.error().message;
  return record ? record->failures : std::vector<std::string>{};
}

// Only the short prompt: what is tampered with is in it.
GateInput short_input() {
  GateInput input = twin_input();
  input.vectors.prompts.resize(1);
  return input;
}

TEST(Phase1, PassesOnTheTwinAndShowsWhatRoundingCosts) {
  const auto record = run_phase1(twin_input());
  ASSERT_TRUE(record.has_value()) << record.error().message;
  EXPECT_THAT(record->failures, IsEmpty());
  const double rounded = *record->details.find("logits")->find("nmse")->as_double();
  const double unrounded = *record->details.find("logits_kv_unrounded")->find("nmse")->as_double();
  EXPECT_GT(rounded, 0.0);
  EXPECT_LT(rounded, kPhase1Nmse);
  EXPECT_LT(unrounded, rounded / 100.0);
  EXPECT_EQ(record->details.find("prompts")->items().size(), 2U);
  EXPECT_GE(record->details.find("kernels")->members().size(), 8U);  // one of each operator at least
}

TEST(Phase1, NoticesOneTamperedHiddenState) {
  GateInput input = short_input();
  const size_t hidden = input.vectors.prompts[0].final_hidden.size() / 3;
  for (size_t i = hidden; i < 2 * hidden; ++i) {
    input.vectors.prompts[0].final_hidden[i] *= 1.02F;  // NMSE 4e-4 at one of three positions
  }
  EXPECT_THAT(failures_of(input), Contains(AllOf(HasSubstr("hi: NMSE"), HasSubstr("at position 1"))));
}

// An error far below the bound for rounded K and V: only the figure without their rounding sees it.
TEST(Phase1, NoticesASmallErrorThatRoundingWouldHide) {
  GateInput input = short_input();
  for (float& value : input.vectors.prompts[0].final_hidden) {
    value *= 1.0005F;  // NMSE 2.5e-7
  }
  input.vectors.prompts[0].logit_positions.clear();
  input.vectors.prompts[0].logits.clear();
  EXPECT_THAT(failures_of(input), Contains(HasSubstr("(K and V in FP32): NMSE")));
}

TEST(Phase1, NoticesTamperedStoredLogits) {
  GateInput input = short_input();
  for (float& logit : input.vectors.prompts[0].logits) {
    logit *= 1.001F;  // NMSE 1e-6: inside the bound for the backend, but the vectors contradict themselves
  }
  EXPECT_THAT(failures_of(input), Contains(HasSubstr("contradict themselves")));
}

// A prompt of 33 tokens stores the logits of one or two: they are rows, not the prompt, and have the bound of a row.
TEST(Phase1, JudgesStoredLogitsAsRows) {
  GateInput input = short_input();
  const std::vector<float> stored = input.vectors.prompts[0].logits;
  const auto failures_scaled = [&](float factor) {
    std::transform(stored.begin(), stored.end(), input.vectors.prompts[0].logits.begin(),
                   [factor](float logit) { return logit * factor; });
    return failures_of(input);
  };
  EXPECT_THAT(failures_scaled(1.01F), Not(Contains(HasSubstr("(stored logits)"))));   // NMSE 1e-4
  EXPECT_THAT(failures_scaled(1.03F), Contains(HasSubstr("(stored logits): NMSE")));  // 8.5e-4
}

TEST(Phase1, NoticesAnotherArgmax) {
  GateInput input = short_input();
  auto& logits = input.vectors.prompts[0].logits;
  logits[7] = *std::max_element(logits.begin(), logits.end()) + 50.0F;
  EXPECT_THAT(failures_of(input), Contains(HasSubstr("(stored logits)")));
}

TEST(Phase1, NamesTheFirstBadLayer) {
  GateInput input = short_input();
  const size_t row = input.vectors.prompts[0].taps.size() / 3;
  for (size_t i = row; i < 2 * row; ++i) {
    input.vectors.prompts[0].taps[i] *= 1.02F;
  }
  EXPECT_THAT(failures_of(input), Contains(HasSubstr("off first after layer 0")));
}

TEST(Phase1, NoticesTamperedWeightsAndTheirLayer) {
  const TemporaryFolder folder;
  GateInput input = short_input();
  input.setup.artifact = tampered_artifact(folder.path(), input.file.weights().layers[1].down_projection);
  const auto failures = failures_of(input);
  EXPECT_THAT(failures, Contains(HasSubstr("off first after layer 1")));
  EXPECT_THAT(failures, Contains(HasSubstr("hi: NMSE")));
}

// The record says what rounding cost the reference, and a backend that is off by more than that still fails.
TEST(Phase1, RoundingInTheReferenceExcusesNoOtherFault) {
  GateInput input = short_input();
  input.vectors.kv_rounding =
      Json::object({{"worst_nmse", Json::number(1e-3)}, {"worst_prompt_nmse", Json::number(4e-4)}});
  for (float& value : input.vectors.prompts[0].final_hidden) value *= 1.02F;  // NMSE 4e-4, within 1.5 times that
  const auto failures = failures_of(input);
  EXPECT_THAT(failures, Contains(HasSubstr("(K and V in FP32): NMSE")));
  for (float& value : input.vectors.prompts[0].final_hidden) value *= 1.02F;
  EXPECT_THAT(failures_of(input), Contains(HasSubstr("exceeds 0.0006")));
}

TEST(Phase1, UsesTheVectorsOwnBound) {
  GateInput input = short_input();
  input.vectors.nmse_max = 1e-12;
  EXPECT_THAT(failures_of(input), Not(IsEmpty()));
}

}  // namespace
}  // namespace kipp::gates
