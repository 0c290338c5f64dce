// Requests as the device sampler takes them: checked, turned into integers, histories into sparse edits. Host code
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/sample_params.h"
#include "kipp/error.h"
#include "kipp/sampling.h"

namespace kipp::cuda {

// What the rows of a call need between them; a row that needs less leaves a kernel at once.
struct SampleNeeds {
  bool options;         // false: all rows are greedy and ask for nothing else (sample_greedy)
  bool cuts;            // top_k or top_p
  bool cuts_by_weight;  // top_p
  bool draws, logprobs, top_logprobs;
};

// Where the parts of the one buffer begin, in bytes.
struct SampleLayout {
  size_t params, edits, masks, bytes;
};

class SampleRows {
 public:
  // vocab: logits of a row, padding rows included; ids from num_tokens on have no token.
  SampleRows(int32_t vocab, int32_t num_tokens);

  // The errors of sample_token but for logits that are not finite, naming the row, in the same order and words; after
  // an error the rows are empty. Masks are read again by write().
  Result<void> assign(std::span<const SampleRequest> requests);

  SampleNeeds needs() const;
  SampleLayout layout() const;
  // out: [layout().bytes], 16-byte aligned and copied to a device buffer of that alignment.
  void write(std::span<std::byte> out) const;
  int32_t mask_words() const { return (num_tokens_ + 31) / 32; }

  // results: one for each row of the last assign, as the kernels have left it.
  void read(std::span<const SampleResult> results, std::span<RowResult> rows) const;

 private:
  Result<void> add(const SampleRequest& request);
  void add_edits(const SampleRequest& request);
  void count_history(const SampleRequest& request);

  int32_t vocab_, num_tokens_;
  std::vector<SampleParams> params_;
  std::vector<LogitEdit> edits_;
  std::vector<const uint32_t*> masks_;
  // Of the request at hand; all zero between requests.
  std::vector<LogitEdit> edit_of_id_;  // [num_tokens]
  std::vector<uint64_t> is_edited_;    // one bit an id: gives the edits in ascending order without sorting
};

}  // namespace kipp::cuda
