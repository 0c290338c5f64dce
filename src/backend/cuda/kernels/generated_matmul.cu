// Which kernel computes a product of generated rows.
#include "backend/cuda/kernels/generated_matmul_variants.h"
#include "backend/cuda/kernels/tensor_core.cuh"

namespace kipp::cuda {
namespace {

// Of the current device: 10 · major + minor.
int32_t compute_capability() {
  int device = 0;
  int major = 0;
  int minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    return 0;
  }
  return 10 * major + minor;
}

}  // namespace

GeneratedPlan plan_generated_matmul(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms) {
  const int32_t capability = compute_capability();
  if (capability >= 90 && can_stream(matrix, num_rows)) {
    return {.num_partials = 1, .num_blocks = plan_stream_blocks(matrix, num_rows, num_sms)};
  }
  if (capability == 90) {
    const ClusterPlan cluster = plan_cluster(matrix, num_rows, num_sms);
    if (cluster.num_clusters > 0) return {.num_partials = 1, .cluster = cluster};
  }
  if (capability < 90 && num_rows <= kFewRows) return {.num_partials = 1};
  return plan_many_rows(matrix, num_sms);
}

cudaError_t generated_matmul(const MatmulArgs& given, GeneratedPlan plan, const LaunchContext& context) {
  MatmulArgs args = given;
  if (args.matrix.type == WeightType::kAffine4Gs32) args.out_scale *= kAffine4SumScale;
  if (plan.cluster.num_clusters > 0) return generated_matmul_cluster(args, plan.cluster, context);
  if (plan.num_blocks > 0) return generated_matmul_stream(args, plan.num_blocks, context);
  if (plan.num_partials == 1) return few_rows_matmul(args, context);
  return args.swiglu ? cudaErrorInvalidValue : many_rows_matmul(args, plan.row_tiles, context);
}

}  // namespace kipp::cuda
