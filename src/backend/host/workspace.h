// Memory of one step's activations, allocated once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "base/aligned_buffer.h"
#include "kipp/error.h"
#include "model/dimensions.h"

namespace kipp::host {

// Room for T tokens and R head rows.
struct Workspace {
  AlignedBuffer<int32_t> ids;          // [T]
  AlignedBuffer<int32_t> positions;    // [T]
  AlignedBuffer<float> residual;       // [T][hidden]
  AlignedBuffer<float> normed;         // [T][hidden]
  AlignedBuffer<float> query;          // [T][num_query_heads][head_dim]
  AlignedBuffer<float> key;            // [T][num_kv_heads][head_dim]
  AlignedBuffer<float> value;          // [T][num_kv_heads][head_dim]
  AlignedBuffer<float> attended;       // [T][num_query_heads][head_dim]
  AlignedBuffer<float> delta;          // [T][hidden] what a block adds to the residual stream
  AlignedBuffer<float> gate;           // [T][ffn]
  AlignedBuffer<float> up;             // [T][ffn]
  AlignedBuffer<float> head_residual;  // [R][hidden]
  AlignedBuffer<float> head_normed;    // [R][hidden]
  AlignedBuffer<float> logits;         // [R][vocab]

  // Errors: kCapacity.
  static Result<Workspace> create(const Dimensions& dimensions, int32_t num_tokens, int32_t num_head_rows);
  static size_t bytes(const Dimensions& dimensions, int32_t num_tokens, int32_t num_head_rows);
};

}  // namespace kipp::host
