// Operators without sums over channels: each element on its own.
#include "backend/cpu/kernels/level.h"
#include "backend/cpu/kernels/simd.h"

namespace kipp::cpu::KIPP_CPU_LEVEL {
namespace {

// Round to nearest even, a NaN stays one: base/bf16.h, which cannot be used here since its symbol would be shared.
KIPP_INLINE uint16_t narrow(float value) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x0040U;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet_nan : rounded);
}

KIPP_INLINE void store_value(float value, uint16_t& out) {
  out = narrow(value);
}
KIPP_INLINE void store_value(float value, float& out) {
  out = value;
}

template <typename Element>
void write_part(const KvWriteArgs& args, const float* values, int32_t part) {
  for (int32_t t = 0; t < args.num_tokens; ++t) {
    const int32_t position = args.first_position + t;
    std::byte* block = args.kv.blocks + args.block_table[position / kBlockPositions] * args.kv.block_stride_bytes;
    for (int32_t h = 0; h < args.num_kv_heads; ++h) {
      const ptrdiff_t row = (ptrdiff_t{part} * args.num_kv_heads + h) * kBlockPositions + position % kBlockPositions;
      const float* in = values + (ptrdiff_t{t} * args.num_kv_heads + h) * args.head_dim;
      auto* out = reinterpret_cast<Element*>(block) + row * args.head_dim;
      for (int32_t d = 0; d < args.head_dim; ++d) {
        store_value(in[d], out[d]);
      }
    }
  }
}

KIPP_INLINE F16 gated(F16 gate, F16 up) {
  const F16 one = broadcast(1.0F);
  return mul(div(gate, add(one, exp(sub(zero(), gate)))), up);
}

}  // namespace

void embedding(const EmbeddingArgs& args) {
  for (int32_t t = 0; t < args.num_tokens; ++t) {
    const uint16_t* row = args.table + ptrdiff_t{args.ids[t]} * args.hidden;
    float* out = args.out + ptrdiff_t{t} * args.hidden;
    int32_t c = 0;
    for (; c + kLanes <= args.hidden; c += kLanes) {
      store(out + c, widen(row + c));
    }
    if (c < args.hidden) {
      store_some(out + c, widen_some(row + c, args.hidden - c), args.hidden - c);
    }
  }
}

void rotate(const RopeArgs& args, const float* cosines, const float* sines) {
  const int32_t half = args.head_dim / 2;
  for (int32_t t = 0; t < args.num_tokens; ++t) {
    const float* cosine = cosines + ptrdiff_t{t} * half;
    const float* sine = sines + ptrdiff_t{t} * half;
    for (int32_t h = 0; h < args.num_heads; ++h) {
      float* x = args.x + (ptrdiff_t{t} * args.num_heads + h) * args.head_dim;
      for (int32_t i = 0; i < half; ++i) {
        const float first = x[i];
        const float second = x[i + half];
        x[i] = first * cosine[i] - second * sine[i];
        x[i + half] = second * cosine[i] + first * sine[i];
      }
    }
  }
}

void kv_write(const KvWriteArgs& args) {
  if (args.kv.type == KvType::kBf16) {
    write_part<uint16_t>(args, args.k, 0);
    write_part<uint16_t>(args, args.v, 1);
  } else {
    write_part<float>(args, args.k, 0);
    write_part<float>(args, args.v, 1);
  }
}

void swiglu(const SwigluArgs& args) {
  int64_t i = 0;
  for (; i + kLanes <= args.count; i += kLanes) {
    store(args.out + i, gated(load(args.gate + i), load(args.up + i)));
  }
  if (const auto rest = static_cast<int32_t>(args.count - i); rest > 0) {
    store_some(args.out + i, gated(load_some(args.gate + i, rest), load_some(args.up + i, rest)), rest);
  }
}

void residual_add(const ResidualAddArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    args.x[i] += args.y[i];
  }
}

}  // namespace kipp::cpu::KIPP_CPU_LEVEL
