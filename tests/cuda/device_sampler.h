// A stream with all that the device sampler needs, from logits and requests on the host to results on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cuda/kernels/sample.h"
#include "backend/cuda/sample_rows.h"
#include "cuda/device_array.h"

namespace kipp::cuda {

// The device's side of a call, for up to max_rows rows.
class DeviceSampler {
 public:
  DeviceSampler(int32_t vocab, int32_t num_tokens, int32_t max_rows, int32_t workspace_rows)
      : rows_(vocab, num_tokens),
        vocab_(vocab),
        num_tokens_(num_tokens),
        logits_(static_cast<size_t>(max_rows) * static_cast<size_t>(vocab)),
        results_(std::vector<SampleResult>(static_cast<size_t>(max_rows))),  // of which a draw leaves parts alone
        ids_(static_cast<size_t>(max_rows)),
        workspace_(sample_workspace_bytes(workspace_rows, num_tokens)),
        workspace_rows_(workspace_rows) {
    EXPECT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    EXPECT_EQ(clear_sample_workspace({workspace_.get(), workspace_rows}, num_tokens, stream_), cudaSuccess);
  }
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;
  ~DeviceSampler() { cudaStreamDestroy(stream_); }

  SampleArgs args(int32_t num_rows) const {
    return {
        logits_.get(), vocab_, num_rows, num_tokens_, results_.get(), ids_.get(), {workspace_.get(), workspace_rows_}};
  }

  void upload(const std::vector<float>& logits) {
    EXPECT_EQ(
        cudaMemcpyAsync(logits_.get(), logits.data(), logits.size() * sizeof(float), cudaMemcpyHostToDevice, stream_),
        cudaSuccess);
  }

  // The requests' buffer; empty after an error.
  Result<SampleBatch> prepare(std::span<const SampleRequest> requests) {
    KIPP_TRY(rows_.assign(requests));
    const SampleLayout layout = rows_.layout();
    std::vector<std::byte> bytes(layout.bytes);
    rows_.write(bytes);
    buffer_.emplace_back(bytes);
    const std::byte* base = buffer_.back().get();
    const SampleNeeds needs = rows_.needs();
    return SampleBatch{reinterpret_cast<const SampleParams*>(base + layout.params),
                       reinterpret_cast<const LogitEdit*>(base + layout.edits),
                       reinterpret_cast<const uint32_t*>(base + layout.masks),
                       rows_.mask_words(),
                       needs.cuts,
                       needs.cuts_by_weight,
                       needs.draws,
                       needs.logprobs,
                       needs.top_logprobs};
  }

  std::vector<RowResult> read(int32_t num_rows) {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::vector<RowResult> rows(static_cast<size_t>(num_rows));
    rows_.read(results_.read(), rows);
    const std::vector<int32_t> ids = ids_.read();
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(ids[r], std::max(rows[r].token.id, 0)) << "row " << r;
    }
    return rows;
  }

  LaunchContext context(bool overlap) const { return {stream_, overlap}; }
  bool needs_options() const { return rows_.needs().options; }
  std::vector<float> logits() const { return logits_.read(); }

 private:
  SampleRows rows_;
  int32_t vocab_, num_tokens_;
  DeviceArray<float> logits_;
  DeviceArray<SampleResult> results_;
  DeviceArray<int32_t> ids_;
  DeviceArray<std::byte> workspace_;
  std::vector<DeviceArray<std::byte>> buffer_;  // kept: kernels may still read them
  int32_t workspace_rows_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace kipp::cuda
