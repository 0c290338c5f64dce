// A scheduler on a fake device under any sequence of operations, held after each to what every user is promised.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kv/block_pool.h"
#include "scheduler/fake_model.h"
#include "scheduler/scheduler.h"

namespace kipp::simulation {

struct SimulationOptions {
  int32_t num_blocks = 24;
  uint64_t placement_seed = 1;
  SchedulerOptions scheduler = {};  // its clock is replaced
  int32_t num_priorities = 3;
  bool with_failures = false;  // logits that are not finite, steps that fail
};

class Simulation {
 public:
  using Choose = std::function<uint32_t(uint32_t below)>;  // a number in [0, below)

  Simulation(const SimulationOptions& options, Choose choose);

  void operate();  // one operation, of any kind
  void drain();    // steps until nothing is left; then nothing may be lost

  // The first promise that was broken; empty: none.
  const std::string& error() const { return error_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  uint64_t num_finished() const { return num_finished_; }
  uint64_t num_copies() const { return device_.num_copies(); }

 private:
  // A choice, as its user sees it.
  struct Stream {
    std::vector<int32_t> expected;  // what it gets alone
    std::vector<int32_t> tokens;
    bool is_started = false;
    bool is_ended = false;
    bool is_whole = true;  // false: it was cancelled or failed
  };
  struct User {
    SchedulerRequest request;
    uint64_t arrival = 0;
    int32_t stop_every = 0;
    std::vector<Stream> streams;  // [choices]
    int32_t num_prompt_logits = 0;
  };

  void broke(std::string what);
  std::vector<int32_t> make_prompt();
  void add();
  void cancel();
  void step();
  void collect();
  void take(const NewToken& token);
  void fail_step();
  void take_ended();
  void check();
  void check_progress(const ScheduledStep& step);
  void check_start_order(const ScheduledStep& step);
  void check_logit_rows(const ScheduledStep& step);
  bool may_follow(const User& user, int32_t choice) const;
  bool is_before(const User& a, int32_t a_choice, const User& b, int32_t b_choice) const;

  SimulationOptions options_;
  Choose choose_;
  int64_t now_ = 0;
  BlockPool pool_;
  std::unique_ptr<Scheduler> scheduler_;
  Device device_;
  std::map<uint64_t, User> users_;
  std::vector<std::vector<int32_t>> texts_;  // prompts and answers of before, to begin prompts with
  uint64_t next_request_ = 0;
  uint64_t num_finished_ = 0;
  std::string error_;
};

}  // namespace kipp::simulation
