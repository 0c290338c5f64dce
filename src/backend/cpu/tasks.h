// What every way of cutting work into tasks shares: how large a task should be, and scratch memory that only grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include "base/aligned_buffer.h"

namespace kipp::cpu {

inline constexpr int64_t kTaskCost = 1 << 16;  // elements or so: a few microseconds
inline constexpr int64_t kTasksPerThread = 4;  // where work is cut by the number of threads: a late one holds up little

// Room for `size` elements; what the buffer held is lost when it grows.
template <typename T>
void grow(AlignedBuffer<T>& buffer, size_t size, std::string_view what) {
  if (buffer.size() >= size) {
    return;
  }
  auto larger = AlignedBuffer<T>::create(size, what);
  if (!larger) {
    throw std::bad_alloc();
  }
  buffer = *std::move(larger);
}

}  // namespace kipp::cpu
