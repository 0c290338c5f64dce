// How exactly a backend that rounds activations treats them.
#pragma once

#include <cstdint>

namespace kipp {

// Within one precision a row's bits do not depend on how many rows are computed with it. The oracle has one arithmetic,
// FP32, for both.
enum class Precision : uint8_t {
  kDefault,  // activations rounded once to BF16, or finer, before each projection
  kHigh,     // activations at FP32 quality
};

}  // namespace kipp
