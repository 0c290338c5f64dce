// Threads of execution that give way to each other by name: one for each thread of a threadgroup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kipp::metal_emulation {

struct FiberContext;

class Fiber {
 public:
  static constexpr size_t kStackBytes = size_t{64} << 10;

  Fiber();
  ~Fiber();
  Fiber(Fiber&&) noexcept;
  Fiber& operator=(Fiber&&) = delete;

  // Runs function(argument) from its beginning at the next switch, on a stack that holds nothing; the function never
  // returns.
  void prepare(void (*function)(void*), void* argument);
  uintptr_t stack_begin() const;

  // Leaves `from`, which goes on when somebody switches to it.
  static void switch_to(Fiber& from, Fiber& to);
  // Stands for the program's own stack.
  static Fiber of_caller();

 private:
  explicit Fiber(std::unique_ptr<FiberContext> context);
  std::unique_ptr<FiberContext> context_;
};

}  // namespace kipp::metal_emulation
