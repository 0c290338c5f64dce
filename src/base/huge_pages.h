// Huge pages for memory that is read in large strides: with pages of 4 KiB a walk of the page table costs as much as
// the read.
#pragma once

#include <cstddef>

namespace kipp {

inline constexpr size_t kHugePage = size_t{2} << 20;
// Smaller buffers are left on small pages, so that what is not touched costs nothing.
inline constexpr size_t kHugePagesFrom = 2 * kHugePage;

// A wish: where the system refuses or has none, reading is slower and nothing else. Of [data, data + size) the whole
// pages count.
void ask_for_huge_pages(void* data, size_t size);

}  // namespace kipp
