// One dispatch of a kernel, as Metal's encoder would pass it to a GPU, and its emulation on the processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "kipp/error.h"

namespace kipp::metal_emulation {

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
};

// As setBuffer(buffer, offset, index).
struct BoundBuffer {
  std::byte* data;
  size_t length;
  size_t offset;
  bool read_only;
};

// A function constant.
struct Constant {
  std::variant<bool, int32_t, uint32_t, float> value;
};

struct Dispatch {
  std::string function;                              // "kipp_matvec_bf16"
  std::map<uint32_t, Constant> constants;            // by index
  std::map<uint32_t, BoundBuffer> buffers;           // by index
  std::map<uint32_t, std::vector<std::byte>> bytes;  // setBytes
  std::map<uint32_t, uint32_t> threadgroup_memory;   // setThreadgroupMemoryLength(length, index)
  Extent threadgroups, threads_per_threadgroup;      // dispatchThreadgroups
};

// Error: what Metal's validation would say (unbound, wrong type, too much threadgroup memory, misaligned), or what a
// detector found.
Result<void> run(const Dispatch& dispatch);

// Every entry point compiled in, sorted.
std::vector<std::string> functions();

}  // namespace kipp::metal_emulation
