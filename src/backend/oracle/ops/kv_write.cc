// K and V of new positions into the pool, rounded to its type.
#include <bit>

#include "backend/oracle/ops/operators.h"
#include "backend/oracle/ops/paged_kv.h"
#include "base/bf16.h"
#include "base/seeded_fault.h"

namespace kipp::oracle {
namespace {

void store(float value, uint16_t& out) {
  if (seeded(Fault::kKvRoundingSkipped)) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000U);
  out = f32_to_bf16(value);
}
void store(float value, float& out) {
  out = value;
}

template <typename Element>
void write_part(const KvWriteArgs& args, const float* values, KvPart part) {
  const int32_t num_tokens = args.num_tokens - (seeded(Fault::kDroppedTailRow) ? args.num_tokens > 1 : 0);
  for (int32_t t = 0; t < num_tokens; ++t) {
    for (int32_t h = 0; h < args.num_kv_heads; ++h) {
      const float* in = values + (ptrdiff_t{t} * args.num_kv_heads + h) * args.head_dim;
      auto* out = kv_vector<Element>(args.kv, args.block_table, args.first_position + t, part, h, args.num_kv_heads,
                                     args.head_dim);
      if (seeded(Fault::kSlotOffByOne) && (args.first_position + t) % kBlockPositions > 0) out -= args.head_dim;
      for (int32_t d = 0; d < args.head_dim; ++d) {
        store(in[d], out[d]);
      }
    }
  }
}

template <typename Element>
void write(const KvWriteArgs& args) {
  const bool swapped = seeded(Fault::kKeyValueSwap);
  write_part<Element>(args, swapped ? args.v : args.k, KvPart::kKey);
  write_part<Element>(args, swapped ? args.k : args.v, KvPart::kValue);
}

}  // namespace

void kv_write(const KvWriteArgs& args) {
  switch (args.kv.type) {
    case KvType::kBf16: return write<uint16_t>(args);
    case KvType::kF32: return write<float>(args);
  }
}

}  // namespace kipp::oracle
