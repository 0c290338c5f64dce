// Open addressing with linear probing; the hash reads eight bytes at a time.
#include "tokenizer/token_index.h"

#include <bit>
#include <cstring>

namespace kipp {
namespace {

template <typename T>
uint64_t load(const char* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
  return hash ^ (hash >> 32);
}

uint64_t hash_text(std::string_view text) {
  const char* data = text.data();
  const size_t size = text.size();
  uint64_t hash = mix(0, size);
  if (size >= 8) {
    for (size_t i = 0; i + 8 < size; i += 8) {
      hash = mix(hash, load<uint64_t>(data + i));
    }
    hash = mix(hash, load<uint64_t>(data + size - 8));
  } else if (size >= 4) {
    hash = mix(hash, load<uint32_t>(data) << 32 | load<uint32_t>(data + size - 4));
  } else if (size >= 2) {
    hash = mix(hash, load<uint16_t>(data) << 16 | load<uint16_t>(data + size - 2));
  } else if (size == 1) {
    hash = mix(hash, load<uint8_t>(data));
  }
  return mix(hash, 0);
}

}  // namespace

TokenIndex::TokenIndex(std::span<const std::string_view> tokens)
    : tokens_(tokens), slots_(std::bit_ceil(tokens.size() + tokens.size() / 3 + 1), Slot{0, -1}) {}

size_t TokenIndex::locate(std::string_view text, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0 && (slots_[slot].tag != tag || tokens_[static_cast<size_t>(slots_[slot].id)] != text)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

int32_t TokenIndex::insert(int32_t id) {
  const std::string_view text = tokens_[static_cast<size_t>(id)];
  const uint64_t hash = hash_text(text);
  Slot& slot = slots_[locate(text, hash)];
  if (slot.id < 0) {
    slot = {static_cast<uint32_t>(hash >> 32), id};
  }
  return slot.id;
}

int32_t TokenIndex::find(std::string_view text) const {
  return slots_[locate(text, hash_text(text))].id;
}

}  // namespace kipp
