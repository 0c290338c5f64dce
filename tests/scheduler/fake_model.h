// A model whose next token depends on everything that it should: each token before it with its position and row class,
// the seed and the choice. And what a sequence gets that is alone, computed without blocks, steps or a scheduler.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace kipp::simulation {

// What a row leaves in the KV pool.
struct Cell {
  int32_t token = -1;
  int32_t position = -1;
  bool generated = false;
};

// What the model knows of a request beside its tokens.
struct Draw {
  uint64_t seed = 0;
  int32_t choice = 0;
};

inline constexpr int32_t kVocab = 1 << 20;

int32_t next_token(std::span<const Cell> context, const Draw& draw);

// The new tokens: at most max_new_tokens, and none after one that stops (see stops()).
std::vector<int32_t> alone(const SchedulerRequest& request, const Draw& draw, int32_t stop_every);
bool stops(int32_t token, int32_t stop_every);  // stop_every: one token of so many; 0: none

// Executes steps in order, on a pool of cells, and holds each to the backend's contract.
class Device {
 public:
  Device(int32_t num_blocks, const SchedulerOptions& limits);

  // How the sequences of a request are drawn.
  void learn(uint64_t request, uint64_t seed) { seeds_[request] = seed; }
  // The first violation of the contract, or nothing.
  std::string forward(const ScheduledStep& step);
  // The ids drawn by the oldest step that was not collected.
  std::vector<int32_t> collect();
  size_t num_in_flight() const { return in_flight_.size(); }
  const ScheduledStep& oldest() const { return in_flight_.front().step; }
  uint64_t num_rows() const { return num_rows_; }
  uint64_t num_copies() const { return num_copies_; }

 private:
  struct InFlight {
    ScheduledStep step;
    std::vector<int32_t> ids;  // [head_rows]
    std::set<int32_t> named;   // blocks
  };

  std::string check(const ScheduledStep& step) const;
  std::string check_span(const ScheduledSpan& span, const std::map<int32_t, int32_t>& names) const;
  std::string claim(int32_t block, const SequenceId& owner);
  std::string copy(const ScheduledStep& step);
  std::string write(const ScheduledStep& step);
  std::vector<int32_t> draw(const ScheduledStep& step) const;
  Cell& cell(const ScheduledSpan& span, int32_t position);
  const Cell& cell(const ScheduledSpan& span, int32_t position) const;

  SchedulerOptions limits_;
  std::vector<std::vector<Cell>> pool_;  // [blocks][32]
  std::vector<SequenceId> owners_;       // [blocks] who wrote to it last
  std::map<uint64_t, uint64_t> seeds_;
  std::vector<InFlight> in_flight_;    // oldest first
  std::vector<int32_t> previous_ids_;  // of the latest step
  uint64_t num_rows_ = 0;
  uint64_t num_copies_ = 0;
};

}  // namespace kipp::simulation
