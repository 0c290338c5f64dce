// One type a file: they take long to compile.
#include "backend/cuda/kernels/generated_matmul_cluster.cuh"

namespace kipp::cuda {

template cudaError_t run_cluster_matmul<WeightType::kQ8_0>(const MatmulArgs&, const ClusterPlan&, const LaunchContext&);
template int32_t most_clusters<WeightType::kQ8_0>(const ClusterPlan&);

}  // namespace kipp::cuda
