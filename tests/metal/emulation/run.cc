// run(): what Metal's validation checks before a dispatch, then the dispatch itself.
#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "metal/emulation/gpu.h"

extern "C" {
extern char __executable_start;  // the linker's: where this program is in memory
extern char _end;
}

namespace kipp::metal_emulation {
namespace {

constexpr uint32_t kMaxThreadgroupMemory = 32768;  // of every Apple GPU
constexpr size_t kMaxSetBytes = 4096;              // setBytes takes no more
constexpr size_t kThreadgroupMemoryUnit = 16;      // setThreadgroupMemoryLength takes multiples of it
constexpr size_t kConstantOffsetUnit = 4;          // offsets of buffers in the constant address space, on Apple GPUs
constexpr size_t kGuardBytes = 256;                // between two arguments in threadgroup memory

LaneOrder lane_order = LaneOrder::kAscending;

// A dispatch whose arguments are being put in their places.
class Arguments {
 public:
  Arguments(const FunctionEntry& function, const Dispatch& dispatch) : function_(function), dispatch_(dispatch) {}

  Result<void> bind() {
    if (function_.num_parameters > kMaxParameters) return failed(fmt::format("more than {} arguments", kMaxParameters));
    pointers_.assign(function_.num_parameters, nullptr);
    KIPP_TRY(check_indices());
    for (uint32_t i = 0; i < function_.num_parameters; ++i) {
      const std::string_view attribute = function_.parameters[i].attribute;
      if (attribute == "buffer") KIPP_TRY(bind_buffer(i));
      if (attribute == "threadgroup") KIPP_TRY(reserve_threadgroup_memory(i));
    }
    if (threadgroup_bytes_ > kMaxThreadgroupMemory) {
      return failed(
          fmt::format("{} bytes of threadgroup memory; at most {}", threadgroup_bytes_, kMaxThreadgroupMemory));
    }
    place_threadgroup_memory();
    memory_.allow_reading(reinterpret_cast<uintptr_t>(&__executable_start), reinterpret_cast<uintptr_t>(&_end));
    memory_.finish();
    return {};
  }
  const std::vector<void*>& pointers() const { return pointers_; }
  Memory& memory() { return memory_; }

 private:
  tl::unexpected<Error> failed(const std::string& what) const {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", function_.name, what));
  }

  // Nothing is bound that the kernel does not ask for: it would be an argument of another kernel.
  Result<void> check_indices() const {
    const auto has = [&](std::string_view attribute, uint32_t index) {
      for (uint32_t i = 0; i < function_.num_parameters; ++i) {
        const ParameterEntry& p = function_.parameters[i];
        if (p.attribute == attribute && p.index == index) return true;
      }
      return false;
    };
    for (const auto& [index, buffer] : dispatch_.buffers) {
      if (!has("buffer", index)) return failed(fmt::format("it has no buffer {}, which is bound", index));
      if (dispatch_.bytes.contains(index)) return failed(fmt::format("buffer {} and bytes at one index", index));
    }
    for (const auto& [index, bytes] : dispatch_.bytes) {
      if (!has("buffer", index)) return failed(fmt::format("it has no buffer {}, which is set", index));
    }
    for (const auto& [index, length] : dispatch_.threadgroup_memory) {
      if (!has("threadgroup", index)) return failed(fmt::format("it has no threadgroup memory {}", index));
    }
    return {};
  }

  Result<void> bind_buffer(uint32_t i) {
    const ParameterEntry& p = function_.parameters[i];
    const auto bytes = dispatch_.bytes.find(p.index);
    if (bytes != dispatch_.bytes.end()) return bind_bytes(i, bytes->second);
    const auto bound = dispatch_.buffers.find(p.index);
    if (bound == dispatch_.buffers.end() || bound->second.data == nullptr) {
      return failed(fmt::format("buffer {} ({}) is not bound", p.index, p.name));
    }
    const BoundBuffer& buffer = bound->second;
    const bool is_constant = std::string_view(p.space) == "constant";
    const size_t unit = is_constant ? std::max(p.element_alignment, kConstantOffsetUnit) : p.element_alignment;
    if (buffer.offset >= buffer.length || (p.is_reference && buffer.length - buffer.offset < p.element_size)) {
      return failed(fmt::format("buffer {} ({}) has {} bytes, but the offset is {}", p.index, p.name, buffer.length,
                                buffer.offset));
    }
    if (buffer.offset % unit != 0 ||
        reinterpret_cast<uintptr_t>(buffer.data + buffer.offset) % p.element_alignment != 0) {
      return failed(fmt::format("buffer {} ({}) begins at byte {}, which is no multiple of {}", p.index, p.name,
                                buffer.offset, unit));
    }
    if (p.is_written && buffer.read_only) {
      return failed(fmt::format("buffer {} ({}) is written, but only to be read", p.index, p.name));
    }
    pointers_[i] = buffer.data + buffer.offset;
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data);
    const auto poison = dispatch_.poison.find(p.index);
    memory_.add({.begin = begin,
                 .end = begin + buffer.length,
                 .name = p.name,
                 .space = Space::kDevice,
                 .is_writable = p.is_written,
                 .has_poison = poison != dispatch_.poison.end(),
                 .poison = poison == dispatch_.poison.end() ? 0 : poison->second});
    return {};
  }

