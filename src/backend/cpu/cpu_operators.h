// The cpu backend's operators: kernels of one instruction set, their work cut into tasks for a pool of threads. What a
// task computes for an element never depends on the cut.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/attention_tasks.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/rotary_angles.h"
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
  void kv_write(std::span<const KvWriteArgs> spans) override;
  void attention(std::span<const AttentionArgs> spans) override;
  void stateless_attention(const host::StatelessAttentionArgs& args) override;
  void swiglu(const SwigluArgs& args) override;
  void residual_add(const ResidualAddArgs& args) override;
  ThreadPool& threads() override { return threads_; }

  Report report() const override;
  const OperatorTable& table() const override;

 private:
  void count(const std::string& name);
  void for_each(int64_t count, int64_t item_cost, const ThreadPool::Body& body);
  const std::byte* pack(const MatmulKernel& kernel, const float* x, int32_t num_tokens, int32_t columns);

  const Kernels& kernels_;
  Precision precision_;
  ThreadPool threads_;
  AttentionTasks attention_tasks_;
  AlignedBuffer<std::byte> packed_;  // activations of the product under way
  RotaryAngles angles_;              // of the step's positions
  std::map<std::string, uint64_t, std::less<>> counts_;
};

}  // namespace kipp::cpu
