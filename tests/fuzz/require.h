// What a fuzzer holds its code to: a condition that is false is a finding.
#pragma once

#include <cstdlib>

namespace kipp::fuzzing {

inline void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace kipp::fuzzing
