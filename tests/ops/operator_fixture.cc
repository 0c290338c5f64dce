// See operator_fixture.h.
#include "ops/operator_fixture.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "backend/cpu/isa.h"

namespace kipp {
namespace {

constexpr int32_t kPoolLayers = 3;  // the layer under test is the middle one
constexpr int32_t kLayer = 1;

}  // namespace

void OperatorTest::SetUp() {
  auto backend = make_tested_backend(GetParam());
  ASSERT_TRUE(backend) << backend.error().message;
  backend_ = *std::move(backend);
}

std::vector<std::string> tested_backends() {
  std::vector<std::string> names;
  for (const std::string& backend : available_backends()) {
    if (backend != "cpu") {
      names.push_back(backend);
      continue;
    }
    for (const std::string_view isa : cpu::supported_isas()) {
      names.push_back("cpu/" + std::string(isa));
      names.push_back("cpu/" + std::string(isa) + "/high");
    }
  }
  return names;
}

Result<std::unique_ptr<Backend>> make_tested_backend(const std::string& name) {
  const size_t isa = name.find('/');
  if (isa == std::string::npos) {
    return create_backend(name, {.num_threads = 1});
  }
  const size_t high = name.find("/high");
  return create_backend(name.substr(0, isa),
                        {.num_threads = 1,
                         .precision = high == std::string::npos ? Precision::kDefault : Precision::kHigh,
                         .isa = name.substr(isa + 1, high == std::string::npos ? high : high - isa - 1)});
}

std::string test_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

std::vector<float> Draw::floats(size_t count, float magnitude) {
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return uniform(-magnitude, magnitude); });
  return values;
}

std::vector<uint16_t> Draw::bf16(size_t count, float magnitude) {
  std::vector<uint16_t> values(count);
  std::generate(values.begin(), values.end(), [&] { return f32_to_bf16(uniform(-magnitude, magnitude)); });
  return values;
}

std::vector<int32_t> Draw::permutation(int32_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  std::shuffle(values.begin(), values.end(), engine_);
  return values;
}

double sum_roundings(const OperatorTable& table, int64_t n) {
  if (std::string_view(table.backend) == "oracle") {
    return static_cast<double>((n + 15) / 16 - 1 + 4);
  }
  return static_cast<double>(n);
}

double activation_rounding(const OperatorTable& table) {
  return std::string_view(table.backend).starts_with("cpu/amx") ? 0x1p-16 : 0.0;
}

PagedPool::PagedPool(Draw& draw, int32_t num_positions, int32_t num_kv_heads, int32_t head_dim, KvType type)
    : num_kv_heads_(num_kv_heads), head_dim_(head_dim), type_(type) {
  const int32_t num_blocks = (num_positions + kBlockPositions - 1) / kBlockPositions;
  const int32_t pool_blocks = num_blocks + 3;    // some that the table does not name
  block_table_ = draw.permutation(pool_blocks);  // entries beyond num_blocks lead to poison, not out of bounds
  const auto size = static_cast<size_t>(pool_blocks) * kPoolLayers * 2 * static_cast<size_t>(num_kv_heads) *
                    kBlockPositions * static_cast<size_t>(head_dim);
  if (type == KvType::kBf16) {
    bf16_.assign(size, kPoisonBf16);
  } else {
    f32_.assign(size, poison());
  }
}

KvLayerView PagedPool::view() {
  const ptrdiff_t layer = ptrdiff_t{2} * num_kv_heads_ * kBlockPositions * head_dim_;
  const ptrdiff_t bytes = type_ == KvType::kBf16 ? 2 : 4;
  auto* base =
      type_ == KvType::kBf16 ? reinterpret_cast<std::byte*>(bf16_.data()) : reinterpret_cast<std::byte*>(f32_.data());
  return {.blocks = base + kLayer * layer * bytes, .block_stride_bytes = kPoolLayers * layer * bytes, .type = type_};
}

size_t PagedPool::index(int32_t part, int32_t position, int32_t head, int32_t d) const {
  const auto block = static_cast<size_t>(block_table_[static_cast<size_t>(position / kBlockPositions)]);
  size_t index = block * kPoolLayers + kLayer;  // written out as the contract's [block][layer][k|v][head][32][head_dim]
  index = index * 2 + static_cast<size_t>(part);
  index = index * static_cast<size_t>(num_kv_heads_) + static_cast<size_t>(head);
  index = index * kBlockPositions + static_cast<size_t>(position % kBlockPositions);
  return index * static_cast<size_t>(head_dim_) + static_cast<size_t>(d);
}

float PagedPool::get(int32_t part, int32_t position, int32_t head, int32_t d) const {
  const size_t i = index(part, position, head, d);
  return type_ == KvType::kBf16 ? bf16_to_f32(bf16_[i]) : f32_[i];
}

void PagedPool::set(int32_t part, int32_t position, int32_t head, int32_t d, float value) {
  const size_t i = index(part, position, head, d);
  if (type_ == KvType::kBf16) {
    bf16_[i] = f32_to_bf16(value);
  } else {
    f32_[i] = value;
  }
}

size_t PagedPool::num_poisoned() const {
  return static_cast<size_t>(std::count(bf16_.begin(), bf16_.end(), kPoisonBf16) +
                             std::count_if(f32_.begin(), f32_.end(), is_poison));
}

}  // namespace kipp
