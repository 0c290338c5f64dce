// What a backend that computes in host memory gives to the shared forward pass: its operators, split over threads.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/host/host_model.h"
#include "base/thread_pool.h"
#include "model/operators.h"

namespace kipp::host {

// One of several matrices that multiply the same rows.
struct Product {
  const Matrix* weight;
  float* out;  // [num_tokens][weight->rows]
};

// Attention of a whole prompt over K and V in plain FP32 arrays: token t is at position t.
struct StatelessAttentionArgs {
  const float* q;  // [num_tokens][num_query_heads][head_dim]
  const float* k;  // [num_tokens][num_kv_heads][head_dim], already rounded as the pool would store it
  const float* v;  // [num_tokens][num_kv_heads][head_dim], likewise
  KvType type;     // of that pool
  float* out;      // [num_tokens][num_query_heads][head_dim]
  int32_t num_tokens, num_query_heads, num_kv_heads, head_dim;
};

// Formulas and shapes: model/operators.h. Each result element is computed by one thread in one order, so that the
// number of threads cannot change a bit. May throw std::bad_alloc (scratch memory).
class Operators {
 public:
  virtual ~Operators() = default;

  // Called once a step, before the others: positions of the step's tokens, [num_tokens].
  virtual void begin_step(std::span<const int32_t> positions, const Dimensions& dimensions) = 0;
  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  // x: [num_tokens][columns of every weight]
  virtual void matmul(std::span<const Product> products, const float* x, int32_t num_tokens) = 0;
  virtual void rope(const RopeArgs& args) = 0;
  // All spans of the step at once, so that threads share them; no two write the same position.
  virtual void kv_write(std::span<const KvWriteArgs> spans) = 0;
  virtual void attention(std::span<const AttentionArgs> spans) = 0;
  virtual void stateless_attention(const StatelessAttentionArgs& args) = 0;
  virtual void swiglu(const SwigluArgs& args) = 0;
  virtual void residual_add(const ResidualAddArgs& args) = 0;
  // Those that operators run on, for what is no operator.
  virtual ThreadPool& threads() = 0;

  virtual Report report() const = 0;
  virtual const OperatorTable& table() const = 0;
};

}  // namespace kipp::host
