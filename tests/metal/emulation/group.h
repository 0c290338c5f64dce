// One threadgroup at a time: its threads as fibers, their barriers and exchanges, and what stops them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metal/emulation/dispatch.h"
#include "metal/emulation/fiber.h"
#include "metal/emulation/memory.h"
#include "metal/emulation/runtime.h"

namespace kipp::metal_emulation {

inline constexpr uint32_t kSimdLanes = 32;

// What a thread waits for; equal for all that may go on together.
struct Wait {
  enum class Kind : uint8_t { kNone, kBarrier, kExchange } kind = Kind::kNone;
  const char* what = "";  // "threadgroup_barrier", "simd_sum", …
  const char* file = "";
  int line = 0;
  uint32_t flags = 0;  // of a barrier

  bool same_place(const Wait& other) const;
  std::string text() const;
};

// Operands of one exchange, by lane. Two of them alternate, since fast lanes may give the next before slow ones took.
struct Exchange {
  alignas(16) std::array<std::array<std::byte, 32>, kSimdLanes> operands = {};
  alignas(16) std::array<float, 64> product = {};
  bool computed = false;
};

struct Simdgroup {
  std::array<Exchange, 2> exchanges;
};

struct Thread {
  std::unique_ptr<Fiber> fiber;
  Accessor accessor;
  Wait wait;
  bool done = false;
  uint32_t num_exchanges = 0;
};

// The threads of a threadgroup; reused from one to the next.
class Group {
 public:
  // Runs `body(thread index)` on every thread until all have returned. Empty, or what went wrong.
  std::string run(uint32_t number, uint32_t num_threads, Order order, const std::function<void(uint32_t)>& body);

  // Called on a thread:
  Thread& current() { return threads_[current_]; }
  uint32_t current_index() const { return current_; }
  uint32_t lanes_of_current() const;  // of its simdgroup, fewer than 32 in the last one
  void wait(const Wait& wait);
  // Gives `size` bytes to the exchange; returns when all lanes have.
  Exchange& exchange(const void* operand, size_t size, const Wait& wait);
  // Ends the threadgroup with this message.
  void record(std::string message);
  [[noreturn]] void abandon();
  bool running() const { return running_; }

 private:
  static void enter(void* group);
  std::vector<uint32_t> turns(Order order, uint32_t round) const;
  bool release_simdgroup(uint32_t simdgroup);
  bool release_barrier();
  std::string stuck() const;

  std::vector<Thread> threads_;
  std::vector<Simdgroup> simdgroups_;
  const std::function<void(uint32_t)>* body_ = nullptr;
  uint32_t num_threads_ = 0;
  uint32_t current_ = 0;
  bool running_ = false;  // on a thread
  std::string problem_;
};

// Of the dispatch that runs.
Group& group();
Memory& memory();

}  // namespace kipp::metal_emulation
