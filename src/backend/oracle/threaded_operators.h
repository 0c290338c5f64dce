// The oracle's operators with their rows split over threads. Each result element is computed by one thread in one
// order, so that the number of threads cannot change a bit.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/host/operators.h"
#include "base/thread_pool.h"
#include "model/operators.h"

namespace kipp::oracle {

class ThreadedOperators final : public host::Operators {
 public:
  explicit ThreadedOperators(int32_t num_threads) : threads_(num_threads) {}

  void begin_step(std::span<const int32_t> /*positions*/, const Dimensions& /*dimensions*/) override {}
  void embedding(const EmbeddingArgs& args) override;                                                 // split by token
  void rms_norm(const RmsNormArgs& args) override;                                                    // by row
  void matmul(std::span<const host::Product> products, const float* x, int32_t num_tokens) override;  // output feature
  void rope(const RopeArgs& args) override;                                                           // by token
  void kv_write(std::span<const KvWriteArgs> spans) override;                                         // by span
  void attention(std::span<const AttentionArgs> spans) override;  // by token and query head, span after span
  void stateless_attention(const host::StatelessAttentionArgs& args) override;
  void swiglu(const SwigluArgs& args) override;             // by element
  void residual_add(const ResidualAddArgs& args) override;  // by element
  ThreadPool& threads() override { return threads_; }

  Report report() const override;
  const OperatorTable& table() const override;

 private:
  // Counted under `name`, one of counts_; items of about `item_cost` operations each.
  void for_each(const char* name, int64_t count, int64_t item_cost, const ThreadPool::Body& body);
  void matmul(const host::Matrix& weight, const float* x, float* out, int32_t num_tokens);

  ThreadPool threads_;
  // Every kernel class that the oracle has, with how often it ran.
  std::map<std::string, uint64_t, std::less<>> counts_ = {
      {"attention_bf16", 0}, {"attention_f32", 0}, {"embedding", 0},
      {"kv_write_bf16", 0},  {"kv_write_f32", 0},  {"matmul_affine4_gs32", 0},
      {"matmul_bf16", 0},    {"matmul_q8_0", 0},   {"residual_add", 0},
      {"rms_norm", 0},       {"rope", 0},          {"stateless_attention", 0},
      {"swiglu", 0}};
};

}  // namespace kipp::oracle
