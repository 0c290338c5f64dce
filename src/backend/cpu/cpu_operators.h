// The cpu backend's operators: kernels of one instruction set, their work cut into tasks for a pool of threads. What a
// task computes for an element never depends on the cut.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/host/operators.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace kipp::cpu {

class CpuOperators final : public host::Operators {
 public:
  // Throws std::system_error if the system has no further thread to give.
  CpuOperators(const Kernels& kernels, Precision precision, int32_t num_threads);

  void begin_step(std::span<const int32_t> positions, const Dimensions& dimensions) override;
  void embedding(const EmbeddingArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void matmul(std::span<const host::Product> products, const float* x, int32_t num_tokens) override;
  void rope(const RopeArgs& args) override;
  void kv_write(const KvWriteArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void stateless_attention(const host::StatelessAttentionArgs& args) override;
  void swiglu(const SwigluArgs& args) override;
  void residual_add(const ResidualAddArgs& args) override;

  Report report() const override;
  const OperatorTable& table() const override;

 private:
  struct AttentionWork;

  void count(const std::string& name);
  void for_each(int64_t count, int64_t item_cost, const ThreadPool::Body& body);
  const std::byte* pack(const MatmulKernel& kernel, const float* x, int32_t num_tokens, int32_t columns);
  void attend_all(const AttentionWork& work);
  void attend_in_segments(const AttentionWork& work, int32_t num_segments);
  float* partials(size_t count);

  const Kernels& kernels_;
  Precision precision_;
  ThreadPool threads_;
  AlignedBuffer<std::byte> packed_;              // activations of the product under way
  AlignedBuffer<float> partials_;                // of an attention whose segments several threads share
  std::vector<float> cosines_, sines_;           // [positions of the step][head_dim / 2]
  std::vector<const std::byte*> keys_, values_;  // blocks of the span under way
  std::map<std::string, uint64_t, std::less<>> counts_;
};

// [num_positions][head_dim / 2] cosines and sines of the rotary angles, as the operator contract defines them.
void rotary_angles(std::span<const int32_t> positions, int32_t head_dim, float theta, std::vector<float>& cosines,
                   std::vector<float>& sines);

}  // namespace kipp::cpu
