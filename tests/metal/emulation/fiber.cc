// Fibers: a few instructions on x86-64, ucontext elsewhere. AddressSanitizer is told of each switch.
#include "metal/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdlib>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define KIPP_FIBER_ASAN 1
#else
#define KIPP_FIBER_ASAN 0
#endif

#if defined(__x86_64__)
// Saves what the ABI says a call preserves, stores the stack pointer to *from, and takes the same from `to`.
extern "C" void kipp_fiber_switch(void** from, void* to);
asm(R"(
.text
.globl kipp_fiber_switch
.type kipp_fiber_switch, @function
kipp_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kipp_fiber_switch, .-kipp_fiber_switch
)");
#endif

namespace kipp::metal_emulation {

struct Fiber::State {
  std::byte* stack = nullptr;
  void (*entry)(void*) = nullptr;
  void* argument = nullptr;
#if defined(__x86_64__)
  void* fiber = nullptr;      // stack pointers
  void* scheduler = nullptr;
#else
  ucontext_t fiber = {};
  ucontext_t scheduler = {};
#endif
  const void* scheduler_stack = nullptr;
  size_t scheduler_bytes = 0;
};

namespace {

Fiber::State* starting = nullptr;  // the one that is resumed for the first time

void arrive_on_fiber([[maybe_unused]] Fiber::State& state) {
#if KIPP_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &state.scheduler_stack, &state.scheduler_bytes);
#endif
}

void begin() {
  Fiber::State& state = *starting;
  arrive_on_fiber(state);
  state.entry(state.argument);
  std::abort();  // entry never returns
}

}  // namespace

Fiber::Fiber() : state_(std::make_unique<State>()) {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  state_->stack = static_cast<std::byte*>(memory);
}

Fiber::~Fiber() {
  munmap(state_->stack, kStackBytes);
}

uintptr_t Fiber::stack_begin() const {
  return reinterpret_cast<uintptr_t>(state_->stack);
}

void Fiber::start(void (*entry)(void*), void* argument) {
  state_->entry = entry;
  state_->argument = argument;
#if defined(__x86_64__)
  // As kipp_fiber_switch leaves it: six registers, where to return to, and a return address that `begin` never uses.
  auto* top = reinterpret_cast<void**>(state_->stack + kStackBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  state_->fiber = top;
#else
  getcontext(&state_->fiber);
  state_->fiber.uc_stack.ss_sp = state_->stack;
  state_->fiber.uc_stack.ss_size = kStackBytes;
  makecontext(&state_->fiber, begin, 0);
#endif
}

void Fiber::resume() {
  starting = state_.get();
#if KIPP_FIBER_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, state_->stack, kStackBytes);
#endif
#if defined(__x86_64__)
  kipp_fiber_switch(&state_->scheduler, state_->fiber);
#else
  swapcontext(&state_->scheduler, &state_->fiber);
#endif
#if KIPP_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#if KIPP_FIBER_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, state_->scheduler_stack, state_->scheduler_bytes);
#endif
#if defined(__x86_64__)
  kipp_fiber_switch(&state_->fiber, state_->scheduler);
#else
  swapcontext(&state_->fiber, &state_->scheduler);
#endif
#if KIPP_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake, &state_->scheduler_stack, &state_->scheduler_bytes);
#endif
}

}  // namespace kipp::metal_emulation
