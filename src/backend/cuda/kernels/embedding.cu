// One block for each token; every thread widens two channels at a time.
#include "backend/cuda/kernels/embedding.h"

namespace kipp::cuda {
namespace {

constexpr int32_t kThreads = 256;

__global__ void embedding_kernel(EmbeddingArgs args) {
  wait_for_previous();
  start_next();
  const int32_t token = static_cast<int32_t>(blockIdx.x);
  const int32_t source = args.source[token];
  const int64_t id = source >= 0 ? args.sampled[source] : args.ids[token];
  const auto* row = reinterpret_cast<const uint32_t*>(args.table + id * args.hidden);
  auto* out = reinterpret_cast<float2*>(args.out + int64_t{token} * args.hidden);
  for (int32_t c = static_cast<int32_t>(threadIdx.x); c < args.hidden / 2; c += kThreads) {
    const uint32_t pair = row[c];
    out[c] = make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000U));
  }
}

}  // namespace

cudaError_t embedding(const EmbeddingArgs& args, const LaunchContext& context) {
  return launch(embedding_kernel, {.grid = dim3(static_cast<uint32_t>(args.num_tokens)), .block = dim3(kThreads)},
                context, args);
}

}  // namespace kipp::cuda
