// One dot product in double for each id of the vocabulary.
#include "gates/reference_head.h"

#include <cstring>

#include "base/bf16.h"

namespace kipp::gates {
namespace {

constexpr size_t kLanes = 16;
constexpr int64_t kGrain = 2048;  // rows: a fraction of a millisecond at the smallest hidden width

// hidden widths are multiples of 16 (the registry's are multiples of 64).
double dot(const std::byte* row, std::span<const float> hidden) {
  double lanes[kLanes] = {};
  for (size_t i = 0; i < hidden.size(); i += kLanes) {
    uint16_t weights[kLanes];
    std::memcpy(weights, row + i * sizeof(uint16_t), sizeof weights);
    for (size_t l = 0; l < kLanes; ++l) {
      lanes[l] += static_cast<double>(bf16_to_f32(weights[l])) * static_cast<double>(hidden[i + l]);
    }
  }
  double sum = 0.0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

}  // namespace

ReferenceHead::ReferenceHead(const ModelFile& file, int32_t num_threads)
    : weights_(file.bytes().subspan(file.weights().output_head.offset, file.weights().output_head.bytes)),
      hidden_(static_cast<size_t>(file.info().dimensions.hidden)),
      threads_(num_threads),
      logits_(static_cast<size_t>(file.info().dimensions.vocab)) {}

std::span<const double> ReferenceHead::logits(std::span<const float> hidden) {
  threads_.parallel_for(static_cast<int64_t>(logits_.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (auto id = static_cast<size_t>(begin); id < static_cast<size_t>(end); ++id) {
      logits_[id] = dot(weights_.data() + id * hidden_ * sizeof(uint16_t), hidden);
    }
  });
  return logits_;
}

}  // namespace kipp::gates
