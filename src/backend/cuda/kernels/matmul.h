// Matrix times activations. Two arithmetics, one for each row class, and neither depends on how many rows there are:
//
// Generated rows: activations as two FP16 terms (22 bits), weights exact (integers of quantised ones enter as they are
// and their scale is applied in FP32). The columns are summed in kNumSlices slices, each in order (TileSums says in
// which), and the slices one after the other. Prompt rows:
// activations rounded once to FP16 (11 bits), quantised weights too; one sum over all columns in order.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/kernels/weight_tiles.h"
#include "backend/cuda/launch.h"

namespace kipp::cuda {

// Activations in FP16, times a power of two (scales.h). Columns beyond the matrix's are zero.
struct Activations {
  const __half* high;  // [rows][stride]
  const __half* low;   // likewise, what `high` left over; prompt rows have none
  int32_t stride;      // the matrix's padded_columns
};

// Rows of the residual stream under a norm: an input that a product's kernel makes itself, as residual_norm() does.
struct NormedRows {
  const float* residual = nullptr;   // [num_rows][width]; null: there is no norm, `x` is read
  const uint16_t* weight = nullptr;  // [width] bf16
  int32_t width = 0;                 // the matrix's columns
  float epsilon = 0.0F;
  float scale = 1.0F;  // a power of two
};
inline constexpr int32_t kMaxNormWidth = 5120;

// Where a product goes. With swiglu the matrix is gate and up interleaved, and silu(gate) · up goes out as activations.
struct MatmulOutput {
  float* out = nullptr;        // [rows][stride]
  int64_t partial_stride = 0;  // elements between the slices' sums, where they are left to the reader (num_partials)
  __half* high = nullptr;      // [rows][stride] swiglu
  __half* low = nullptr;       // likewise; null for prompt rows
  int32_t stride = 0;          // elements from one row to the next
  int32_t width = 0;           // of those, how many are wanted
  bool accumulate = false;     // out += instead of =; only with one partial, not with swiglu
};

struct MatmulArgs {
  DeviceMatrix matrix;
  Activations x;
  MatmulOutput to;
  float out_scale;   // a power of two: undoes those of weights and activations
  int32_t num_rows;  // of x
  bool swiglu;
  NormedRows norm = {};  // only where can_normalise()
};

// Of the kernel whose blocks work in clusters: which of its shapes, and what it is launched with.
struct ClusterPlan {
  int32_t tokens = 0;        // that a unit of work has room for: 16, 32 or 64
  int32_t row_tiles = 0;     // of a warp
  int32_t mates = 1;         // 1 or 2 blocks that share activations
  int32_t warps = 4;         // of a block, that multiply: 4, or 8 with 64 tokens
  int32_t num_clusters = 0;  // 0: another kernel
};

// Of the streaming kernel, likewise. Up to kMostPairedRows it computes both terms of a row side by side.
inline constexpr int32_t kMostPairedRows = 4;
struct StreamPlan {
  int32_t num_blocks = 0;  // 0: another kernel
  int32_t stages = 0;      // of each warp's ring
};

// How the kernels for generated rows share a matrix's work out. Bits do not depend on it.
struct GeneratedPlan {
  int32_t num_partials = 1;  // 1, or kNumSlices: `out` holds that many sums, to be added up in order
  // The rest is for generated_matmul() itself: which kernel, and how wide. At most one is not 0.
  int32_t row_tiles = 0;  // of a warp
  StreamPlan stream = {};
  ClusterPlan cluster = {};
};
GeneratedPlan plan_generated_matmul(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms);
// Whether that plan's kernel takes its rows from under a norm.
bool can_normalise(const DeviceMatrix& matrix, const GeneratedPlan& plan, int32_t num_rows);

// x must have room for a multiple of 64 rows; those above num_rows are read, but nothing comes of them. swiglu: only
// with one partial.
cudaError_t generated_matmul(const MatmulArgs& args, const GeneratedPlan& plan, const LaunchContext& context);

// The kernel of prompt rows for GPUs without wgmma: any number of rows, one term.
cudaError_t prompt_matmul_portable(const MatmulArgs& args, const LaunchContext& context);

// The kernel of prompt rows for Hopper. The matrix must be of FP16 tiles (kBf16, or dequantised). tile_tokens: one of
// kPromptTileTokens, on which no bit depends. The output's width and stride are multiples of 16
// bytes, all arrays are aligned to as many, and `low` is null.
inline constexpr int32_t kPromptTileTokens[] = {256, 192, 160, 128, 64};
cudaError_t prompt_matmul_wgmma(const MatmulArgs& args, int32_t tile_tokens, int32_t num_sms,
                                const LaunchContext& context);
// How many tokens a tile should have.
int32_t plan_prompt_matmul(const MatmulArgs& args, int32_t num_sms);

// The one of the two that a device takes. num_sms: its multiprocessors.
cudaError_t prompt_matmul(const MatmulArgs& args, bool has_wgmma, int32_t num_sms, const LaunchContext& context);

}  // namespace kipp::cuda
