// One step as the scheduler makes it: what Backend::copy_blocks, forward and sample take, with the sequence beside each
// span and row. Names and meanings are those of Batch in backend/backend.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/request.h"

namespace kipp {

// Consecutive positions of one sequence, of one row class.
struct ScheduledSpan {
  SequenceId sequence = {};
  int32_t slot = 0;  // the sequence's from its admission to its end or preemption; < max_sequences
  int32_t first_position = 0;
  int32_t num_tokens = 0;
  bool generated = false;  // the row class: the tokens were sampled, not part of the prompt
  std::vector<int32_t> block_table = {};
};

struct ScheduledToken {
  int32_t token = 0;
  int32_t from_row = -1;  // >= 0: index into the previous step's head_rows; token is ignored
};

// A row whose logits are needed.
struct ScheduledRow {
  SequenceId sequence = {};
  int32_t position = 0;    // absolute position of the token to be drawn
  bool is_sampled = true;  // false: a prompt's row, whose logits are wanted but not its draw
};

using SchedulerStepId = uint64_t;

struct ScheduledStep {
  SchedulerStepId id = 0;
  std::vector<int32_t> copy_from = {}, copy_to = {};  // blocks to be copied before the step
  std::vector<ScheduledSpan> spans = {};
  std::vector<ScheduledToken> tokens = {};  // the spans' tokens one after the other
  std::vector<int32_t> head_rows = {};      // ascending indices into tokens
  std::vector<ScheduledRow> rows = {};      // [head_rows]
};

// A token that a sequence got from a step.
struct NewToken {
  SequenceId sequence = {};
  int32_t row = 0;  // index into the step's head rows
  int32_t token = 0;
  int32_t index = 0;                    // among the sequence's new tokens
  std::optional<EndReason> ended = {};  // kLength, kFailed (token is then not one): the sequence ended with it
};

}  // namespace kipp
