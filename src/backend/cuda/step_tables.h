// What a step's kernels know of its rows: arrays that the host fills and one copy takes to the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/attention_prompt.h"

namespace kipp::cuda {

// All that launches depend on: steps of one shape can be one graph. Rows are reordered: generated ones go first.
struct StepShape {
  int32_t num_generated = 0;
  int32_t num_prompt = 0;
  int32_t num_generated_heads = 0;  // head rows: generated ones first, too
  int32_t num_prompt_heads = 0;
  int32_t num_sequences = 0;
  int32_t num_tiles = 0;   // of prompt attention
  int32_t max_blocks = 0;  // of a sequence, rounded up to a power of two: stride of the block tables

  int32_t num_rows() const { return num_generated + num_prompt; }
  int32_t num_heads() const { return num_generated_heads + num_prompt_heads; }
  auto operator<=>(const StepShape&) const = default;
};

// The arrays, in host or in device memory.
struct StepTables {
  int32_t* ids;           // [num_rows]; ignored where source >= 0
  int32_t* source;        // [num_rows] index into the ids that the step before sampled, or -1
  int32_t* positions;     // [num_rows]
  int32_t* sequences;     // [num_rows] row of block_tables
  int32_t* settled;       // [num_rows] positions of the sequence whose K and V earlier steps have written
  int32_t* head_rows;     // [num_heads]
  PromptTile* tiles;      // [num_tiles]
  int32_t* block_tables;  // [num_sequences][max_blocks]

  // Of a shape, in memory that begins at `base`. bytes: how much they take.
  static StepTables at(std::byte* base, const StepShape& shape, size_t& bytes);
};

// Most bytes that any step within the limits takes.
size_t step_tables_bytes(const Limits& limits);

// A batch in the order of the device.
struct StepPlan {
  StepShape shape;
  std::vector<int32_t> row_of_token;  // [T] device row of each token of the batch
  std::vector<int32_t> slot_of_head;  // [R] device head row of each of the batch's head rows
};

// The batch is valid. num_query_heads decides how prompts are cut into tiles.
StepPlan plan_step(const Batch& batch, int32_t num_query_heads);
// Fills `tables` of plan.shape. previous_slots: slot_of_head of the step before, which from_row names.
void fill_tables(const Batch& batch, const StepPlan& plan, int32_t num_query_heads,
                 std::span<const int32_t> previous_slots, const StepTables& tables);

}  // namespace kipp::cuda