  Result<void> bind_bytes(uint32_t i, const std::vector<std::byte>& bytes) {
    const ParameterEntry& p = function_.parameters[i];
    if (bytes.size() > kMaxSetBytes) {
      return failed(fmt::format("setBytes takes at most {} bytes, not {}", kMaxSetBytes, bytes.size()));
    }
    const bool fits = p.is_reference ? bytes.size() == p.element_size : !bytes.empty();
    if (!fits || p.is_written) {
      return failed(fmt::format("buffer {} ({}) of {} bytes cannot be set to {} bytes", p.index, p.name, p.element_size,
                                bytes.size()));
    }
    auto& copy = copies_.emplace_back((bytes.size() + 15) / 16);  // as aligned as any type
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    pointers_[i] = copy.data();
    const auto begin = reinterpret_cast<uintptr_t>(copy.data());
    memory_.add({.begin = begin, .end = begin + bytes.size(), .name = p.name});
    return {};
  }

  Result<void> reserve_threadgroup_memory(uint32_t i) {
    const ParameterEntry& p = function_.parameters[i];
    const auto found = dispatch_.threadgroup_memory.find(p.index);
    if (found == dispatch_.threadgroup_memory.end() || found->second == 0) {
      return failed(fmt::format("threadgroup memory {} ({}) has no length", p.index, p.name));
    }
    if (found->second % kThreadgroupMemoryUnit != 0) {
      return failed(fmt::format("threadgroup memory {} ({}) of {} bytes, no multiple of {}", p.index, p.name,
                                found->second, kThreadgroupMemoryUnit));
    }
    threadgroup_bytes_ += found->second;
    in_threadgroup_.emplace_back(i, found->second);
    return {};
  }

  void place_threadgroup_memory() {
    size_t bytes = kGuardBytes;
    for (const auto& [i, length] : in_threadgroup_) bytes += length + kGuardBytes;
    threadgroup_memory_.resize(bytes / 16 + 1);
    auto* next = reinterpret_cast<std::byte*>(threadgroup_memory_.data()) + kGuardBytes;
    for (const auto& [i, length] : in_threadgroup_) {
      pointers_[i] = next;
      const auto begin = reinterpret_cast<uintptr_t>(next);
      memory_.add({.begin = begin,
                   .end = begin + length,
                   .name = function_.parameters[i].name,
                   .space = Space::kThreadgroup,
                   .is_writable = true});
      next += length + kGuardBytes;
    }
  }

  struct alignas(16) Unit {
    std::byte bytes[16];
  };

  const FunctionEntry& function_;
  const Dispatch& dispatch_;
  std::vector<void*> pointers_;
  std::vector<std::vector<Unit>> copies_;
  std::vector<std::pair<uint32_t, uint32_t>> in_threadgroup_;  // parameter, bytes
  std::vector<Unit> threadgroup_memory_;
  size_t threadgroup_bytes_ = 0;
  Memory memory_;
};

Result<void> check_size(const Dispatch& dispatch) {
  const auto failed = [&](const std::string& what) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", dispatch.function, what));
  };
  const Extent& size = dispatch.threads_per_threadgroup;
  const Extent& grid = dispatch.threadgroups;
  const uint64_t threads = uint64_t{size.x} * size.y * size.z;
  const uint64_t threadgroups = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMaxThreads) {
    return failed(fmt::format("threadgroups of {} threads; at most {}", threads, kMaxThreads));
  }
  if (threads % kLanes != 0) {
    return failed(fmt::format("threadgroups of {} threads; kernels here need whole simdgroups of {}", threads, kLanes));
  }
  if (threadgroups == 0 || threadgroups > Stamp::kMaxThreadgroups) {
    return failed(fmt::format("{} threadgroups; from 1 to {}", threadgroups, Stamp::kMaxThreadgroups));
  }
  return {};
}

// Every function constant has a value of its type, and there are no others.
Result<void> set_constants(const FunctionEntry& function, const Dispatch& dispatch) {
  static constexpr const char* kTypes[] = {"bool", "int", "uint", "float"};  // in the order of the variant
  const auto failed = [&](const std::string& what) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", function.name, what));
  };
  size_t num_set = 0;
  for (uint32_t i = 0; i < function.num_constants; ++i) {
    const ConstantEntry& entry = function.constants[i];
    const auto given = dispatch.constants.find(entry.index);
    if (given == dispatch.constants.end()) {
      return failed(fmt::format("function constant {} ({}) has no value", entry.index, entry.name));
    }
    if (std::string_view(entry.type) != kTypes[given->second.value.index()]) {
      return failed(fmt::format("function constant {} ({}) is of type {}, its value of type {}", entry.index,
                                entry.name, entry.type, kTypes[given->second.value.index()]));
    }
    std::visit([&](const auto& value) { std::memcpy(entry.value, &value, sizeof value); }, given->second.value);
    ++num_set;
  }
  if (num_set != dispatch.constants.size()) return failed("there is no function constant of a given index");
  return {};
}

}  // namespace

void set_lane_order(LaneOrder order) {
  lane_order = order;
}

uint64_t num_checked_accesses() {
  return gpu().num_checked();
}

Result<void> run(const Dispatch& dispatch) {
  static std::mutex one_at_a_time;  // there is one emulated GPU
  const std::lock_guard lock(one_at_a_time);
  const FunctionEntry* function = find_function(dispatch.function);
  if (function == nullptr) {
    return make_error(ErrorCode::kNotFound, fmt::format("no kernel is called {}", dispatch.function));
  }
  KIPP_TRY(check_size(dispatch));
  KIPP_TRY(set_constants(*function, dispatch));
  Arguments arguments(*function, dispatch);
  KIPP_TRY(arguments.bind());
  const std::string finding = gpu().run(*function, dispatch, arguments.pointers(), arguments.memory(), lane_order);
  if (!finding.empty()) return make_error(ErrorCode::kInternal, finding);
  return {};
}

}  // namespace kipp::metal_emulation
