// The reference's logits at every position, recomputed from its final hidden states: stored in full they would be too
// large for the repository. final_hidden × the BF16 head in double, which adds no error that an NMSE could see.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "gguf/model_file.h"

namespace kipp::gates {

class ReferenceHead {
 public:
  // The file must outlive the head. num_threads >= 1.
  ReferenceHead(const ModelFile& file, int32_t num_threads);

  // hidden: [hidden] after the last norm. Returns [vocab], valid until the next call.
  std::span<const double> logits(std::span<const float> hidden);

 private:
  std::span<const std::byte> weights_;  // [vocab][hidden] bf16
  size_t hidden_;
  ThreadPool threads_;
  std::vector<double> logits_;
};

}  // namespace kipp::gates
