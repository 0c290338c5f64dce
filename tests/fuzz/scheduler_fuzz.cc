// Any bytes as operations on a scheduler with a fake device: requests, cancels, steps, results, failures, in every
// order and mode. Each sequence must get what it gets alone, and nothing may be lost (scheduler/simulation.h).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>

#include "fuzz/require.h"
#include "scheduler/simulation.h"

namespace {

uint64_t same_hash(uint64_t /*parent*/, std::span<const int32_t> /*tokens*/, uint32_t /*generated_rows*/) {
  return 7;
}

// Numbers from bytes. When these are used up, whatever is chosen is the last possibility, which is the mildest.
class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint32_t operator()(uint32_t below) {
    if (bytes_.size() < 2) {
      bytes_ = {};
      return below - 1;
    }
    const size_t count = below > 256 ? 2 : 1;
    const uint32_t value = count == 1 ? bytes_[0] : static_cast<uint32_t>(bytes_[0]) << 8 | bytes_[1];
    bytes_ = bytes_.subspan(count);
    return value % below;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
};

kipp::simulation::SimulationOptions choose_options(Bytes& bytes) {
  const auto number = [&bytes](uint32_t below) { return static_cast<int32_t>(bytes(below)); };
  kipp::simulation::SimulationOptions options;
  options.num_blocks = 1 + number(24);
  options.num_priorities = 1 + number(3);
  options.with_failures = number(2) == 0;
  options.scheduler.context = 1 + number(256);
  options.scheduler.max_tokens_per_step = 1 + number(128);
  options.scheduler.max_sequences = 1 + number(10);
  options.scheduler.max_head_rows = 1 + number(12);
  options.scheduler.look_ahead = number(2) == 0;
  options.scheduler.prefix_cache = number(4) != 0;
  options.scheduler.block_hash = number(4) == 0 ? same_hash : kipp::hash_block;
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxBytes = 2048;  // a tenth of a second with sanitizers
  Bytes bytes({data, std::min(size, kMaxBytes)});
  const auto options = choose_options(bytes);
  kipp::simulation::Simulation simulation(options, [&bytes](uint32_t below) { return bytes(below); });
  while (!bytes.empty() && simulation.error().empty()) {
    simulation.operate();
  }
  simulation.drain();
  if (!simulation.error().empty()) {
    std::fprintf(stderr, "%s\n", simulation.error().c_str());
  }
  kipp::fuzzing::require(simulation.error().empty());
  return 0;
}
