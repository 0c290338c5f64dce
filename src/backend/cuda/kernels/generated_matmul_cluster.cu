// Which shape of the cluster kernel a product takes.
#include "backend/cuda/kernels/generated_matmul_cluster.h"

#include <algorithm>
#include <atomic>

#include "backend/cuda/kernels/generated_matmul_variants.h"

namespace kipp::cuda {
namespace {

int32_t ask_most_clusters(WeightType type, const ClusterPlan& plan) {
  switch (type) {
    case WeightType::kBf16: return most_clusters<WeightType::kBf16>(plan);
    case WeightType::kQ8_0: return most_clusters<WeightType::kQ8_0>(plan);
    case WeightType::kAffine4Gs32: return most_clusters<WeightType::kAffine4Gs32>(plan);
  }
  return 0;
}

// The driver takes microseconds to say, and a step asks for every product.
int32_t known_most_clusters(WeightType type, const ClusterPlan& plan) {
  constexpr int32_t kDevices = 8;
  static std::atomic<int32_t> known[kDevices][3][3][7][2];  // one more than the number; 0: not asked yet
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return ask_most_clusters(type, plan);
  std::atomic<int32_t>& entry =
      known[device][static_cast<size_t>(type)][plan.tokens / 32][plan.row_tiles][plan.mates - 1];
  if (entry == 0) entry = 1 + ask_most_clusters(type, plan);
  return entry - 1;
}

// What a block takes for 64 columns of a unit, in bytes that the second-level cache delivers to a multiprocessor in
// that time: these, or the memory's share of them (its reads take a third longer), or the matrix unit.
int64_t stage_cost(WeightType type, const ClusterPlan& plan, int32_t unit_tiles) {
  constexpr int64_t kMultiply = 45;  // of a tile of rows and a token
  const int64_t weights = int64_t{unit_tiles} * (tile_bytes(type) + tile_scale_bytes(type));
  const int64_t activations = int64_t{plan.tokens} * kTileColumns * 4 / plan.mates;
  return std::max({weights + activations, weights * 4 / 3, unit_tiles * plan.tokens * kMultiply});
}

struct Candidate {
  ClusterPlan plan;
  int64_t cost;
};

// Rounds over the multiprocessors times what a round costs.
Candidate evaluate(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms, ClusterPlan plan) {
  constexpr int64_t kStagesOfEnds = 3;  // what a round's beginning and end take
  const int32_t blocks_per_sm = cluster_blocks_per_sm(plan.tokens);
  const int32_t held = known_most_clusters(matrix.type, plan);
  plan.num_clusters = std::min(held, num_sms * blocks_per_sm / (kNumSlices * plan.mates));
  if (held == 0 || plan.num_clusters == 0) return {plan, INT64_MAX};
  const int32_t unit_tiles = plan.row_tiles * cluster_warp_rows(plan.tokens);
  const int64_t rows = (matrix.padded_rows / kTileRows + unit_tiles - 1) / unit_tiles;
  const int64_t units = (rows + plan.mates - 1) / plan.mates * ((num_rows + plan.tokens - 1) / plan.tokens);
  const int64_t at_a_time = std::max(1, plan.num_clusters / blocks_per_sm);
  const int64_t rounds = (units + at_a_time - 1) / at_a_time;
  const int64_t stages = matrix.padded_columns / kPaddedColumns + kStagesOfEnds;
  return {plan, rounds * stages * stage_cost(matrix.type, plan, unit_tiles)};
}

}  // namespace

ClusterPlan plan_cluster(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms) {
  const int32_t tokens = num_rows <= 16 ? 16 : (num_rows <= 32 ? 32 : 64);
  Candidate best{{}, INT64_MAX};
  for (int32_t row_tiles = 1; row_tiles <= cluster_most_row_tiles(tokens); ++row_tiles) {
    for (const int32_t mates : {2, 1}) {
      const ClusterPlan plan{.tokens = tokens, .row_tiles = row_tiles, .mates = mates};
      const Candidate candidate = evaluate(matrix, num_rows, num_sms, plan);
      if (candidate.cost < best.cost) best = candidate;
    }
  }
  return best.cost == INT64_MAX ? ClusterPlan{} : best.plan;
}

cudaError_t generated_matmul_cluster(const MatmulArgs& args, const ClusterPlan& plan, const LaunchContext& context) {
  switch (args.matrix.type) {
    case WeightType::kBf16: return run_cluster_matmul<WeightType::kBf16>(args, plan, context);
    case WeightType::kQ8_0: return run_cluster_matmul<WeightType::kQ8_0>(args, plan, context);
    case WeightType::kAffine4Gs32: return run_cluster_matmul<WeightType::kAffine4Gs32>(args, plan, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kipp::cuda
