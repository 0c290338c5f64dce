// A dispatch from validation to its last threadgroup. What is refused, Metal's validation layer refuses, too.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <span>

#include "metal/emulation/dispatch.h"
#include "metal/emulation/group.h"
#include "metal/emulation/registry.h"
#include "metal/emulation/symbols.h"

namespace kipp::metal_emulation {
namespace {

constexpr uint32_t kConstantBufferAlignment = 4;  // of offsets on Apple GPUs: Metal feature set tables

std::mutex mutex;
Order order = Order::kAscending;

tl::unexpected<Error> refuse(const Dispatch& dispatch, const std::string& message) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", dispatch.function, message));
}

const FunctionEntry* find(const std::string& name) {
  for (const FunctionEntry& entry : registry()) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// Threadgroup variables, looked up once a kernel; the first look also tells memory() what lies at program scope.
const std::vector<Range>& variables_of(const FunctionEntry& entry) {
  static std::map<std::string, std::vector<Range>> known;
  if (known.empty()) memory().set_program_scope(program_scope());
  const auto [found, fresh] = known.try_emplace(entry.name);
  if (fresh) found->second = threadgroup_variables(entry.cxx_name);
  return found->second;
}

uint64_t volume(const Extent& extent) {
  return uint64_t{extent.x} * extent.y * extent.z;
}

uint32_t bytes_of(std::span<const Range> ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), 0U, [](uint32_t sum, const Range& range) {
    return sum + static_cast<uint32_t>(range.end - range.begin + 15) / 16 * 16;
  });
}

Result<void> set_constants(const Dispatch& dispatch, const FunctionEntry& entry) {
  for (const ConstantEntry& constant : entry.constants) {
    const auto given = dispatch.constants.find(constant.facts.index);
    if (given == dispatch.constants.end()) {
      return refuse(dispatch, fmt::format("function constant {} ({}) is not set", constant.facts.index, constant.facts.name));
    }
    if (!constant.set(given->second)) {
      return refuse(dispatch, fmt::format("function constant {} ({}) is of another type than {}", constant.facts.index,
                                          constant.facts.name, constant.facts.type));
    }
  }
  return {};
}

Result<void> check_shape(const Dispatch& dispatch, const FunctionEntry& entry, std::span<const Range> threadgroup) {
  const uint64_t threads = volume(dispatch.threads_per_threadgroup);
  if (threads == 0 || threads > entry.max_threads) {
    return refuse(dispatch, fmt::format("{} threads in a threadgroup; 1 to {}", threads, entry.max_threads));
  }
  if (volume(dispatch.threadgroups) == 0) return refuse(dispatch, "no threadgroups");
  if (!dispatch.threadgroup_memory.empty()) {
    return refuse(dispatch, fmt::format("has no threadgroup argument {}", dispatch.threadgroup_memory.begin()->first));
  }
  if (bytes_of(threadgroup) > kMaxThreadgroupMemory) {
    return refuse(dispatch, fmt::format("{} bytes of threadgroup memory; at most {}", bytes_of(threadgroup),
                                        kMaxThreadgroupMemory));
  }
  return {};
}

// The memory behind argument, as a range from its offset on.
Result<Range> bind_buffer(const Dispatch& dispatch, const ArgumentFacts& argument, const BoundBuffer& buffer) {
  const auto complain = [&](const std::string& what) {
    return refuse(dispatch, fmt::format("buffer {} ({}): {}", argument.index, argument.name, what));
  };
  if (buffer.data == nullptr) return complain("is nil");
  if (buffer.offset > buffer.length) {
    return complain(fmt::format("offset {} in a buffer of {} bytes", buffer.offset, buffer.length));
  }
  const auto begin = reinterpret_cast<uintptr_t>(buffer.data) + buffer.offset;
  const uint32_t alignment = argument.reference ? std::max(argument.alignment, kConstantBufferAlignment) : argument.alignment;
  if (buffer.offset % alignment != 0 || begin % argument.alignment != 0) {
    return complain(fmt::format("offset {} is not a multiple of {}", buffer.offset, alignment));
  }
  if (argument.writable && buffer.read_only) return complain("is read-only, and the kernel may write to it");
  return Range{.begin = begin,
               .end = reinterpret_cast<uintptr_t>(buffer.data) + buffer.length,
               .writable = argument.writable,
               .name = fmt::format("buffer {} ({})", argument.index, argument.name)};
}

Result<std::vector<Range>> bind(const Dispatch& dispatch, const FunctionEntry& entry, Inputs& inputs) {
  std::vector<Range> ranges;
  for (const ArgumentFacts& argument : entry.arguments) {
    const auto buffer = dispatch.buffers.find(argument.index);
    const auto bytes = dispatch.bytes.find(argument.index);
    Range range;
    if (buffer != dispatch.buffers.end() && bytes == dispatch.bytes.end()) {
      KIPP_ASSIGN(range, bind_buffer(dispatch, argument, buffer->second));
    } else if (bytes != dispatch.bytes.end() && buffer == dispatch.buffers.end()) {
      const auto begin = reinterpret_cast<uintptr_t>(bytes->second.data());
      range = {.begin = begin, .end = begin + bytes->second.size(), .name = "bytes " + argument.name};
      if (argument.writable || bytes->second.size() > kMaxBytesLength) {
        return refuse(dispatch, fmt::format("bytes {} ({}): {} bytes of at most {}, never to be written", argument.index,
                                            argument.name, bytes->second.size(), kMaxBytesLength));
      }
    } else {
      return refuse(dispatch, fmt::format("argument {} ({}) is bound {}", argument.index, argument.name,
                                          buffer == dispatch.buffers.end() ? "to nothing" : "twice"));
    }
    if (argument.reference && range.end - range.begin < argument.size) {
      return refuse(dispatch, fmt::format("argument {} ({}) has {} bytes; {} are needed", argument.index, argument.name,
                                          range.end - range.begin, argument.size));
    }
    inputs.buffers[argument.index] = reinterpret_cast<std::byte*>(range.begin);
    ranges.push_back(std::move(range));
  }
  return ranges;
}

