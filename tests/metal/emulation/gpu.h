// The emulated GPU: one threadgroup at a time, its threads as fibers that run until they wait for each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metal/emulation/dispatch.h"
#include "metal/emulation/entry.h"
#include "metal/emulation/fiber.h"
#include "metal/emulation/machine.h"
#include "metal/emulation/memory.h"

namespace kipp::metal_emulation {

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kMaxThreads = 1024;  // of a threadgroup: every Apple GPU's limit
inline constexpr uint32_t kMaxParameters = 32;

enum class ThreadState : uint8_t { kReady, kAtSimdCall, kAtBarrier, kFinished };

struct Thread {
  Fiber fiber;
  uint32_t index = 0;  // in the threadgroup
  ThreadState state = ThreadState::kFinished;
  const char* waits_in = "";  // the call at which it waits, and its line
  int line = 0;
  MatrixCall matrix = {};
};

struct Simdgroup {
  uint32_t num_waiting = 0;
  uint32_t num_barriers = 0;
  uint32_t barriers_of_space[2] = {0, 0};
  uint32_t parity = 0;  // which half of the slots the next exchange fills
  alignas(16) std::byte slots[2][kLanes * kLaneSlotBytes];
};

class Gpu {
 public:
  Gpu();
  // Runs every threadgroup of the dispatch, whose arguments were checked. pointers: by parameter; scratch: what
  // threadgroup memory the pointers lead to. Returns what a detector found, or nothing.
  std::string run(const FunctionEntry& function, const Dispatch& dispatch, const std::vector<void*>& pointers,
                  Memory& memory, LaneOrder order);

  // Called by kernels, on a fiber.
  const void* exchange(const char* name, int line, const void* value, size_t size);
  void matrix_operation(const MatrixCall& call, int line);
  void simdgroup_barrier(unsigned flags, int line);
  void threadgroup_barrier(unsigned flags, int line);
  uint32_t lane_index() const { return current_->index % kLanes; }
  // Called before every access of a kernel.
  void access(const Access& access) {
    if (current_ == nullptr || access.address - stack_begin_ < Fiber::kStackBytes) return;
    check(access);
  }
  uint64_t num_checked() const { return num_checked_; }

 private:
  static void thread_main(void* thread);
  void begin_threadgroup(uint32_t x, uint32_t y, uint32_t z);
  void set_numbers(const Thread& thread, uint32_t (&numbers)[kMaxParameters][3]) const;
  void run_until_finished();
  Thread* next_ready();
  bool release_barrier();
  // Waits until all lanes of the simdgroup made this call; the last one finds true.
  bool meet(const char* name, int line);
  void release_simdgroup(uint32_t simdgroup);
  void execute_matrix(uint32_t simdgroup);
  void move_matrix(uint32_t simdgroup);
  void give_way();
  void check(const Access& access);
  void stamps_of(const Thread& thread, Stamp (&stamps)[2]) const;
  [[noreturn]] void stop(std::string finding);
  std::string place() const;

  const FunctionEntry* function_ = nullptr;
  const Dispatch* dispatch_ = nullptr;
  const std::vector<void*>* pointers_ = nullptr;
  Memory* memory_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Simdgroup> simdgroups_;
  std::vector<uint32_t> order_;  // of threads: whole simdgroups one after the other
  uint32_t turn_ = 0;            // index into order_
  uint32_t num_threads_ = 0, num_waiting_ = 0, num_finished_ = 0;
  uint32_t threadgroup_ = 0, position_[3] = {0, 0, 0};
  uint32_t barriers_of_space_[2] = {0, 0};
  unsigned barrier_flags_ = 0;
  Thread* current_ = nullptr;
  uintptr_t stack_begin_ = 0;
  Fiber caller_;
  std::string finding_;
  uint64_t num_checked_ = 0;
};

inline Gpu& gpu() {
  static Gpu the_gpu;
  return the_gpu;
}
const FunctionEntry* find_function(const std::string& name);

}  // namespace kipp::metal_emulation
