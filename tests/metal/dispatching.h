// Short ways to write a dispatch in tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "metal/emulation/dispatch.h"

namespace kipp::metal_emulation {

template <typename T>
BoundBuffer buffer(std::vector<T>& values, size_t first_element = 0) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T), first_element * sizeof(T), false};
}

// Bound as memory that the GPU only reads.
template <typename T>
BoundBuffer buffer(const std::vector<T>& values, size_t first_element = 0) {
  auto* data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.data()));
  return {data, values.size() * sizeof(T), first_element * sizeof(T), true};
}

template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline constexpr LaneOrder kLaneOrders[] = {LaneOrder::kAscending, LaneOrder::kDescending, LaneOrder::kScrambled};

}  // namespace kipp::metal_emulation
