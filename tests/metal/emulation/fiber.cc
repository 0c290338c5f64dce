// See fiber.h.
// On x86-64 a switch is a dozen instructions; elsewhere it is the C library's, which costs system calls.
#include "metal/emulation/fiber.h"

#include <cstring>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__x86_64__)
extern "C" void kipp_metal_fiber_switch(void** leave, void* enter);
extern "C" void kipp_metal_fiber_begin();
// Keeps what a called function must keep, swaps stacks, and returns into whatever the other one called from. The first
// time that is kipp_metal_fiber_begin, with function and argument in r12 and r13.
asm(R"(
.text
.globl kipp_metal_fiber_switch
.type kipp_metal_fiber_switch, @function
kipp_metal_fiber_switch:
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
.size kipp_metal_fiber_switch, . - kipp_metal_fiber_switch
.globl kipp_metal_fiber_begin
.type kipp_metal_fiber_begin, @function
kipp_metal_fiber_begin:
  movq %r13, %rdi
  callq *%r12
  ud2
.size kipp_metal_fiber_begin, . - kipp_metal_fiber_begin
)");
#endif

namespace kipp::metal_emulation {

struct FiberContext {
  std::unique_ptr<std::byte[]> stack;
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t state;
#endif
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;
};

Fiber::Fiber() : context_(std::make_unique<FiberContext>()) {
  context_->stack = std::make_unique<std::byte[]>(kStackBytes);
  context_->bottom = context_->stack.get();
  context_->size = kStackBytes;
}

Fiber::Fiber(std::unique_ptr<FiberContext> context) : context_(std::move(context)) {}
Fiber::~Fiber() = default;
Fiber::Fiber(Fiber&&) noexcept = default;

Fiber Fiber::of_caller() {
  return Fiber(std::make_unique<FiberContext>());
}

uintptr_t Fiber::stack_begin() const {
  return reinterpret_cast<uintptr_t>(context_->stack.get());
}

#if defined(__x86_64__)
void Fiber::prepare(void (*function)(void*), void* argument) {
  // Six registers and a return address; the stack is 16-byte aligned once that was popped.
  auto top = (reinterpret_cast<uintptr_t>(context_->stack.get()) + kStackBytes) & ~uintptr_t{15};
  auto* slots = reinterpret_cast<void**>(top - 7 * sizeof(void*));
  slots[0] = nullptr;                            // r15
  slots[1] = nullptr;                            // r14
  slots[2] = argument;                           // r13
  slots[3] = reinterpret_cast<void*>(function);  // r12
  slots[4] = nullptr;                            // rbx
  slots[5] = nullptr;                            // rbp
  slots[6] = reinterpret_cast<void*>(&kipp_metal_fiber_begin);
  context_->stack_pointer = slots;
}
#else
namespace {
void begin(uint32_t function_low, uint32_t function_high, uint32_t argument_low, uint32_t argument_high) {
  const auto pointer = [](uint32_t low, uint32_t high) { return uintptr_t{high} << 32 | low; };
  reinterpret_cast<void (*)(void*)>(pointer(function_low, function_high))(
      reinterpret_cast<void*>(pointer(argument_low, argument_high)));
}
}  // namespace

void Fiber::prepare(void (*function)(void*), void* argument) {
  getcontext(&context_->state);
  context_->state.uc_stack.ss_sp = context_->stack.get();
  context_->state.uc_stack.ss_size = kStackBytes;
  context_->state.uc_link = nullptr;
  const auto f = reinterpret_cast<uintptr_t>(function);
  const auto a = reinterpret_cast<uintptr_t>(argument);
  makecontext(&context_->state, reinterpret_cast<void (*)()>(begin), 4, static_cast<uint32_t>(f),
              static_cast<uint32_t>(f >> 32), static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32));
}
#endif

void Fiber::switch_to(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.context_->fake_stack, to.context_->bottom, to.context_->size);
#endif
#if defined(__x86_64__)
  kipp_metal_fiber_switch(&from.context_->stack_pointer, to.context_->stack_pointer);
#else
  swapcontext(&from.context_->state, &to.context_->state);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.context_->fake_stack, nullptr, nullptr);
#endif
}

}  // namespace kipp::metal_emulation
