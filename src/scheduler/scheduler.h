// Continuous batching: which tokens of which requests make the next step, and who holds which KV blocks. Pure data: no
// device, no socket, the clock is injected. One thread drives it. Policy and proofs: docs/ARCHITECTURE.md.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kipp/error.h"
#include "kv/block_pool.h"
#include "kv/prefix_index.h"
#include "scheduler/quarantine.h"
#include "scheduler/request.h"
#include "scheduler/sequence.h"
#include "scheduler/step.h"

namespace kipp {

struct SchedulerOptions {
  // The backend's: Limits in backend/backend.h. max_sequences is also how many run at a time.
  int32_t max_tokens_per_step = 512;
  int32_t max_sequences = 16;
  int32_t max_head_rows = 512;
  int32_t context = 4096;
  bool look_ahead = false;            // two steps in flight: the second's tokens may be drawn by the first
  bool prefix_cache = true;           // requests share blocks; choices of one request always do
  std::string name_space = {};        // of the prefix index
  BlockHash block_hash = hash_block;  // of the prefix index
  SchedulerClock clock = std::chrono::steady_clock::now;
};

// The loop that drives it, one thread:
//   step = next_step()            add(), finish() and cancel() at any time between the calls
//   copy_blocks, forward, sample  with the step's copies, spans, tokens, head rows
//   collect the oldest step that is not, then complete() it, then finish() the sequences whose token stops them
// With look_ahead the next step is made before the one before it is collected.
class Scheduler {
 public:
  // The blocks that are free now are the scheduler's alone while it lives; the pool outlives it. Errors:
  // kInvalidArgument (a limit below 1).
  static Result<std::unique_ptr<Scheduler>> create(BlockPool& pool, SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a request. Errors: kInvalidArgument, and kCapacity with both numbers for what can never fit: the prompt and
  // max_new_tokens beyond the context, or beyond the pool.
  Result<void> add(SchedulerRequest request);

  // The next step, or nothing: no sequence has a row to compute, or none has before another step is completed.
  std::optional<ScheduledStep> next_step();

  // The oldest step in flight was collected. sampled: [head_rows] the drawn ids, -1 where logits were not finite; those
  // of rows that are not sampled do not matter. Returns the tokens that sequences got, in the order of rows; those of
  // sequences that had ended are dropped. Errors: kInvalidArgument (another step, another number of ids).
  Result<std::vector<NewToken>> complete(SchedulerStepId step, std::span<const int32_t> sampled);

  // A step failed as a whole, before or after it was enqueued: its sequences end (kFailed). Errors: kInvalidArgument.
  Result<void> fail(SchedulerStepId step);

  // Ends a sequence with the tokens that it has. Errors: kNotFound (unknown, or ended already).
  Result<void> finish(SequenceId sequence, EndReason reason);
  // Ends what is left of a request. Its blocks are free once no step in flight names them. Errors: kNotFound.
  Result<void> cancel(uint64_t request);

  // Requests that ended since the last call and that no step in flight names any more: the caller may forget them.
  std::vector<RequestInfo> take_ended();

  // Of a request that is not over. Nothing: it is unknown, or take_ended() has it.
  std::optional<RequestInfo> info(uint64_t request) const;
  // The prompt and the new ones, until the next call; empty: unknown.
  std::span<const int32_t> tokens(SequenceId sequence) const;

  SchedulerStats stats() const;
  bool idle() const { return waiting_.empty() && running_.empty() && in_flight_.empty(); }

  // For tests: every reference to a block has its holder, every order and count holds. Errors: kInternal.
  Result<void> check_invariants() const;

 private:
  struct InFlightSpan {
    Sequence* sequence;
    int32_t end;
  };
  struct InFlightRow {
    Sequence* sequence;
    bool is_sampled;
  };
  struct InFlight {
    SchedulerStepId id;
    std::vector<InFlightSpan> spans;
    std::vector<InFlightRow> rows;
  };
  // What is left of a step's limits; prompts and what is computed again must leave room for decoding.
  struct Room {
    int32_t tokens;
    int32_t prefill_tokens;
    int32_t head_rows;
  };

  Scheduler(BlockPool& pool, SchedulerOptions options);

  // scheduler.cc
  Result<void> check_request(const SchedulerRequest& request);
  tl::unexpected<Error> refuse(RefusalReason reason, ErrorCode code, std::string message);
  Sequence* find_sequence(SequenceId id) const;
  void end(Sequence& sequence, EndReason reason);
  void retire_if_over(uint64_t request);
  RequestInfo describe(const RequestState& request) const;

  // admission.cc
  void admit();
  bool make_room(const Sequence& sequence, std::span<const int32_t> found);
  int32_t blocks_short(const Sequence& sequence, std::span<const int32_t> found) const;
  int32_t blocks_outstanding(const Sequence& sequence) const;
  std::span<Sequence* const> running_below(int32_t priority) const;
  int32_t num_reclaimable(std::span<Sequence* const> victims, std::span<const int32_t> except) const;
  void start(Sequence& sequence, std::span<const int32_t> found);
  void preempt(Sequence& sequence);
  void leave_running(Sequence& sequence);
  bool ensure_free(const Sequence& sequence, int32_t num_blocks);

  // sharing.cc
  std::vector<int32_t> find_prefix(const Sequence& sequence) const;
  void share_prefix(Sequence& sequence, std::span<const int32_t> found);
  int32_t common_rows(const Sequence& leader, const Sequence& sequence) const;
  void choose_leader(Sequence& sequence, int32_t num_shared_blocks);
  bool waits_for_leader(Sequence& sequence, ScheduledStep& step);
  bool fork(Sequence& sequence, Sequence& leader, ScheduledStep& step);
  void index_blocks(Sequence& sequence);

  // next_step.cc
  void plan(Sequence& sequence, Room& room, ScheduledStep& step, InFlight& record);
  int32_t chunk(const Sequence& sequence, const Room& room) const;
  void emit(Sequence& sequence, int32_t count, ScheduledStep& step, InFlight& record);

  // complete.cc
  void collect(Sequence& sequence, int32_t end);
  std::optional<NewToken> append(Sequence& sequence, int32_t token);

  SchedulerStepId oldest_in_flight() const { return in_flight_.empty() ? next_id_ : in_flight_.front().id; }

  BlockPool* pool_;
  SchedulerOptions options_;
  int32_t capacity_;  // blocks
  std::optional<PrefixIndex> index_;
  Quarantine quarantine_;
  std::unordered_map<uint64_t, std::unique_ptr<RequestState>> requests_;
  std::set<Sequence*, ServedBefore> waiting_;
  std::vector<Sequence*> running_;   // in the order of ServedBefore
  std::vector<int32_t> free_slots_;  // stack
  std::deque<InFlight> in_flight_;   // oldest first
  std::vector<RequestInfo> ended_;
  bool drains_ = false;  // a step failed: which one the next would be drawn from is not known before all are collected
  SchedulerStepId next_id_ = 1;
  uint64_t next_arrival_ = 0;
  SchedulerStats totals_;  // the counters; the rest is computed when asked for
};

}  // namespace kipp
