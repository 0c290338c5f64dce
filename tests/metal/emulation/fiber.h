// A stack of its own for each thread of a threadgroup, and the switch between two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kipp::metal_emulation {

inline constexpr size_t kStackBytes = size_t{128} << 10;

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() calls entry(argument) on this stack; entry never returns, but ends in a last suspend(). Whatever
  // ran on the stack before is forgotten without being unwound.
  void start(void (*entry)(void*), void* argument);
  void resume();   // from the scheduler, until the fiber suspends
  void suspend();  // from the fiber, back to the scheduler

  uintptr_t stack_begin() const;
  uintptr_t stack_end() const { return stack_begin() + kStackBytes; }

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace kipp::metal_emulation
