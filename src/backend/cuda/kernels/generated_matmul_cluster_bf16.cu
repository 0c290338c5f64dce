// One type a file: they take long to compile.
#include "backend/cuda/kernels/generated_matmul_cluster.cuh"

namespace kipp::cuda {

template cudaError_t run_cluster_matmul<WeightType::kBf16>(const MatmulArgs&, const ClusterPlan&, const LaunchContext&);
template int32_t most_clusters<WeightType::kBf16>(const ClusterPlan&);

}  // namespace kipp::cuda
