// Which kernel computes a product of generated rows.
#include "backend/cuda/kernels/generated_matmul_variants.h"

namespace kipp::cuda {
namespace {

// As Device::has_wgmma(), of the current device.
bool has_wgmma() {
  int device = 0;
  int major = 0;
  int minor = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
         minor == 0;
}

}  // namespace

GeneratedPlan plan_generated_matmul(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms) {
  if (matrix.type == WeightType::kBf16 && has_wgmma()) {
    return {.num_partials = 1, .row_tiles = 0, .num_clusters = plan_wgmma_clusters(matrix, num_rows, num_sms)};
  }
  const int32_t blocks = matrix.padded_rows / (kTileRows * kManyWarps * 2) * kNumSlices;
  return {
      .num_partials = num_rows <= kFewRows ? 1 : kNumSlices, .row_tiles = blocks < num_sms ? 1 : 2, .num_clusters = 0};
}

cudaError_t generated_matmul(const MatmulArgs& args, GeneratedPlan plan, const LaunchContext& context) {
  if (plan.num_clusters > 0) return generated_matmul_wgmma(args, plan.num_clusters, context);
  if (plan.num_partials == 1) return few_rows_matmul(args, context);
  return args.swiglu ? cudaErrorInvalidValue : many_rows_matmul(args, plan.row_tiles, context);
}

}  // namespace kipp::cuda
