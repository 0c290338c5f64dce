// Kernels with one fault each: tests/metal/emulation/detectors_test.cc.
#include <metal_stdlib>

using namespace metal;

kernel void kipp_fault_reads_behind(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                                    uint i [[thread_position_in_grid]]) {
  out[i] = x[i + 1];
}

kernel void kipp_fault_writes_before(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  (out - 1)[i] = 1.0f;
}

kernel void kipp_fault_threadgroup_behind(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                          uint i [[thread_position_in_threadgroup]]) {
  tile[i + 1] = 1.0f;
  out[i] = tile[i + 1];
}

kernel void kipp_fault_unwritten(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                 uint i [[thread_position_in_threadgroup]]) {
  if (i != 7) tile[i] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = tile[i];
}

// The second threadgroup finds what the first one left.
kernel void kipp_fault_left_over(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                 uint i [[thread_position_in_threadgroup]],
                                 uint group [[threadgroup_position_in_grid]]) {
  if (group == 0) tile[i] = 1.0f;
  out[group * 64 + i] = tile[i];
}

kernel void kipp_fault_no_barrier(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                  uint i [[thread_position_in_threadgroup]]) {
  tile[i] = float(i);
  out[i] = tile[63 - i];
}

// Lanes of one simdgroup are not ordered either.
kernel void kipp_fault_no_simdgroup_barrier(device float* out [[buffer(0)]],
                                            threadgroup float* tile [[threadgroup(0)]],
                                            uint i [[thread_position_in_threadgroup]]) {
  tile[i] = float(i);
  out[i] = tile[i ^ 1];
}

// Orders the lanes of a simdgroup, but the place is another one's.
kernel void kipp_fault_simdgroup_barrier_too_small(device float* out [[buffer(0)]],
                                                   threadgroup float* tile [[threadgroup(0)]],
                                                   uint i [[thread_position_in_threadgroup]]) {
  tile[i] = float(i);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = tile[i ^ 32];
}

kernel void kipp_fault_wrong_flags(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                   uint i [[thread_position_in_threadgroup]]) {
  tile[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  out[i] = tile[63 - i];
}

// The next round writes what others still read.
kernel void kipp_fault_one_barrier_in_loop(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                           uint i [[thread_position_in_threadgroup]]) {
  float sum = 0.0f;
  for (uint round = 0; round < 2; ++round) {
    tile[i] = float(i + round);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += tile[63 - i];
  }
  out[i] = sum;
}

kernel void kipp_fault_threadgroups_share(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]],
                                          uint group [[threadgroup_position_in_grid]]) {
  out[i] = float(group);
}

kernel void kipp_fault_adds_to_one_place(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  if (i < 2) out[0] += 1.0f;
}

kernel void kipp_fault_divergent_barrier(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  if (i < 40) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = 1.0f;
}

kernel void kipp_fault_two_barriers(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  if (i < 32) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  } else {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[i] = 1.0f;
}

kernel void kipp_fault_divergent_lanes(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  out[i] = 0.0f;
  if (i % 2 == 0) out[i] = simd_sum(1.0f);
}

kernel void kipp_fault_different_lane_calls(device float* out [[buffer(0)]],
                                            uint i [[thread_position_in_threadgroup]]) {
  if (i % 2 == 0) {
    out[i] = simd_sum(1.0f);
  } else {
    out[i] = simd_max(1.0f);
  }
}

kernel void kipp_fault_reads_poison(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                                    uint i [[thread_position_in_grid]]) {
  const float value = x[i];
  out[i] = i < 60 ? value : 0.0f;  // thrown away, but read
}

kernel void kipp_fault_writes_constant(constant float* x [[buffer(0)]], device float* out [[buffer(1)]],
                                       uint i [[thread_position_in_grid]]) {
  x[i] = 1.0f;
  out[i] = x[i];
}
