// Draws for the head rows of a step, on the device: parameters travel there, ids and log-probabilities back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/sample.h"
#include "backend/cuda/sample_rows.h"

namespace kipp::cuda {

class Sampler {
 public:
  // Bytes of device memory that create() takes.
  static size_t bytes(int32_t max_rows, int32_t num_tokens);
  // num_tokens: ids below it may be sampled. vocab: columns of the logits. Errors: kCapacity.
  static Result<Sampler> create(int32_t max_rows, int32_t vocab, int32_t num_tokens, const Stream& stream);

  // Enqueues the draws of rows.size() rows of logits [..][vocab], and their way back into `slot` (0 or 1), from where
  // read() takes them once the stream has passed. Errors: those of the host sampler, naming the row.
  Result<void> enqueue(std::span<const SampleRow> rows, const float* logits, size_t slot, const LaunchContext& context);
  void read(size_t slot, std::span<RowResult> rows) const;

  const int32_t* ids() const { return ids_; }  // of the rows drawn last, on the device

 private:
  Sampler(int32_t vocab, int32_t num_tokens) : vocab_(vocab), num_tokens_(num_tokens) {}
  Result<void> upload(const SampleRows& rows, size_t slot, const LaunchContext& context);

  int32_t vocab_, num_tokens_;
  DeviceMemory memory_;
  SampleWorkspace workspace_{};
  SampleResult* results_ = nullptr;  // [max_rows]
  int32_t* ids_ = nullptr;           // [max_rows]
  PinnedMemory returned_;            // [2][max_rows] results
  int32_t max_rows_ = 0;
  std::vector<SampleRows> slots_;  // [2] requests of the steps under way
  PinnedMemory staged_[2];         // their parameters; grown to what was needed
  DeviceMemory parameters_;
};

}  // namespace kipp::cuda
