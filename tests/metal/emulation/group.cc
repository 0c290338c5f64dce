// Threads run in turns until each waits or has returned; then whoever waits together goes on together.
#include "metal/emulation/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace kipp::metal_emulation {

bool Wait::same_place(const Wait& other) const {
  return kind == other.kind && line == other.line && std::strcmp(file, other.file) == 0 &&
         std::strcmp(what, other.what) == 0;
}

std::string Wait::text() const {
  const char* slash = std::strrchr(file, '/');
  return fmt::format("{} at {}:{}", what, slash == nullptr ? file : slash + 1, line);
}

Group& group() {
  static Group instance;
  return instance;
}

Memory& memory() {
  static Memory instance;
  return instance;
}

void Group::enter(void* argument) {
  auto& self = *static_cast<Group*>(argument);
  (*self.body_)(self.current_);
  self.current().done = true;
  self.current().wait = {};
  self.current().fiber->suspend();
}

std::vector<uint32_t> Group::turns(Order order, uint32_t round) const {
  std::vector<uint32_t> threads(num_threads_);
  std::iota(threads.begin(), threads.end(), 0U);
  if (order == Order::kDescending) std::reverse(threads.begin(), threads.end());
  if (order == Order::kShuffled) {
    std::mt19937 engine(round);
    std::shuffle(threads.begin(), threads.end(), engine);
  }
  return threads;
}

std::string Group::run(uint32_t number, uint32_t num_threads, Order order, const std::function<void(uint32_t)>& body) {
  body_ = &body;
  num_threads_ = num_threads;
  problem_.clear();
  if (threads_.size() < num_threads) threads_.resize(num_threads);
  const uint32_t num_simdgroups = (num_threads + kSimdLanes - 1) / kSimdLanes;
  if (simdgroups_.size() < num_simdgroups) simdgroups_.resize(num_simdgroups);
  for (uint32_t i = 0; i < num_threads; ++i) {
    Thread& thread = threads_[i];
    if (!thread.fiber) thread.fiber = std::make_unique<Fiber>();
    thread.accessor = {.group = number, .thread = i};
    thread.wait = {};
    thread.done = false;
    thread.num_exchanges = 0;
    thread.fiber->start(enter, this);
  }
  std::vector<uint32_t> threads = turns(order, number);
  for (uint32_t round = 1;; ++round) {
    bool any_ran = false;
    for (const uint32_t i : threads) {
      if (threads_[i].done || threads_[i].wait.kind != Wait::Kind::kNone) continue;
      current_ = i;
      running_ = true;
      threads_[i].fiber->resume();
      running_ = false;
      any_ran = true;
      if (!problem_.empty()) return fmt::format("thread {}: {}", i, problem_);
    }
    bool released = release_barrier();
    for (uint32_t s = 0; s < num_simdgroups; ++s) released = release_simdgroup(s) || released;
    if (!released && !any_ran) break;
    if (order == Order::kShuffled) threads = turns(order, number + round);
  }
  return stuck();
}

// All lanes wait for the same exchange or simdgroup barrier.
bool Group::release_simdgroup(uint32_t simdgroup) {
  const uint32_t begin = simdgroup * kSimdLanes;
  const uint32_t end = std::min(begin + kSimdLanes, num_threads_);
  const Wait first = threads_[begin].wait;
  const bool is_barrier = std::strcmp(first.what, "simdgroup_barrier") == 0;
  if (first.kind == Wait::Kind::kNone || (first.kind == Wait::Kind::kBarrier && !is_barrier)) return false;
  for (uint32_t i = begin; i < end; ++i) {
    if (threads_[i].done || !threads_[i].wait.same_place(first)) return false;
  }
  for (uint32_t i = begin; i < end; ++i) {
    threads_[i].wait = {};
    for (size_t s = 0; s < 2 && is_barrier; ++s) threads_[i].accessor.simd_epoch[s] += first.flags >> s & 1;
  }
  return true;
}

bool Group::release_barrier() {
  const Wait first = threads_[0].wait;
  if (first.kind != Wait::Kind::kBarrier || std::strcmp(first.what, "threadgroup_barrier") != 0) return false;
  for (uint32_t i = 0; i < num_threads_; ++i) {
    if (threads_[i].done || !threads_[i].wait.same_place(first)) return false;
  }
  for (uint32_t i = 0; i < num_threads_; ++i) {
    threads_[i].wait = {};
    for (size_t s = 0; s < 2; ++s) threads_[i].accessor.epoch[s] += first.flags >> s & 1;
  }
  return true;
}

// Empty if all threads have returned; else who waits for whom.
std::string Group::stuck() const {
  const auto state = [&](uint32_t i) {
    return threads_[i].done ? std::string("has returned") : fmt::format("waits in {}", threads_[i].wait.text());
  };
  for (uint32_t i = 0; i < num_threads_; ++i) {
    if (threads_[i].done) continue;
    const Wait& wait = threads_[i].wait;
    const bool simd = wait.kind == Wait::Kind::kExchange || std::strcmp(wait.what, "simdgroup_barrier") == 0;
    const uint32_t begin = simd ? i / kSimdLanes * kSimdLanes : 0;
    const uint32_t end = simd ? std::min(begin + kSimdLanes, num_threads_) : num_threads_;
    for (uint32_t j = begin; j < end; ++j) {
      if (threads_[j].done || !threads_[j].wait.same_place(wait)) {
        return fmt::format("thread {} {}, thread {} {}: not all threads come here (divergence)", i, state(i), j, state(j));
      }
    }
  }
  return {};
}

uint32_t Group::lanes_of_current() const {
  return std::min(kSimdLanes, num_threads_ - current_ / kSimdLanes * kSimdLanes);
}

void Group::wait(const Wait& wait) {
  Thread& thread = current();
  thread.wait = wait;
  thread.fiber->suspend();
}

Exchange& Group::exchange(const void* operand, size_t size, const Wait& wait) {
  Thread& thread = current();
  Exchange& exchange = simdgroups_[current_ / kSimdLanes].exchanges[thread.num_exchanges++ % 2];
  std::memcpy(exchange.operands[current_ % kSimdLanes].data(), operand, size);
  exchange.computed = false;
  this->wait(wait);
  return exchange;
}

void Group::record(std::string message) {
  if (problem_.empty()) problem_ = std::move(message);
}

void Group::abandon() {
  current().fiber->suspend();
  std::abort();  // nobody resumes it
}

}  // namespace kipp::metal_emulation
