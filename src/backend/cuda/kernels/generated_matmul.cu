// Which kernel computes a product of generated rows.
#include "backend/cuda/kernels/generated_matmul_variants.h"

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
  if (capability >= 90) {
    const StreamPlan stream = plan_stream(matrix, num_rows, num_sms);
    if (stream.num_blocks > 0) return {.num_partials = 1, .stream = stream};
  }
  if (capability == 90) {
    const ClusterPlan cluster = plan_cluster(matrix, num_rows, num_sms);
    if (cluster.num_clusters > 0) return {.num_partials = 1, .cluster = cluster};
  }
  if (capability < 90 && num_rows <= kFewRows) return {.num_partials = 1};
  return plan_many_rows(matrix, num_sms);
}

bool can_normalise(const DeviceMatrix& matrix, const GeneratedPlan& plan, int32_t num_rows) {
  return plan.stream.num_blocks > 0 && num_rows <= kMostNormedRows && matrix.columns <= kMaxNormWidth &&
         matrix.columns % 4 == 0;
}

cudaError_t generated_matmul(const MatmulArgs& args, const GeneratedPlan& plan, const LaunchContext& context) {
  if (args.norm.residual != nullptr &&
      (args.norm.width != args.matrix.columns || !can_normalise(args.matrix, plan, args.num_rows))) {
    return cudaErrorInvalidValue;
  }
  if (args.to.accumulate && (args.swiglu || plan.num_partials != 1)) return cudaErrorInvalidValue;
  if (plan.cluster.num_clusters > 0) return generated_matmul_cluster(args, plan.cluster, context);
  if (plan.stream.num_blocks > 0) return generated_matmul_stream(args, plan.stream, context);
  if (plan.num_partials == 1) return few_rows_matmul(args, context);
  return args.swiglu ? cudaErrorInvalidValue : many_rows_matmul(args, plan.row_tiles, context);
}

}  // namespace kipp::cuda
