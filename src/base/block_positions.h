// The size of a KV block, which the integers-only block pool and every backend's kernels must agree on.
#pragma once

#include <cstdint>

namespace kipp {

inline constexpr int32_t kBlockPositions = 32;  // positions in one KV block

}  // namespace kipp
