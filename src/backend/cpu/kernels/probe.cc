// What one thread can do at most with an instruction set: reading memory in four streams, and product-sums out of
// registers. Only for measuring limits (backend/cpu/probe.h); nothing of it runs in a model.
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tiles.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

// Chains of dependent product-sums in flight: enough to cover the latency, few enough to stay in registers.
#if defined(__AVX512F__)
constexpr int32_t kChains = 12;  // of 32 registers
#elif defined(__aarch64__)
constexpr int32_t kChains = 6;  // four registers each, of 32
#elif defined(__AVX2__)
constexpr int32_t kChains = 6;  // two registers each, of 16
#else
constexpr int32_t kChains = 3;  // four registers each, of 16
#endif
constexpr int64_t kOperationsOfLanes = 2 * kLanes;

// Keeps a value that nobody reads from being optimised away.
KIPP_INLINE void use(float value) {
  volatile float sink = value;
  static_cast<void>(sink);
}

using Words = uint64_t __attribute__((vector_size(64)));

constexpr size_t kStreams = 4;
constexpr size_t kStep = 128;  // bytes of each stream: two cache lines

int64_t read(const std::byte* data, size_t bytes) {
  const size_t stream_bytes = bytes / (kStreams * kStep) * kStep;
  Words even = {};
  Words odd = {};
  for (size_t i = 0; i < stream_bytes; i += kStep) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      Words pair[2];
      __builtin_memcpy(pair, data + stream * stream_bytes + i, sizeof pair);
      even ^= pair[0];
      odd ^= pair[1];
    }
  }
  even ^= odd;
  uint64_t bits = 0;
  for (size_t word = 0; word < sizeof(Words) / sizeof(uint64_t); ++word) {
    bits ^= even[word];
  }
  use(static_cast<float>(bits));
  return static_cast<int64_t>(stream_bytes * kStreams);
}

int64_t multiply_fp32(int64_t rounds) {
  F16 sums[kChains];
  for (F16& sum : sums) {
    sum = zero();
  }
  const F16 half = broadcast(0.5F);
  const F16 one = broadcast(1.0F);
  for (int64_t i = 0; i < rounds; ++i) {
    for (F16& sum : sums) {
      sum = fma(sum, half, one);  // goes to 2: never a denormal, and no product is the same twice in a row
    }
  }
  for (int32_t chain = 1; chain < kChains; ++chain) {
    sums[0] = add(sums[0], sums[chain]);
  }
  use(total(sums[0]));
  return rounds * kChains * kOperationsOfLanes;
}

#if defined(__AVX512BF16__)
int64_t multiply_bf16_dot(int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
  }
  const __m512i ones = _mm512_set1_epi16(0x3F80);
  __m512bh pairs;
  __builtin_memcpy(&pairs, &ones, sizeof pairs);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, pairs, pairs);
    }
  }
  for (int32_t chain = 1; chain < kChains; ++chain) {
    sums[0] = _mm512_add_ps(sums[0], sums[chain]);
  }
  use(total({sums[0]}));
  return rounds * kChains * 2 * kOperationsOfLanes;
}
#endif

#if defined(__AVX512VNNI__)
int64_t multiply_int8(int64_t rounds) {
  __m512i sums[kChains];
  for (__m512i& sum : sums) {
    sum = _mm512_setzero_si512();
  }
  const __m512i ones = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, ones, ones);
    }
  }
  for (int32_t chain = 1; chain < kChains; ++chain) {
    sums[0] = _mm512_add_epi32(sums[0], sums[chain]);
  }
  use(static_cast<float>(_mm512_reduce_add_epi32(sums[0])));
  return rounds * kChains * 4 * kOperationsOfLanes;
}
#endif

#if defined(__AMX_BF16__)
int64_t multiply_bf16_tile(int64_t rounds) {
  constexpr int64_t kOperations = 2 * 16 * 16 * 32;
  configure_whole_tiles();
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  tile_zero<4>();
  tile_zero<5>();
  tile_zero<6>();
  tile_zero<7>();
  for (int64_t i = 0; i < rounds; ++i) {
    tile_multiply<0, 6, 4>();
    tile_multiply<1, 6, 5>();
    tile_multiply<2, 7, 4>();
    tile_multiply<3, 7, 5>();
  }
  tile_release();
  return rounds * 4 * kOperations;
}
#endif

}  // namespace

int64_t probe(const ProbeArgs& args) {
  switch (args.kind) {
    case ProbeKind::kRead: return read(args.data, args.bytes);
    case ProbeKind::kFp32: return multiply_fp32(args.rounds);
#if defined(__AVX512BF16__)
    case ProbeKind::kBf16Dot: return multiply_bf16_dot(args.rounds);
#endif
#if defined(__AMX_BF16__)
    case ProbeKind::kBf16Tile: return multiply_bf16_tile(args.rounds);
#endif
#if defined(__AVX512VNNI__)
    case ProbeKind::kInt8: return multiply_int8(args.rounds);
#endif
    default: return 0;
  }
}

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
