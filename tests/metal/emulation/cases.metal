// Kernels that use what the emulator has, correctly: tests/metal/emulation/execution_test.cc, bindings_test.cc.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

using namespace metal;

// out: eight words a thread: what each position attribute said.
kernel void kipp_case_positions(device uint* out [[buffer(0)]], uint3 group [[threadgroup_position_in_grid]],
                                uint3 in_group [[thread_position_in_threadgroup]],
                                uint3 in_grid [[thread_position_in_grid]], uint3 size [[threads_per_threadgroup]],
                                uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint threads = size.x * size.y * size.z;
  const uint group_index = (group.z * groups.y + group.y) * groups.x + group.x;
  device uint* words = out + (group_index * threads + index) * 8;
  words[0] = in_group.x;
  words[1] = in_group.y;
  words[2] = in_group.z;
  words[3] = in_grid.x;
  words[4] = in_grid.y;
  words[5] = in_grid.z;
  words[6] = lane;
  words[7] = simdgroup;
}

// Each lane's results of every simdgroup function, fifteen a thread.
kernel void kipp_case_lanes(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  const float value = float(i + 1);
  device float* results = out + i * 12;
  results[0] = simd_shuffle_xor(value, 5);
  results[1] = simd_shuffle(value, ushort(31 - lane));
  results[2] = simd_shuffle_down(value, 3);
  results[3] = simd_shuffle_up(value, 3);
  results[4] = simd_broadcast(value, 7);
  results[5] = simd_broadcast_first(value);
  results[6] = simd_sum(value);
  results[7] = simd_max(value);
  results[8] = simd_min(value);
  results[9] = simd_all(value > 0.0f) ? 1.0f : 0.0f;
  results[10] = simd_all(value > 40.0f) ? 1.0f : 0.0f;
  results[11] = simd_any(value > 40.0f) ? 1.0f : 0.0f;
}

// Reverses each threadgroup's piece of x by way of threadgroup memory, twice over.
kernel void kipp_case_reverse(device float* x [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                              uint i [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]],
                              uint size [[threads_per_threadgroup]]) {
  device float* piece = x + group * size;
  for (uint round = 0; round < 3; ++round) {
    tile[i] = piece[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    piece[i] = tile[size - 1 - i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// d = a · b + 2 · a, and e = (a · b)ᵀ, by one simdgroup; b is stored transposed.
kernel void kipp_case_matrices(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                               device float* d [[buffer(2)]], device float* e [[buffer(3)]],
                               threadgroup float* tile [[threadgroup(0)]], uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 left;
  simdgroup_float8x8 right;
  simdgroup_float8x8 product = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(left, a, 16, ulong2(8, 0));
  simdgroup_load(right, b, 8, ulong2(0, 0), true);
  simdgroup_multiply_accumulate(product, left, right, product);
  simdgroup_store(product, tile);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < 64; i += 32) e[i] = tile[i % 8 * 8 + i / 8];
  const simdgroup_float8x8 two(2.0f);
  simdgroup_float8x8 doubled;
  simdgroup_multiply(doubled, two, left);
  simdgroup_multiply_accumulate(doubled, left, right, doubled);
  simdgroup_store(doubled, d, 8);
}

kernel void kipp_case_halves(device const ushort* x [[buffer(0)]], device float* out [[buffer(1)]],
                             uint i [[thread_position_in_grid]]) {
  out[i] = float(as_type<half>(x[i]));
}
