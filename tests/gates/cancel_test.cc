// Cancelled gates end before the next step of the backend, wherever they are.
#include "gates/cancel.h"

#include <gtest/gtest.h>

#include <memory>

#include "gates/reference_twin.h"
#include "gates/vector_writer.h"

namespace kipp::gates {
namespace {

struct CancelledRun {
  std::vector<PhaseRecord> phases;
  int32_t num_asked = 0;
};

// Only the short prompt but for placement, which needs three blocks; everything runs if `after` is large.
CancelledRun run_cancelled(const Selection& selection, int32_t after) {
  GateInput input = twin_input();
  if (!selection.placement) {
    input.vectors.prompts.resize(1);
  }
  CancelledRun run;
  input.setup.is_cancelled = [&run, after] { return ++run.num_asked > after; };
  run.phases = run_gates(input, selection);
  return run;
}

void expect_cancelled_everywhere(const Selection& selection, const char* name, int32_t min_steps) {
  const CancelledRun whole = run_cancelled(selection, 1 << 20);
  ASSERT_EQ(whole.phases.size(), 2U);
  EXPECT_TRUE(whole.phases.back().passed());
  EXPECT_GE(whole.num_asked, min_steps);
  const int32_t stride = std::max(1, whole.num_asked / 5);
  for (int32_t after = 0; after < whole.num_asked; after += stride) {
    const CancelledRun run = run_cancelled(selection, after);
    ASSERT_TRUE(run.phases.back().cancelled) << name << " after " << after;
    EXPECT_FALSE(run.phases.back().passed());
    EXPECT_TRUE(run.phases.back().failures.empty());  // no verdict, not a failure
    EXPECT_EQ(run.phases.size(), after == 0 ? 1U : 2U);
    EXPECT_EQ(run.phases.back().name, after == 0 ? "phase0" : name);
    EXPECT_LE(run.num_asked, after + 3);  // told once, the rest is run_gates telling why
  }
}

TEST(Cancel, EndsPhase1BetweenItsSteps) {
  expect_cancelled_everywhere({.phase1 = true, .snapshot = {}}, "phase1", 2 + 1 + 2 + 7);  // chunk, taps, greedy
}

TEST(Cancel, EndsPhase2BetweenItsSteps) {
  expect_cancelled_everywhere({.phase2 = true, .snapshot = {}}, "phase2", 2 + 1 + 3);  // every decoded token
}

TEST(Cancel, EndsPlacementBetweenItsSteps) {
  expect_cancelled_everywhere({.placement = true, .snapshot = {}}, "placement", 2 + 2 * 69);
}

TEST(Cancel, EndsASnapshotWithoutWritingIt) {
  const TemporaryFolder folder;
  const Selection selection{.snapshot = folder.path() / "snapshot.txt", .snapshot_mode = SnapshotMode::kWrite};
  EXPECT_TRUE(run_cancelled(selection, 5).phases.back().cancelled);
  EXPECT_FALSE(std::filesystem::exists(*selection.snapshot));
}

TEST(Cancel, EndsAllThatIsLeft) {
  const CancelledRun run = run_cancelled({.phase1 = true, .phase2 = true, .snapshot = {}}, 4);
  ASSERT_EQ(run.phases.size(), 2U);
  EXPECT_TRUE(run.phases.front().passed());
  EXPECT_EQ(run.phases.back().name, "phase1");
}

}  // namespace
}  // namespace kipp::gates
