// One dispatch of a kernel, as Metal's encoder would pass it to a GPU, and its emulation on the processor.
// What is checked and what is not: docs/metal-emulation.md.
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
  std::string function;                                    // "kipp_matvec_bf16"
  std::map<uint32_t, Constant> constants = {};             // by index
  std::map<uint32_t, BoundBuffer> buffers = {};            // by index
  std::map<uint32_t, std::vector<std::byte>> bytes = {};   // setBytes
  std::map<uint32_t, uint32_t> threadgroup_memory = {};    // setThreadgroupMemoryLength(length, index)
  Extent threadgroups = {}, threads_per_threadgroup = {};  // dispatchThreadgroups
  // What memory that must not be read holds: to read an aligned word that is this (or a 16-bit half of it) is an error.
  std::map<uint32_t, uint32_t> poison = {};  // by buffer index
};

// Error: what Metal's validation would say (unbound, wrong type, too much threadgroup memory, misaligned), or what a
// detector found.
Result<void> run(const Dispatch& dispatch);

// Every entry point compiled in, sorted.
std::vector<std::string> functions();

struct ArgumentFacts {
  std::string name;       // as the kernel's source calls it
  std::string attribute;  // "buffer", "threadgroup", "thread_position_in_grid", …
  uint32_t index;         // of a buffer or of threadgroup memory
  std::string space;      // "device", "constant", "threadgroup" or nothing
  bool is_written;        // a pointer or reference that is not const
  size_t element_size, element_alignment;
};

struct ConstantFacts {
  std::string name;
  uint32_t index;
  std::string type;  // "bool", "int", "uint", "float"
};

struct FunctionFacts {
  uint32_t max_total_threads_per_threadgroup;
  uint32_t static_threadgroup_memory;
  std::vector<ArgumentFacts> arguments;
  std::vector<ConstantFacts> constants;
};

// Errors: kNotFound.
Result<FunctionFacts> facts_of(const std::string& function);

// In which order simdgroups and lanes take turns between two points at which they wait for each other. Metal promises
// none, so results must not depend on it.
enum class LaneOrder : uint8_t { kAscending, kDescending, kScrambled };
void set_lane_order(LaneOrder order);

// Accesses that the detectors looked at since the program began: shows that they see them.
uint64_t num_checked_accesses();

}  // namespace kipp::metal_emulation
