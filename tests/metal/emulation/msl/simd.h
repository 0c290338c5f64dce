// "Threadgroup and SIMD-Group Synchronization Functions" and "SIMD-Group Functions". Every lane must come to the same
// call, and every thread to the same threadgroup_barrier; anything else is reported as divergence.
#pragma once

#define KIPP_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace kipp_msl::metal {

namespace runtime = kipp::metal_emulation::runtime;

// "Threadgroup and SIMD-Group Synchronization Functions", the table of mem_flags.
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<uint>(a) | static_cast<uint>(b));
}

inline void threadgroup_barrier(mem_flags flags, KIPP_HERE) {
  runtime::barrier(runtime::Scope::kThreadgroup, static_cast<uint>(flags), file, line);
  asm volatile("" ::: "memory");
}
inline void simdgroup_barrier(mem_flags flags, KIPP_HERE) {
  runtime::barrier(runtime::Scope::kSimdgroup, static_cast<uint>(flags), file, line);
  asm volatile("" ::: "memory");
}

// "SIMD-Group Functions": reductions.
#define KIPP_SIMD_REDUCTION(name, kind)                                  \
  template <typename T>                                                  \
  T name(T value, KIPP_HERE) {                                           \
    return runtime::reduce(runtime::Reduction::kind, value, file, line); \
  }
KIPP_SIMD_REDUCTION(simd_sum, kSum)
KIPP_SIMD_REDUCTION(simd_product, kProduct)
KIPP_SIMD_REDUCTION(simd_max, kMax)
KIPP_SIMD_REDUCTION(simd_min, kMin)
KIPP_SIMD_REDUCTION(simd_and, kAnd)
KIPP_SIMD_REDUCTION(simd_or, kOr)
KIPP_SIMD_REDUCTION(simd_prefix_exclusive_sum, kPrefixExclusiveSum)
KIPP_SIMD_REDUCTION(simd_prefix_inclusive_sum, kPrefixInclusiveSum)
#undef KIPP_SIMD_REDUCTION

inline bool simd_any(bool value, KIPP_HERE) {
  return runtime::reduce(runtime::Reduction::kOr, static_cast<uint>(value), file, line) != 0;
}
inline bool simd_all(bool value, KIPP_HERE) {
  return runtime::reduce(runtime::Reduction::kAnd, static_cast<uint>(value), file, line) != 0;
}

// "SIMD-Group Functions": permutations. MSL leaves open what a lane outside of the simdgroup gives; here it is poison.
#define KIPP_SIMD_SHUFFLE(name, kind)                                                        \
  template <typename T>                                                                      \
  T name(T value, ushort operand, KIPP_HERE) {                                               \
    runtime::shuffle(runtime::Shuffle::kind, &value, sizeof(value), operand, file, line);    \
    return value;                                                                            \
  }
KIPP_SIMD_SHUFFLE(simd_shuffle, kLane)
KIPP_SIMD_SHUFFLE(simd_broadcast, kLane)
KIPP_SIMD_SHUFFLE(simd_shuffle_xor, kXor)
KIPP_SIMD_SHUFFLE(simd_shuffle_down, kDown)
KIPP_SIMD_SHUFFLE(simd_shuffle_up, kUp)
#undef KIPP_SIMD_SHUFFLE

}  // namespace kipp_msl::metal
