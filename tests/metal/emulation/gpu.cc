// See gpu.h.
// Which threads run between two points at which they wait is decided here: in the dispatch's lane order, from the one
// that just gave way.
#include "metal/emulation/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

namespace kipp::metal_emulation {
namespace {

// Simdgroups stay together, so that lanes meet soon.
std::vector<uint32_t> order_of(uint32_t num_threads, LaneOrder order) {
  std::vector<uint32_t> threads(num_threads);
  std::iota(threads.begin(), threads.end(), 0);
  if (order == LaneOrder::kDescending) std::ranges::reverse(threads);
  if (order == LaneOrder::kScrambled) {
    std::mt19937 engine(num_threads);
    std::vector<uint32_t> simdgroups(num_threads / kLanes);
    std::iota(simdgroups.begin(), simdgroups.end(), 0);
    std::ranges::shuffle(simdgroups, engine);
    threads.clear();
    for (const uint32_t simdgroup : simdgroups) {
      std::vector<uint32_t> lanes(kLanes);
      std::iota(lanes.begin(), lanes.end(), simdgroup * kLanes);
      std::ranges::shuffle(lanes, engine);
      threads.insert(threads.end(), lanes.begin(), lanes.end());
    }
  }
  return threads;
}

}  // namespace

Gpu::Gpu() : caller_(Fiber::of_caller()) {}

// What the kernel is given lies on the thread's own stack, which it may read.
void Gpu::thread_main(void* thread) {
  Gpu& self = gpu();
  auto& me = *static_cast<Thread*>(thread);
  void* pointers[kMaxParameters];
  uint32_t numbers[kMaxParameters][3];
  std::ranges::copy(*self.pointers_, pointers);
  self.set_numbers(me, numbers);
  self.function_->call({pointers, numbers});
  me.state = ThreadState::kFinished;
  ++self.num_finished_;
  self.give_way();
}

std::string Gpu::run(const FunctionEntry& function, const Dispatch& dispatch, const std::vector<void*>& pointers,
                     Memory& memory, LaneOrder order) {
  const Extent& size = dispatch.threads_per_threadgroup;
  function_ = &function;
  pointers_ = &pointers;
  dispatch_ = &dispatch;
  memory_ = &memory;
  finding_.clear();
  num_threads_ = size.x * size.y * size.z;
  while (threads_.size() < num_threads_) threads_.emplace_back();
  simdgroups_.assign(num_threads_ / kLanes, {});
  for (const Simdgroup& simdgroup : simdgroups_) {
    const auto begin = reinterpret_cast<uintptr_t>(&simdgroup.slots);
    memory.allow_reading(begin, begin + sizeof simdgroup.slots);
  }
  order_ = order_of(num_threads_, order);
  threadgroup_ = 0;
  for (uint32_t z = 0; z < dispatch.threadgroups.z; ++z) {
    for (uint32_t y = 0; y < dispatch.threadgroups.y; ++y) {
      for (uint32_t x = 0; x < dispatch.threadgroups.x; ++x, ++threadgroup_) {
        begin_threadgroup(x, y, z);
        run_until_finished();
        if (!finding_.empty()) return finding_;
      }
    }
  }
  return {};
}

void Gpu::set_numbers(const Thread& thread, uint32_t (&numbers)[kMaxParameters][3]) const {
  const Extent& size = dispatch_->threads_per_threadgroup;
  const Extent& grid = dispatch_->threadgroups;
  const uint32_t i = thread.index;
  const uint32_t in_group[3] = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
  const uint32_t(&group)[3] = position_;
  for (uint32_t p = 0; p < function_->num_parameters; ++p) {
    const std::string_view attribute = function_->parameters[p].attribute;
    uint32_t(&out)[3] = numbers[p];
    const auto put = [&](uint32_t x, uint32_t y, uint32_t z) { out[0] = x, out[1] = y, out[2] = z; };
    if (attribute == "threadgroup_position_in_grid") put(group[0], group[1], group[2]);
    if (attribute == "thread_position_in_threadgroup") put(in_group[0], in_group[1], in_group[2]);
    if (attribute == "thread_position_in_grid") {
      put(group[0] * size.x + in_group[0], group[1] * size.y + in_group[1], group[2] * size.z + in_group[2]);
    }
    if (attribute == "threads_per_threadgroup") put(size.x, size.y, size.z);
    if (attribute == "threadgroups_per_grid") put(grid.x, grid.y, grid.z);
    if (attribute == "thread_index_in_threadgroup") put(i, 0, 0);
    if (attribute == "thread_index_in_simdgroup") put(i % kLanes, 0, 0);
    if (attribute == "simdgroup_index_in_threadgroup") put(i / kLanes, 0, 0);
    if (attribute == "simdgroups_per_threadgroup") put(num_threads_ / kLanes, 0, 0);
    if (attribute == "threads_per_simdgroup") put(kLanes, 0, 0);
  }
}

void Gpu::begin_threadgroup(uint32_t x, uint32_t y, uint32_t z) {
  const uint32_t group[3] = {x, y, z};
  std::ranges::copy(group, position_);
  num_waiting_ = num_finished_ = turn_ = 0;
  barriers_of_space_[0] = barriers_of_space_[1] = 0;
  for (Simdgroup& simdgroup : simdgroups_) {
    simdgroup.num_waiting = 0;
    simdgroup.barriers_of_space[0] = simdgroup.barriers_of_space[1] = 0;
  }
  for (uint32_t i = 0; i < num_threads_; ++i) {
    Thread& thread = threads_[i];
    thread.index = i;
    thread.state = ThreadState::kReady;
    thread.fiber.prepare(thread_main, &thread);
  }
}

void Gpu::run_until_finished() {
  current_ = next_ready();
  stack_begin_ = current_->fiber.stack_begin();
  Fiber::switch_to(caller_, current_->fiber);
  current_ = nullptr;
}

// Null when no thread is left or a barrier can never open; the caller then says why.
Thread* Gpu::next_ready() {
  for (uint32_t tried = 0; tried < num_threads_; ++tried) {
    Thread& thread = threads_[order_[turn_]];
    if (thread.state == ThreadState::kReady) return &thread;
    turn_ = turn_ + 1 == num_threads_ ? 0 : turn_ + 1;
  }
  return nullptr;
}

// All threads wait for all: they go on if they wait in the same place.
bool Gpu::release_barrier() {
  if (num_waiting_ != num_threads_) return false;
  const Thread& first = threads_[0];
  for (uint32_t i = 0; i < num_threads_; ++i) {
    if (threads_[i].line != first.line) return false;
    threads_[i].state = ThreadState::kReady;
  }
  num_waiting_ = 0;
  for (uint32_t space = 0; space < 2; ++space) {
    if ((barrier_flags_ >> space & 1U) != 0) ++barriers_of_space_[space];
    if (barriers_of_space_[space] >= Stamp::kMaxBarriers) finding_ = "more barriers than the emulator counts";
  }
  return finding_.empty();
}

// The current thread cannot go on: another one does, or the threadgroup is over.
void Gpu::give_way() {
  Thread* from = current_;
  Thread* to = next_ready();
  if (to == nullptr && release_barrier()) to = next_ready();
  if (to == from) return;
  if (to == nullptr) {
    if (num_finished_ != num_threads_ && finding_.empty()) {
      const Thread* waiting = nullptr;
      for (uint32_t i = 0; i < num_threads_ && waiting == nullptr; ++i) {
        if (threads_[i].state != ThreadState::kFinished) waiting = &threads_[i];
      }
      finding_ = fmt::format(
          "{}: thread {} waits in {} of line {}, which other threads do not reach: {} of {} have finished, {} wait in "
          "a "
          "barrier",
          place(), waiting->index, waiting->waits_in, waiting->line, num_finished_, num_threads_, num_waiting_);
    }
    Fiber::switch_to(from->fiber, caller_);
    return;
  }
  current_ = to;
  stack_begin_ = to->fiber.stack_begin();
  Fiber::switch_to(from->fiber, to->fiber);
}

void Gpu::stop(std::string finding) {
  finding_ = fmt::format("{}, thread {}: {}", place(), current_->index, finding);
  Fiber::switch_to(current_->fiber, caller_);
  std::abort();
}

std::string Gpu::place() const {
  return fmt::format("{}, threadgroup ({}, {}, {})", function_->name, position_[0], position_[1], position_[2]);
}

void Gpu::stamps_of(const Thread& thread, Stamp (&stamps)[2]) const {
  const Simdgroup& simdgroup = simdgroups_[thread.index / kLanes];
  for (uint32_t space = 0; space < 2; ++space) {
    stamps[space] =
        Stamp::of(threadgroup_, barriers_of_space_[space], simdgroup.barriers_of_space[space], thread.index);
  }
}

void Gpu::check(const Access& access) {
  ++num_checked_;
  Stamp stamps[2];
  stamps_of(*current_, stamps);
  if (!memory_->check(access, stamps)) stop(memory_->finding());
}

bool Gpu::meet(const char* name, int line) {
  Thread& me = *current_;
  Simdgroup& simdgroup = simdgroups_[me.index / kLanes];
  me.waits_in = name;
  me.line = line;
  if (++simdgroup.num_waiting < kLanes) {
    me.state = ThreadState::kAtSimdCall;
    give_way();
    return false;
  }
  const uint32_t first = me.index / kLanes * kLanes;
  for (uint32_t i = first; i < first + kLanes; ++i) {
    const Thread& lane = threads_[i];
    const bool is_same = lane.waits_in == name || std::string_view(lane.waits_in) == name;
    if (lane.line != line || !is_same) {
      stop(fmt::format("lanes of a simdgroup diverge: {} of line {}, while lane {} waits in {} of line {}", name, line,
                       i % kLanes, lane.waits_in, lane.line));
    }
  }
  return true;
}

void Gpu::release_simdgroup(uint32_t simdgroup) {
  simdgroups_[simdgroup].num_waiting = 0;
  for (uint32_t i = simdgroup * kLanes; i < (simdgroup + 1) * kLanes; ++i) threads_[i].state = ThreadState::kReady;
  turn_ = turn_ / kLanes * kLanes;  // it goes on until it waits for other simdgroups
}

const void* Gpu::exchange(const char* name, int line, const void* value, size_t size) {
  Simdgroup& simdgroup = simdgroups_[current_->index / kLanes];
  std::byte* slots = simdgroup.slots[simdgroup.parity];
  std::memcpy(slots + lane_index() * kLaneSlotBytes, value, size);
  if (meet(name, line)) {
    simdgroup.parity ^= 1U;
    release_simdgroup(current_->index / kLanes);
  }
  return slots;
}

void Gpu::matrix_operation(const MatrixCall& call, int line) {
  static constexpr const char* kNames[] = {"simdgroup_multiply", "simdgroup_multiply_accumulate", "simdgroup_load",
                                           "simdgroup_store"};
  current_->matrix = call;
  if (meet(kNames[static_cast<size_t>(call.operation)], line)) {
    const uint32_t simdgroup = current_->index / kLanes;
    if (call.memory != nullptr) {
      move_matrix(simdgroup);
    } else {
      execute_matrix(simdgroup);
    }
    release_simdgroup(simdgroup);
  }
}

void Gpu::execute_matrix(uint32_t simdgroup) {
  float a[8][8];
  float b[8][8];
  float d[8][8] = {};
  const bool accumulates = current_->matrix.operation == MatrixOperation::kMultiplyAccumulate;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const MatrixCall& call = threads_[simdgroup * kLanes + lane].matrix;
    std::memcpy(&a[0][0] + 2 * lane, call.a, 8);
    std::memcpy(&b[0][0] + 2 * lane, call.b, 8);
    if (accumulates) std::memcpy(&d[0][0] + 2 * lane, call.c, 8);
  }
  for (uint32_t k = 0; k < 8; ++k) {
    for (uint32_t i = 0; i < 8; ++i) {
      for (uint32_t j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    std::memcpy(threads_[simdgroup * kLanes + lane].matrix.d, &d[0][0] + 2 * lane, 8);
  }
}

// Four lanes share a row of what is in memory; the first of them is said to access it.
void Gpu::move_matrix(uint32_t simdgroup) {
  Thread* last = current_;
  const MatrixCall& first = threads_[simdgroup * kLanes].matrix;
  const bool is_store = first.operation == MatrixOperation::kStore;
  for (uint32_t lane = 1; lane < kLanes; ++lane) {
    const MatrixCall& call = threads_[simdgroup * kLanes + lane].matrix;
    if (call.memory != first.memory || call.elements_per_row != first.elements_per_row ||
        call.transpose != first.transpose) {
      stop("lanes of a simdgroup name different places for a matrix");
    }
  }
  for (uint32_t row = 0; row < 8; ++row) {
    const float* place = first.memory + row * first.elements_per_row;
    current_ = &threads_[simdgroup * kLanes + 4 * row];
    check({reinterpret_cast<uintptr_t>(place), 8 * sizeof(float), is_store});
    for (uint32_t column = 0; column < 8; ++column) {
      const uint32_t element = first.transpose ? column * 8 + row : row * 8 + column;
      const MatrixCall& call = threads_[simdgroup * kLanes + element / 2].matrix;
      if (is_store) {
        const_cast<float*>(place)[column] = call.a[element % 2];
      } else {
        call.d[element % 2] = place[column];
      }
    }
  }
  current_ = last;
}

void Gpu::simdgroup_barrier(unsigned flags, int line) {
  if (meet("simdgroup_barrier", line)) {
    Simdgroup& simdgroup = simdgroups_[current_->index / kLanes];
    for (uint32_t space = 0; space < 2; ++space) {
      if ((flags >> space & 1U) != 0 && ++simdgroup.barriers_of_space[space] >= Stamp::kMaxBarriers) {
        stop("more barriers than the emulator counts");
      }
    }
    release_simdgroup(current_->index / kLanes);
  }
}

void Gpu::threadgroup_barrier(unsigned flags, int line) {
  Thread& me = *current_;
  me.waits_in = "threadgroup_barrier";
  me.line = line;
  me.state = ThreadState::kAtBarrier;
  barrier_flags_ = flags;
  ++num_waiting_;
  give_way();
}

// What kernels call.
const void* exchange(const char* name, int line, const void* value, LaneSize size) {
  return gpu().exchange(name, line, value, size);
}
void matrix_operation(const MatrixCall& call, int line) {
  gpu().matrix_operation(call, line);
}
void simdgroup_barrier(unsigned flags, int line) {
  gpu().simdgroup_barrier(flags, line);
}
void threadgroup_barrier(unsigned flags, int line) {
  gpu().threadgroup_barrier(flags, line);
}
unsigned lane_index() {
  return gpu().lane_index();
}

}  // namespace kipp::metal_emulation