GridValue value(const Extent& extent) {
  return {.xyz = {extent.x, extent.y, extent.z}};
}

Extent position(uint64_t index, const Extent& extent) {
  return {.x = static_cast<uint32_t>(index % extent.x),
          .y = static_cast<uint32_t>(index / extent.x % extent.y),
          .z = static_cast<uint32_t>(index / extent.x / extent.y)};
}

void fill_grid(Inputs& inputs, const Dispatch& dispatch, const Extent& group_at, uint32_t thread) {
  const Extent& threads = dispatch.threads_per_threadgroup;
  const Extent at = position(thread, threads);
  inputs.thread_position_in_grid = value(
      {.x = group_at.x * threads.x + at.x, .y = group_at.y * threads.y + at.y, .z = group_at.z * threads.z + at.z});
  inputs.threads_per_grid = value({.x = dispatch.threadgroups.x * threads.x,
                                   .y = dispatch.threadgroups.y * threads.y,
                                   .z = dispatch.threadgroups.z * threads.z});
  inputs.thread_position_in_threadgroup = value(at);
  inputs.threads_per_threadgroup = value(threads);
  inputs.thread_index_in_threadgroup = value({.x = thread});
  inputs.threadgroup_position_in_grid = value(group_at);
  inputs.threadgroups_per_grid = value(dispatch.threadgroups);
  inputs.simdgroup_index_in_threadgroup = value({.x = thread / kSimdLanes});
  inputs.simdgroups_per_threadgroup = value({.x = static_cast<uint32_t>(volume(threads) + kSimdLanes - 1) / kSimdLanes});
  inputs.thread_index_in_simdgroup = value({.x = thread % kSimdLanes});
  inputs.threads_per_simdgroup = value({.x = kSimdLanes});
}

// In the order that is set; threadgroups of one dispatch may run in any.
std::vector<uint64_t> group_order(uint64_t count) {
  std::vector<uint64_t> groups(count);
  std::iota(groups.begin(), groups.end(), uint64_t{0});
  if (order == Order::kDescending) std::reverse(groups.begin(), groups.end());
  if (order == Order::kShuffled) std::shuffle(groups.begin(), groups.end(), std::mt19937_64(count));
  return groups;
}

Result<void> run_groups(const Dispatch& dispatch, const FunctionEntry& entry, const Inputs& inputs,
                        const std::vector<Range>& threadgroup) {
  for (const uint64_t index : group_order(volume(dispatch.threadgroups))) {
    const Extent at = position(index, dispatch.threadgroups);
    memory().begin_group(threadgroup);
    for (const Range& range : threadgroup) {
      std::memset(reinterpret_cast<void*>(range.begin), 0xFF, range.end - range.begin);
    }
    const std::string problem =
        group().run(static_cast<uint32_t>(index) + 1, static_cast<uint32_t>(volume(dispatch.threads_per_threadgroup)),
                    order, [&](uint32_t thread) {
                      Inputs own = inputs;
                      fill_grid(own, dispatch, at, thread);
                      entry.call(own);
                    });
    if (!problem.empty()) {
      return make_error(ErrorCode::kInternal, fmt::format("{}, threadgroup ({}, {}, {}), {}", dispatch.function, at.x,
                                                          at.y, at.z, problem));
    }
  }
  return {};
}

}  // namespace

std::vector<FunctionEntry>& registry() {
  static std::vector<FunctionEntry> entries;
  return entries;
}

Result<void> run(const Dispatch& dispatch) {
  const std::lock_guard lock(mutex);
  const FunctionEntry* entry = find(dispatch.function);
  if (entry == nullptr) return make_error(ErrorCode::kNotFound, fmt::format("no kernel is named {}", dispatch.function));
  KIPP_TRY(set_constants(dispatch, *entry));
  const std::vector<Range>& threadgroup = variables_of(*entry);
  KIPP_TRY(check_shape(dispatch, *entry, threadgroup));
  Inputs inputs;
  KIPP_ASSIGN(std::vector<Range> ranges, bind(dispatch, *entry, inputs));
  memory().begin_dispatch(std::move(ranges));
  return run_groups(dispatch, *entry, inputs, threadgroup);
}

std::vector<std::string> functions() {
  std::vector<std::string> names;
  for (const FunctionEntry& entry : registry()) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

Result<FunctionFacts> facts(const std::string& function) {
  const FunctionEntry* entry = find(function);
  if (entry == nullptr) return make_error(ErrorCode::kNotFound, fmt::format("no kernel is named {}", function));
  FunctionFacts facts{.max_total_threads_per_threadgroup = entry->max_threads,
                      .static_threadgroup_memory = bytes_of(variables_of(*entry)),
                      .arguments = entry->arguments,
                      .constants = {}};
  for (const ConstantEntry& constant : entry->constants) facts.constants.push_back(constant.facts);
  return facts;
}

void set_order(Order new_order) {
  const std::lock_guard lock(mutex);
  order = new_order;
}

void mark_uninitialised(const void* data, size_t length) {
  const std::lock_guard lock(mutex);
  memory().mark_uninitialised(reinterpret_cast<uintptr_t>(data), length);
}

void mark_initialised(const void* data, size_t length) {
  const std::lock_guard lock(mutex);
  memory().mark_initialised(reinterpret_cast<uintptr_t>(data), length);
}

}  // namespace kipp::metal_emulation
