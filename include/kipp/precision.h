// How exactly a backend that rounds activations treats them.
#pragma once

#include <cstdint>

namespace kipp {

// Within one precision a row's bits do not depend on how many rows are computed with it. The oracle has one arithmetic,
// FP32, for both.
enum class Precision : uint8_t {
  kDefault,  // activations to 16 bits or better before each projection
  kHigh,     // to 24 bits before quantised weights; BF16 weights: the same as kDefault
};

}  // namespace kipp
