// What the emulated Metal Standard Library asks of the emulated GPU. C++14 and free of the C++ library: kernels see it.
#pragma once

namespace kipp {
namespace metal_emulation {

using LaneSize = unsigned long;

enum class MatrixOperation { kMultiply, kMultiplyAccumulate, kLoad, kStore };

// One lane's part in an operation on simdgroup matrices of 8 × 8 floats; a lane's share of a matrix are two elements.
struct MatrixCall {
  MatrixOperation operation;
  float* d;  // of the result, or of the matrix to load
  const float* a;
  const float* b;
  const float* c;
  const float* memory;  // of the element at matrix_origin
  unsigned long elements_per_row;
  bool transpose;
};

// Waits until every lane of the simdgroup made the same call in the same line, and returns what each of them passed: 32
// slots of kLaneSlotBytes, which stand until this lane's next call.
enum : LaneSize { kLaneSlotBytes = 16 };
const void* exchange(const char* name, int line, const void* value, LaneSize size);
void matrix_operation(const MatrixCall& call, int line);
void simdgroup_barrier(unsigned flags, int line);
void threadgroup_barrier(unsigned flags, int line);
unsigned lane_index();

// Bits of flags.
enum : unsigned { kFlagDevice = 1, kFlagThreadgroup = 2 };

}  // namespace metal_emulation
}  // namespace kipp
