// Threads that wait for each other or pass values. Metal Shading Language Specification: 6.9.1 Threadgroup and
// SIMD-Group Synchronization Functions, 6.9.2 SIMD-Group Functions. Stricter than Metal: all 32 lanes take part in
// every call.
#pragma once

#include "metal/emulation/machine.h"
#include "metal/emulation/msl/vectors.h"

namespace metal {

// 6.9.1, memory flags: which memory's accesses a barrier orders.
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags(uint(a) | uint(b));
}

// 6.9.1: all threads of the threadgroup, or of the simdgroup, reach it before any goes on.
inline void threadgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
  kipp::metal_emulation::threadgroup_barrier(uint(flags), line);
}
inline void simdgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
  kipp::metal_emulation::simdgroup_barrier(uint(flags), line);
}

template <typename T>
inline T lane_value(const char* name, int line, T value, uint lane) {
  static_assert(sizeof(T) <= kipp::metal_emulation::kLaneSlotBytes, "a lane's value has at most 16 bytes");
  const void* slots = kipp::metal_emulation::exchange(name, line, &value, sizeof value);
  T result;
  __builtin_memcpy(&result, static_cast<const char*>(slots) + lane % 32 * kipp::metal_emulation::kLaneSlotBytes,
                   sizeof result);
  return result;
}

// 6.9.2, permute functions. Lanes that shuffle_up and shuffle_down find nothing for keep their own value.
template <typename T>
inline T simd_shuffle(T value, ushort lane, int line = __builtin_LINE()) {
  return lane_value("simd_shuffle", line, value, lane);
}
template <typename T>
inline T simd_shuffle_xor(T value, ushort mask, int line = __builtin_LINE()) {
  return lane_value("simd_shuffle_xor", line, value, kipp::metal_emulation::lane_index() ^ mask);
}
template <typename T>
inline T simd_shuffle_down(T value, ushort delta, int line = __builtin_LINE()) {
  const uint from = kipp::metal_emulation::lane_index() + delta;
  return lane_value("simd_shuffle_down", line, value, from < 32 ? from : from - delta);
}
template <typename T>
inline T simd_shuffle_up(T value, ushort delta, int line = __builtin_LINE()) {
  const uint lane = kipp::metal_emulation::lane_index();
  return lane_value("simd_shuffle_up", line, value, lane >= delta ? lane - delta : lane);
}
template <typename T>
inline T simd_broadcast(T value, ushort lane, int line = __builtin_LINE()) {
  return lane_value("simd_broadcast", line, value, lane);
}
template <typename T>
inline T simd_broadcast_first(T value, int line = __builtin_LINE()) {
  return lane_value("simd_broadcast_first", line, value, 0);
}

// 6.9.2, reduction functions. The order in which Metal adds is not specified; here it is that of the lanes.
template <typename T, typename Combine>
inline T reduce(const char* name, int line, T value, Combine combine) {
  const char* slots = static_cast<const char*>(kipp::metal_emulation::exchange(name, line, &value, sizeof value));
  T result;
  __builtin_memcpy(&result, slots, sizeof result);
  for (uint lane = 1; lane < 32; ++lane) {
    T other;
    __builtin_memcpy(&other, slots + lane * kipp::metal_emulation::kLaneSlotBytes, sizeof other);
    result = combine(result, other);
  }
  return result;
}
template <typename T>
inline T simd_sum(T value, int line = __builtin_LINE()) {
  return reduce("simd_sum", line, value, [](T a, T b) { return T(a + b); });
}
template <typename T>
inline T simd_max(T value, int line = __builtin_LINE()) {
  return reduce("simd_max", line, value, [](T a, T b) { return a < b ? b : a; });
}
template <typename T>
inline T simd_min(T value, int line = __builtin_LINE()) {
  return reduce("simd_min", line, value, [](T a, T b) { return b < a ? b : a; });
}
inline bool simd_all(bool value, int line = __builtin_LINE()) {
  return reduce("simd_all", line, value, [](bool a, bool b) { return a && b; });
}
inline bool simd_any(bool value, int line = __builtin_LINE()) {
  return reduce("simd_any", line, value, [](bool a, bool b) { return a || b; });
}

}  // namespace metal
