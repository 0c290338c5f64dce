// Random operations, in every mode: each user gets what he would get alone, and nothing is lost (simulation.h).
#include <gtest/gtest.h>

#include <random>

#include "scheduler/simulation.h"

namespace kipp::simulation {
namespace {

uint64_t same_hash(uint64_t /*parent*/, std::span<const int32_t> /*tokens*/, uint32_t /*generated_rows*/) {
  return 7;
}

struct Totals {
  uint64_t finished = 0, copies = 0, preemptions = 0, hits = 0, dropped = 0, recomputed = 0;
};

Totals run(uint64_t seed, int32_t num_operations, bool look_ahead, bool prefix_cache) {
  std::mt19937_64 random(seed);
  const auto choose = [&random](uint32_t below) {
    return static_cast<uint32_t>(std::uniform_int_distribution<uint64_t>(0, below - 1)(random));
  };
  SimulationOptions options;
  options.placement_seed = seed;
  options.num_blocks = 4 + static_cast<int32_t>(choose(24));
  options.num_priorities = 1 + static_cast<int32_t>(choose(3));
  options.with_failures = choose(3) == 0;
  options.scheduler.context = 256;
  options.scheduler.max_tokens_per_step = 1 + static_cast<int32_t>(choose(choose(2) == 0 ? 8 : 120));
  options.scheduler.max_sequences = 1 + static_cast<int32_t>(choose(10));
  options.scheduler.max_head_rows = 1 + static_cast<int32_t>(choose(12));
  options.scheduler.look_ahead = look_ahead;
  options.scheduler.prefix_cache = prefix_cache;
  options.scheduler.block_hash = choose(3) == 0 ? same_hash : hash_block;
  Simulation simulation(options, choose);
  for (int32_t i = 0; i < num_operations && simulation.error().empty(); ++i) {
    simulation.operate();
  }
  simulation.drain();
  EXPECT_EQ(simulation.error(), "") << "seed " << seed << (look_ahead ? ", look-ahead" : "")
                                    << (prefix_cache ? ", cache" : "");
  const SchedulerStats stats = simulation.scheduler().stats();
  return {simulation.num_finished(),   simulation.num_copies(),  stats.num_preemptions,
          stats.num_prefix_hit_tokens, stats.num_dropped_tokens, stats.num_recomputed_tokens};
}

class RandomOperations : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(RandomOperations, EverybodyGetsWhatHeGetsAlone) {
  const auto [look_ahead, prefix_cache] = GetParam();
  Totals totals;
  for (uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    const Totals one = run(seed, 400, look_ahead, prefix_cache);
    totals.finished += one.finished;
    totals.copies += one.copies;
    totals.preemptions += one.preemptions;
    totals.hits += one.hits;
    totals.dropped += one.dropped;
    totals.recomputed += one.recomputed;
  }
  // What the runs are for really happened.
  EXPECT_GT(totals.finished, 1000U);
  EXPECT_GT(totals.copies, 50U);
  EXPECT_GT(totals.preemptions, 200U);
  EXPECT_GT(totals.recomputed, 1000U);
  EXPECT_EQ(totals.hits > 1000U, prefix_cache);
  EXPECT_GT(totals.dropped, look_ahead ? 300U : 0U);  // without look-ahead, only of what is cancelled
}

INSTANTIATE_TEST_SUITE_P(Modes, RandomOperations, testing::Combine(testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace kipp::simulation
