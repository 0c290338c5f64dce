// Matrices of 8 × 8 floats that the lanes of a simdgroup hold together. Metal Shading Language Specification: 2.4
// SIMD-group Matrix Data Types, 6.7 SIMD-Group Matrix Functions. Which lane holds what is not specified; kernels cannot
// know it here either. Products are rounded before they are added, in the order of the inner dimension: on a GPU that
// is not specified.
#pragma once

#include "metal/emulation/machine.h"
#include "metal/emulation/msl/vectors.h"

namespace metal {

// 2.4; of all the types only float is emulated. 6.7.1: constructed from a number it is diagonal.
template <typename T, int Cols, int Rows>
struct simdgroup_matrix;
template <>
struct simdgroup_matrix<float, 8, 8> {
  float share[2];
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(float diagonal) {
    for (uint i = 0; i < 2; ++i) {
      const uint element = kipp::metal_emulation::lane_index() * 2 + i;
      share[i] = element / 8 == element % 8 ? diagonal : 0.0f;
    }
  }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;

// 6.7.1 Creating, Loading, and Storing Matrix Elements.
template <typename T, int Cols, int Rows>
inline simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Cols, Rows> matrix;
  matrix.share[0] = value;
  matrix.share[1] = value;
  return matrix;
}

inline void simdgroup_load(simdgroup_float8x8& d, const float* source, ulong elements_per_row = 8,
                           ulong2 matrix_origin = ulong2(0), bool transpose_matrix = false,
                           int line = __builtin_LINE()) {
  const float* first = source + matrix_origin.y * elements_per_row + matrix_origin.x;
  kipp::metal_emulation::matrix_operation({kipp::metal_emulation::MatrixOperation::kLoad, d.share, nullptr, nullptr,
                                           nullptr, first, elements_per_row, transpose_matrix},
                                          line);
}

inline void simdgroup_store(const simdgroup_float8x8& a, float* destination, ulong elements_per_row = 8,
                            ulong2 matrix_origin = ulong2(0), bool transpose_matrix = false,
                            int line = __builtin_LINE()) {
  const float* first = destination + matrix_origin.y * elements_per_row + matrix_origin.x;
  kipp::metal_emulation::matrix_operation({kipp::metal_emulation::MatrixOperation::kStore, nullptr, a.share, nullptr,
                                           nullptr, first, elements_per_row, transpose_matrix},
                                          line);
}

// 6.7.2 Matrix Operations: d = a · b + c, d = a · b.
inline void simdgroup_multiply_accumulate(simdgroup_float8x8& d, const simdgroup_float8x8& a,
                                          const simdgroup_float8x8& b, const simdgroup_float8x8& c,
                                          int line = __builtin_LINE()) {
  kipp::metal_emulation::matrix_operation({kipp::metal_emulation::MatrixOperation::kMultiplyAccumulate, d.share,
                                           a.share, b.share, c.share, nullptr, 0, false},
                                          line);
}
inline void simdgroup_multiply(simdgroup_float8x8& d, const simdgroup_float8x8& a, const simdgroup_float8x8& b,
                               int line = __builtin_LINE()) {
  kipp::metal_emulation::matrix_operation(
      {kipp::metal_emulation::MatrixOperation::kMultiply, d.share, a.share, b.share, nullptr, nullptr, 0, false}, line);
}

}  // namespace metal
