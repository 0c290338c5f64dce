// What the files of the cluster kernel share: see generated_matmul_cluster.cuh.
#pragma once

#include "backend/cuda/kernels/matmul.h"

namespace kipp::cuda {

inline constexpr int32_t kClusterWarps = 4;  // of a block, that multiply

// Tiles of weight rows and tokens of a unit, by the tokens that it has room for: warp_rows of a block's warps lie
// side by side along the rows.
constexpr int32_t cluster_warp_rows(int32_t tokens) {
  return tokens == 16 ? 4 : 2;
}
// That many blocks share a multiprocessor.
constexpr int32_t cluster_blocks_per_sm(int32_t tokens) {
  return tokens == 64 ? 1 : 2;
}
constexpr int32_t cluster_most_row_tiles(int32_t tokens) {
  switch (tokens) {
    case 16: return 2;
    case 32: return 3;
    case 64: return 4;
    default: return 0;
  }
}

// Of one type each.
template <WeightType type>
cudaError_t run_cluster_matmul(const MatmulArgs& args, const ClusterPlan& plan, const LaunchContext& context);
// How many clusters the current device holds at a time; 0 if the kernel does not run on it like that.
template <WeightType type>
int32_t most_clusters(const ClusterPlan& plan);

}  // namespace kipp::cuda
