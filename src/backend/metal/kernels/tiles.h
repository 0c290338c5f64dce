// How kernels cut their work: constants that MSL and the host share. The host launches what stands here, and the kernel
// kipp_geometry writes the same values as the device's compiler saw them, so that a start can compare the two.
#pragma once

#if !defined(__METAL_VERSION__)
#include <cstdint>
#endif

namespace kipp_metal {

// Function constants, by index.
enum : uint32_t {
  kConstantColumns = 0,     // uint: the width that is summed over (norms, products)
  kConstantQueryHeads = 1,  // uint: query heads (attention)
  kConstantRowTile = 2,     // uint: activation rows of a product for generated rows, 1 to kMatvecRows
};

enum : uint32_t {
  kSimdWidth = 32,  // lanes of a simdgroup on every Apple GPU

  kBlockPositions = 32,  // positions in a KV block
  kHeadDim = 128,
  kKvHeads = 8,
  kMaxHeadGroup = 8,   // most query heads that share a KV head
  kGroupColumns = 32,  // weights in a block of Q8_0 and AFFINE4_GS32

  kElementThreads = 256,    // threads of elementwise kernels' threadgroups, one element (or four) each
  kNormThreads = 256,       // of a threadgroup, which normalises one row
  kHeadNormSimdgroups = 4,  // of a threadgroup, each normalises one head
  kArgmaxThreads = 256,     // of a threadgroup, which reduces one row of logits

  // Products for generated rows: a simdgroup makes kMatvecOutputs elements of each of up to kMatvecRows rows.
  kMatvecSimdgroups = 4,
  kMatvecOutputs = 2,
  kMatvecRows = 8,
  kMatvecTile = kMatvecSimdgroups * kMatvecOutputs,  // matrix rows of a threadgroup

  // Products for prompt rows: a threadgroup of four simdgroups makes 32 activation rows × 64 matrix rows.
  kMatmulSimdgroups = 4,
  kMatmulRows = 32,
  kMatmulOutputs = 64,
  kMatmulColumns = 32,  // at a time

  // Attention of generated rows: a threadgroup takes kSplitPositions positions of one row and KV head.
  kSplitPositions = 512,
  kSplitSimdgroups = 4,

  // Attention of prompt rows: a threadgroup takes kPromptRows rows of one query head, eight a simdgroup.
  kPromptRows = 32,
  kPromptSimdgroups = 4,
};

// What kipp_geometry writes, in this order: sizes of argument structs, then constants.
enum : uint32_t { kGeometryWords = 24 };

}  // namespace kipp_metal
