// What the scheduler knows of a request and of each of its sequences. Of no use outside this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_index.h"
#include "scheduler/request.h"
#include "scheduler/step.h"

namespace kipp {

struct RequestState;

// A sequence's positions, in order: computed (their rows are in steps that were made, or their blocks are another's),
// then those whose rows are still to be scheduled. num_collected <= num_computed <= num_tokens().
struct Sequence {
  enum class State : uint8_t { kWaiting, kRunning, kEnded };

  Sequence(RequestState& owner, int32_t index, std::vector<int32_t> prompt, BlockPool& pool)
      : request(&owner), choice(index), tokens(std::move(prompt)), table(pool) {}

  RequestState* request;
  int32_t choice;
  State state = State::kWaiting;
  std::optional<EndReason> end_reason = {};

  std::vector<int32_t> tokens;  // the prompt, and what was drawn and collected
  int32_t num_pending = 0;      // tokens that uncollected steps draw; the newest in head row pending_row of its step
  int32_t pending_row = -1;

  BlockTable table;
  int32_t slot = -1;
  int32_t num_computed = 0;
  int32_t num_collected = 0;      // the part of them whose steps were collected
  int32_t num_indexed = 0;        // blocks of the table that are the prefix index's
  int32_t num_in_flight = 0;      // uncollected steps with rows of it
  SchedulerStepId last_step = 0;  // the last one that names its blocks
  int32_t num_preemptions = 0;
  int32_t num_once_computed = 0;  // before a preemption: rows below are computed again
  int32_t num_logit_rows = 0;     // prompt rows whose logits were delivered, if all are wanted

  // A running sequence, earlier in order, that computes the first lead_tokens positions for this one too.
  Sequence* leader = nullptr;
  int32_t lead_tokens = 0;
  bool seeks_leader = false;

  inline int32_t num_prompt_tokens() const;
  inline int32_t max_tokens() const;  // prompt and new ones
  inline bool wants_prompt_logits() const;
  inline SequenceId id() const;
  inline PrefixChain chain() const;

  int32_t num_known() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_tokens() const { return num_known() + num_pending; }
  // The last token that a sequence may have is never evaluated: nothing follows from it.
  int32_t rows_left() const { return num_tokens() == max_tokens() ? 0 : num_tokens() - num_computed; }
  bool is_decoding() const { return rows_left() == 1 && num_computed >= num_prompt_tokens(); }
  // Blocks for the tokens there are and the next one, as far as it will be evaluated.
  int32_t num_blocks_wanted() const { return blocks_for(std::min(num_tokens() + 1, max_tokens() - 1)); }
};

struct RequestState {
  uint64_t id;
  uint64_t arrival;  // counts requests
  int32_t priority;
  int32_t num_prompt_tokens;
  int32_t max_new_tokens;
  bool prompt_logits;
  std::string salt;
  std::vector<Sequence> sequences = {};  // [choices]; never resized: others point at them
  bool prompt_done = false;              // some choice has evaluated the whole prompt
  int32_t num_cached_tokens = 0;
  int32_t num_preemptions = 0;
  RequestTimes times = {};
};

inline int32_t Sequence::num_prompt_tokens() const {
  return request->num_prompt_tokens;
}
inline int32_t Sequence::max_tokens() const {
  return request->num_prompt_tokens + request->max_new_tokens;
}
inline bool Sequence::wants_prompt_logits() const {
  return request->prompt_logits && choice == 0 && num_logit_rows < request->num_prompt_tokens;
}
inline SequenceId Sequence::id() const {
  return {request->id, choice};
}
inline PrefixChain Sequence::chain() const {
  return {tokens, request->num_prompt_tokens, request->salt};
}

// The order in which sequences are served: priority, arrival, choice.
struct ServedBefore {
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (a->request->priority != b->request->priority) {
      return a->request->priority < b->request->priority;
    }
    if (a->request->arrival != b->request->arrival) {
      return a->request->arrival < b->request->arrival;
    }
    return a->choice < b->choice;
  }
};

}  // namespace kipp
