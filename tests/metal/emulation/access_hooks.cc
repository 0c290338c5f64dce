// The functions that a compiler's -fsanitize=thread makes kernels call before each access to memory that others may
// see. No sanitizer is linked: only kernels are compiled so, and these are all that they call.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "metal/emulation/gpu.h"

namespace {

void note(const void* address, size_t bytes, bool is_write) {
  kipp::metal_emulation::gpu().access({reinterpret_cast<uintptr_t>(address), bytes, is_write});
}

}  // namespace

#define KIPP_ACCESS_HOOKS(bytes)                      \
  void __tsan_read##bytes(void* address) {            \
    note(address, bytes, false);                      \
  }                                                   \
  void __tsan_write##bytes(void* address) {           \
    note(address, bytes, true);                       \
  }                                                   \
  void __tsan_unaligned_read##bytes(void* address) {  \
    note(address, bytes, false);                      \
  }                                                   \
  void __tsan_unaligned_write##bytes(void* address) { \
    note(address, bytes, true);                       \
  }

extern "C" {
KIPP_ACCESS_HOOKS(1)
KIPP_ACCESS_HOOKS(2)
KIPP_ACCESS_HOOKS(4)
KIPP_ACCESS_HOOKS(8)
KIPP_ACCESS_HOOKS(16)
void __tsan_read_range(void* address, unsigned long bytes) {
  note(address, bytes, false);
}
void __tsan_write_range(void* address, unsigned long bytes) {
  note(address, bytes, true);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
  note(from, bytes, false);
  note(to, bytes, true);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, unsigned long bytes) {
  note(to, bytes, true);
  return std::memset(to, value, bytes);
}
}
