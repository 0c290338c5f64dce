// The kernels that generated_matmul() chooses from. Of one device and type all give a row the same bits.
#pragma once

#include "backend/cuda/kernels/matmul.h"

namespace kipp::cuda {

inline constexpr int32_t kFewRows = 2;  // that few_rows_matmul takes

// mma.sync, up to kFewRows rows: every warp walks one slice of 16 weight rows by itself.
cudaError_t few_rows_matmul(const MatmulArgs& args, const LaunchContext& context);
// mma.sync, any number of rows: the warps of a block share the activations. Leaves kNumSlices sums.
GeneratedPlan plan_many_rows(const DeviceMatrix& matrix, int32_t num_sms);
cudaError_t many_rows_matmul(const MatmulArgs& args, int32_t row_tiles, const LaunchContext& context);
inline constexpr int32_t kManyWarps = 4;  // of its blocks, each with row_tiles tiles of rows

inline constexpr int32_t kMostNormedRows = 2;  // of more, a norm in every block costs more than a kernel of its own
// mma.sync of compute capability 9.0 on, up to 8 rows whose activations fit in shared memory; num_blocks is 0 for
// others.
StreamPlan plan_stream(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms);
// The most stages of a ring with which that many blocks share a multiprocessor; 0: they do not.
int32_t most_stream_stages(const DeviceMatrix& matrix, int32_t num_rows, int32_t blocks_of_sm);
cudaError_t generated_matmul_stream(const MatmulArgs& args, const StreamPlan& plan, const LaunchContext& context);

// mma.sync of compute capability 9.0, any number of rows: the slices' blocks add their sums up among themselves.
// num_clusters is 0 where the device cannot hold the kernel.
ClusterPlan plan_cluster(const DeviceMatrix& matrix, int32_t num_rows, int32_t num_sms);
cudaError_t generated_matmul_cluster(const MatmulArgs& args, const ClusterPlan& plan, const LaunchContext& context);

}  // namespace kipp::cuda
