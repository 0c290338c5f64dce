// Reads the text of a .metal file: its entry points with their arguments, its function constants, and constructs that
// no compiler flag refuses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"

namespace kipp::metal_emulation {

struct SourceParameter {
  std::string name;
  std::string attribute;  // "buffer", "threadgroup", "thread_index_in_simdgroup", …
  unsigned index = 0;     // of the first two
  std::string space;      // "device", "constant", "threadgroup", or nothing for numbers
};

struct SourceFunction {
  std::string name;
  std::vector<SourceParameter> parameters;
};

struct SourceConstant {
  std::string name, type;
  unsigned index = 0;
};

struct Source {
  std::vector<SourceFunction> functions;
  std::vector<SourceConstant> constants;
};

// Errors: kInvalidArgument naming the line: an argument without attribute or with two, a pointer without address space,
// two arguments of one index, position arguments of different dimensions, a constant that is used twice; what Metal has
// not (derived classes, lambda expressions); and threadgroup variables, which the emulator does not have: kernels take
// threadgroup memory as arguments.
Result<Source> read_source(std::string_view text);

}  // namespace kipp::metal_emulation
