// Limits of the machine, measured with the same number of threads as a model runs on: reading memory, and the
// product-sums of an instruction set. They swing with the host's other load, so they are measured beside each figure
// that is compared with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels.h"
#include "kipp/error.h"

namespace kipp::cpu {

// Per second, the best of a few passes. 0: the instruction set lacks the instruction.
struct ProbeRates {
  double read_memory = 0;  // bytes; anonymous memory in huge pages where the system gives them
  double read_mapped = 0;  // bytes; the given bytes, on their own pages
  double fp32 = 0;         // operations, a product and a sum being two
  double bf16_dot = 0;     // vdpbf16ps
  double bf16_tile = 0;    // TDPBF16PS
  double int8 = 0;         // vpdpbusd
};

// The fastest way of this instruction set to multiply BF16, for a share of it: "TDPBF16PS", "vdpbf16ps", or "FP32".
struct MatrixRate {
  std::string_view instruction;
  double operations_per_second;
};
MatrixRate matrix_rate(const ProbeRates& rates);

class Probe {
 public:
  // Sizes: at most 1 GiB of `mapped` is read, and as much anonymous memory is taken, or a quarter of what is available
  // if that is less. mapped must outlive the probe. Errors: kCapacity (memory, threads).
  static Result<Probe> create(const Kernels& kernels, int32_t num_threads, std::span<const std::byte> mapped);
  Probe(Probe&& other) noexcept;
  Probe& operator=(Probe&& other) noexcept;
  ~Probe();

  // Some tenths of a second. Errors: kCapacity (threads).
  Result<ProbeRates> measure() const;

  size_t memory_bytes() const;  // anonymous memory that is read
  size_t mapped_bytes() const;

 private:
  struct Impl;
  explicit Probe(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kipp::cpu
