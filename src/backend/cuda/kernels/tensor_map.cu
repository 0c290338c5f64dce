// See tensor_map.h. The driver encodes maps; its function is asked for at run time.
#include "backend/cuda/kernels/tensor_map.h"

#include <cuda_runtime.h>

#include "backend/cuda/kernels/weight_tiles.h"

namespace kipp::cuda {
namespace {

// The driver's function, which is not linked to: the library must load where there is no driver.
auto* encoder() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = []() -> Encode {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(entry) : nullptr;
  }();
  return encode;
}

constexpr cuuint32_t kSteps[3] = {1, 1, 1};

}  // namespace

bool has_tensor_maps() {
  return encoder() != nullptr;
}

CUresult make_row_map(CUtensorMap& map, const __half* x, int32_t rows, int32_t stride, int32_t box_rows) {
  if (encoder() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(stride), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[2] = {kTileColumns, static_cast<cuuint32_t>(box_rows)};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<__half*>(x), sizes, strides, box, kSteps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

template <typename T>
CUresult make_output_map_of(CUtensorMap& map, const T* out, int32_t rows, int32_t width, int32_t stride,
                            int32_t box_rows) {
  constexpr cuuint32_t kPiece = 16 / sizeof(T);
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(rows)};
  if (encoder() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (sizes[0] % kPiece != 0) return CUDA_ERROR_INVALID_VALUE;  // whole pieces would be written all the same
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * sizeof(T)};
  const cuuint32_t box[2] = {4 * kPiece, static_cast<cuuint32_t>(box_rows)};
  return encoder()(&map, sizeof(T) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
                   const_cast<T*>(out), sizes, strides, box, kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

CUresult make_output_map(CUtensorMap& map, const float* out, int32_t rows, int32_t width, int32_t stride,
                         int32_t box_rows) {
  return make_output_map_of(map, out, rows, width, stride, box_rows);
}
CUresult make_output_map(CUtensorMap& map, const __half* out, int32_t rows, int32_t width, int32_t stride,
                         int32_t box_rows) {
  return make_output_map_of(map, out, rows, width, stride, box_rows);
}

CUresult make_kv_map(CUtensorMap& map, const PagedKv& kv) {
  if (encoder() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const cuuint64_t sizes[3] = {kHeadDim, 2 * kNumKvHeads * kBlockPositions, static_cast<cuuint64_t>(kv.num_blocks)};
  const cuuint64_t strides[2] = {2 * kHeadDim, static_cast<cuuint64_t>(kv.block_stride) * 2};
  const cuuint32_t box[3] = {kHeadDim / 2, kBlockPositions, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<uint16_t*>(kv.pool), sizes, strides, box,
                   kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

CUresult make_record_map(CUtensorMap& map, const std::byte* records, int32_t record_bytes, int32_t rows,
                         int32_t columns, int32_t box_rows) {
  constexpr int32_t kElementBytes = 8;  // a box has at most 256 elements a dimension
  if (encoder() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto elements = static_cast<cuuint32_t>(record_bytes / kElementBytes);
  const cuuint64_t sizes[3] = {elements, static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(record_bytes),
                                 static_cast<cuuint64_t>(record_bytes) * static_cast<cuuint64_t>(columns)};
  const cuuint32_t box[3] = {elements, 1, static_cast<cuuint32_t>(box_rows)};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_INT64, 3, const_cast<std::byte*>(records), sizes, strides, box, kSteps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace kipp::cuda
