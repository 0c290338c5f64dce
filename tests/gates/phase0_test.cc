// Phase 0 is green on the twin, and notices vectors of something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gates/reference_twin.h"

namespace kipp::gates {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> failures_of(const GateInput& input) {
  const auto record = run_phase0(input);
  EXPECT_TRUE(record.has_value()) << record.error().message;
  return record ? record->failures : std::vector<std::string>{};
}

TEST(Phase0, PassesOnTheTwin) {
  const GateInput input = twin_input();
  EXPECT_THAT(failures_of(input), IsEmpty());
}

TEST(Phase0, NoticesVectorsOfAnotherArtifact) {
  GateInput input = twin_input();
  input.vectors.checkpoint_id = "qwen3-8b";
  EXPECT_THAT(failures_of(input), ElementsAre(HasSubstr("checkpoint_id")));
  input = twin_input();
  input.vectors.revision = "another";
  EXPECT_THAT(failures_of(input), ElementsAre(HasSubstr("revision")));
  input = twin_input();
  input.vectors.quant_scheme = "q8_0";
  EXPECT_THAT(failures_of(input), ElementsAre(HasSubstr("quant_scheme")));
  input = twin_input();
  input.vectors.header_sha256 = std::string(64, '0');
  EXPECT_THAT(failures_of(input), ElementsAre(HasSubstr("header_sha256")));
}

TEST(Phase0, NoticesReferenceIdsOfAnotherTokenizer) {
  GateInput input = twin_input();
  input.vectors.prompts[0].ids[1] = 221;
  EXPECT_THAT(failures_of(input), ElementsAre(HasSubstr("first difference at 1")));
  input.vectors.prompts[0].ids = {13048, 220};
  EXPECT_THAT(failures_of(input), ElementsAre(HasSubstr("to 2 ids, Kipp to 3")));
}

TEST(RunGates, StopsAfterAFailedPhase0) {
  GateInput input = twin_input();
  input.vectors.revision = "another";
  const auto records = run_gates(input, {.phase1 = true, .phase2 = true, .placement = true, .snapshot = {}});
  ASSERT_EQ(records.size(), 1U);
  EXPECT_FALSE(records[0].passed());
}

}  // namespace
}  // namespace kipp::gates
