// Uninitialised memory for numbers, aligned to a cache line. Large buffers lie in huge pages where the system has them,
// and cost resident memory only where touched, by whole pages.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/huge_pages.h"
#include "kipp/error.h"

namespace kipp {

template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  // Errors: kCapacity naming `what` and the bytes.
  static Result<AlignedBuffer> create(size_t size, std::string_view what) {
    if (size > (static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max()) - kHugePage) / sizeof(T)) {
      return make_error(ErrorCode::kCapacity, fmt::format("{}: {} elements exceed the address space", what, size));
    }
    const bool is_large = size * sizeof(T) >= kHugePagesFrom;
    const size_t alignment = is_large ? kHugePage : kAlignment;
    const size_t bytes = std::max((size * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
    AlignedBuffer buffer;
    buffer.data_.reset(static_cast<T*>(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)));
    if (buffer.data_ == nullptr) {
      return make_error(ErrorCode::kCapacity, fmt::format("{}: cannot allocate {} bytes", what, bytes));
    }
    if (is_large) {
      ask_for_huge_pages(buffer.data_.get(), bytes);
    }
    buffer.size_ = size;
    return buffer;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace kipp
