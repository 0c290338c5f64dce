// What the compiler's instrumentation of kernels calls, in place of the sanitizers' own libraries: every load and store
// (-fsanitize=thread) goes to the detectors, and undefined behaviour (-fsanitize=bounds, alignment, …) ends the kernel.
#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "metal/emulation/group.h"

namespace kipp::metal_emulation {
namespace {

void check(const void* pointer, size_t size, bool write) {
  Group& running = group();
  if (!running.running()) return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  Thread& thread = running.current();
  if (address >= thread.fiber->stack_begin() && address < thread.fiber->stack_end()) return;  // thread address space
  {
    std::string problem = memory().access(address, size, write, thread.accessor);
    if (problem.empty()) return;
    running.record(std::move(problem));
  }
  running.abandon();  // without being unwound: nothing that needs it is left
}

// Where the compiler says that something is wrong: the beginning of every report's data.
struct SourceLocation {
  const char* file;
  uint32_t line;
  uint32_t column;
};

void undefined(const void* data, const char* what) {
  const auto* location = static_cast<const SourceLocation*>(data);
  {
    const char* slash = std::strrchr(location->file, '/');
    group().record(fmt::format("{} at {}:{}", what, slash == nullptr ? location->file : slash + 1, location->line));
  }
  group().abandon();
}

}  // namespace
}  // namespace kipp::metal_emulation

// NOLINTBEGIN: the names are the compilers'
extern "C" {
#define KIPP_ACCESS_HOOKS(bytes)                                                                          \
  void __tsan_read##bytes(void* p) { kipp::metal_emulation::check(p, bytes, false); }                     \
  void __tsan_write##bytes(void* p) { kipp::metal_emulation::check(p, bytes, true); }                     \
  void __tsan_unaligned_read##bytes(void* p) { kipp::metal_emulation::check(p, bytes, false); }           \
  void __tsan_unaligned_write##bytes(void* p) { kipp::metal_emulation::check(p, bytes, true); }           \
  void __tsan_read_write##bytes(void* p) {                                                                \
    kipp::metal_emulation::check(p, bytes, false);                                                        \
    kipp::metal_emulation::check(p, bytes, true);                                                         \
  }                                                                                                       \
  void __tsan_volatile_read##bytes(void* p) { kipp::metal_emulation::check(p, bytes, false); }            \
  void __tsan_volatile_write##bytes(void* p) { kipp::metal_emulation::check(p, bytes, true); }
KIPP_ACCESS_HOOKS(1)
KIPP_ACCESS_HOOKS(2)
KIPP_ACCESS_HOOKS(4)
KIPP_ACCESS_HOOKS(8)
KIPP_ACCESS_HOOKS(16)
#undef KIPP_ACCESS_HOOKS
void __tsan_read_range(void* p, size_t size) { kipp::metal_emulation::check(p, size, false); }
void __tsan_write_range(void* p, size_t size) { kipp::metal_emulation::check(p, size, true); }
void* __tsan_memcpy(void* to, const void* from, size_t size) {
  kipp::metal_emulation::check(from, size, false);
  kipp::metal_emulation::check(to, size, true);
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
  kipp::metal_emulation::check(from, size, false);
  kipp::metal_emulation::check(to, size, true);
  return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
  kipp::metal_emulation::check(to, size, true);
  return std::memset(to, value, size);
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

#define KIPP_UNDEFINED_HOOK(name, what) \
  void __ubsan_handle_##name(void* data, void*, void*) { kipp::metal_emulation::undefined(data, what); }
KIPP_UNDEFINED_HOOK(out_of_bounds, "index out of the array's bounds")
KIPP_UNDEFINED_HOOK(type_mismatch_v1, "misaligned access")
KIPP_UNDEFINED_HOOK(shift_out_of_bounds, "shift out of range")
KIPP_UNDEFINED_HOOK(add_overflow, "signed overflow")
KIPP_UNDEFINED_HOOK(sub_overflow, "signed overflow")
KIPP_UNDEFINED_HOOK(mul_overflow, "signed overflow")
KIPP_UNDEFINED_HOOK(negate_overflow, "signed overflow")
KIPP_UNDEFINED_HOOK(divrem_overflow, "division by zero")
KIPP_UNDEFINED_HOOK(float_cast_overflow, "float does not fit the integer that it becomes")
KIPP_UNDEFINED_HOOK(load_invalid_value, "a bool that is neither true nor false")
#undef KIPP_UNDEFINED_HOOK
}
// NOLINTEND
