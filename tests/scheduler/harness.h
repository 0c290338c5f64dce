// A scheduler with a pool and a clock that counts, and a step at a time: for tests of one rule.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kv/block_pool.h"
#include "scheduler/scheduler.h"

namespace kipp {

inline std::vector<int32_t> iota(int32_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Who has how many rows from where on, in a form that failures show.
struct Rows {
  uint64_t request;
  int32_t choice, first_position, num_tokens;
  bool generated;
  bool operator==(const Rows&) const = default;
};
inline void PrintTo(const Rows& rows, std::ostream* out) {
  *out << "request " << rows.request << "." << rows.choice << ": " << rows.num_tokens << " from " << rows.first_position
       << (rows.generated ? " generated" : " prompt");
}
inline Rows prompt_rows(uint64_t request, int32_t first_position, int32_t num_tokens, int32_t choice = 0) {
  return {request, choice, first_position, num_tokens, false};
}
inline Rows generated_rows(uint64_t request, int32_t first_position, int32_t num_tokens = 1, int32_t choice = 0) {
  return {request, choice, first_position, num_tokens, true};
}

inline std::vector<Rows> rows_of(const ScheduledStep& step) {
  std::vector<Rows> rows;
  for (const ScheduledSpan& span : step.spans) {
    rows.push_back({span.sequence.request, span.sequence.choice, span.first_position, span.num_tokens, span.generated});
  }
  return rows;
}

class Harness {
 public:
  explicit Harness(int32_t num_blocks, SchedulerOptions options = {}) : pool_(num_blocks) {
    options.clock = [this] { return SchedulerTime(std::chrono::milliseconds(now_)); };
    scheduler_ = *Scheduler::create(pool_, options);
  }

  Scheduler& operator*() { return *scheduler_; }
  Scheduler* operator->() { return scheduler_.get(); }
  BlockPool& pool() { return pool_; }
  void set_time(int64_t ms) { now_ = ms; }

  void add(SchedulerRequest request) {
    const auto added = scheduler_->add(std::move(request));
    ASSERT_TRUE(added) << added.error().message;
  }

  // A step that there must be.
  ScheduledStep next() {
    auto step = scheduler_->next_step();
    EXPECT_TRUE(step) << "there is no step";
    check();
    return step ? *std::move(step) : ScheduledStep();
  }

  // Every drawn id is 1000 and its position, unless ids are given.
  std::vector<NewToken> complete(const ScheduledStep& step, std::vector<int32_t> ids = {}) {
    if (ids.empty()) {
      for (const ScheduledRow& row : step.rows) {
        ids.push_back(1000 + row.position);
      }
    }
    auto tokens = scheduler_->complete(step.id, ids);
    EXPECT_TRUE(tokens) << tokens.error().message;
    check();
    return tokens ? *std::move(tokens) : std::vector<NewToken>();
  }

  // Makes and completes a step; who had which rows.
  std::vector<Rows> run() {
    const ScheduledStep step = next();
    complete(step);
    return rows_of(step);
  }

  // Until nothing is left. All rows of all steps.
  std::vector<Rows> run_all() {
    std::vector<Rows> all;
    while (!scheduler_->idle() && !testing::Test::HasFailure()) {
      const auto rows = run();
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  void check() {
    const auto held = scheduler_->check_invariants();
    EXPECT_TRUE(held) << held.error().message;
  }

 private:
  int64_t now_ = 0;
  BlockPool pool_;
  std::unique_ptr<Scheduler> scheduler_;
};

inline int32_t num_prompt_rows(const std::vector<Rows>& all) {
  return std::accumulate(all.begin(), all.end(), 0,
                         [](int32_t sum, const Rows& rows) { return sum + (rows.generated ? 0 : rows.num_tokens); });
}

}  // namespace kipp
