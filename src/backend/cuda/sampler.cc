// See sampler.h. Parameters go through pinned memory, of which each of two steps under way has its own.
#include "backend/cuda/sampler.h"

#include <algorithm>

namespace kipp::cuda {
namespace {

struct Places {
  std::byte* workspace;
  SampleResult* results;
  int32_t* ids;
};

Places take(Arena& arena, int32_t max_rows, int32_t num_tokens) {
  const auto rows = static_cast<size_t>(max_rows);
  return {.workspace = arena.take<std::byte>(sample_workspace_bytes(max_rows, num_tokens)),
          .results = arena.take<SampleResult>(rows),
          .ids = arena.take<int32_t>(rows)};
}

}  // namespace

size_t Sampler::bytes(int32_t max_rows, int32_t num_tokens) {
  Arena arena;
  take(arena, max_rows, num_tokens);
  return arena.used();
}

Result<Sampler> Sampler::create(int32_t max_rows, int32_t vocab, int32_t num_tokens, const Stream& stream) {
  Sampler sampler(vocab, num_tokens);
  KIPP_ASSIGN(sampler.memory_, allocate_device(bytes(max_rows, num_tokens), "sampling"));
  Arena arena(sampler.memory_.data());
  const Places places = take(arena, max_rows, num_tokens);
  sampler.workspace_ = {.data = places.workspace, .num_rows = max_rows};
  sampler.results_ = places.results;
  sampler.ids_ = places.ids;
  sampler.max_rows_ = max_rows;
  KIPP_ASSIGN(sampler.returned_,
              allocate_pinned(2 * static_cast<size_t>(max_rows) * sizeof(SampleResult), "results of sampling"));
  sampler.slots_.assign(2, SampleRows(vocab, num_tokens));
  KIPP_CUDA_TRY(clear_sample_workspace(sampler.workspace_, num_tokens, stream.get()), "preparing sampling");
  return sampler;
}

// The parameters, through pinned memory of the slot: that of the other slot may still be on its way.
Result<void> Sampler::upload(const SampleRows& rows, size_t slot, const LaunchContext& context) {
  const size_t bytes = rows.layout().bytes;
  if (staged_[slot].bytes() < bytes) {
    KIPP_ASSIGN(staged_[slot], allocate_pinned(2 * bytes, "parameters of sampling"));
  }
  if (parameters_.bytes() < bytes) {
    KIPP_CUDA_TRY(cudaStreamSynchronize(context.stream), "sampling");  // a step under way reads the old ones
    KIPP_ASSIGN(parameters_, allocate_device(2 * bytes, "parameters of sampling"));
  }
  rows.write({staged_[slot].data(), bytes});
  return check(cudaMemcpyAsync(parameters_.data(), staged_[slot].data(), bytes, cudaMemcpyHostToDevice, context.stream),
               "uploading parameters of sampling");
}

Result<void> Sampler::enqueue(std::span<const SampleRow> requests, const float* logits, size_t slot,
                              const LaunchContext& context) {
  SampleRows& rows = slots_[slot];
  KIPP_TRY(rows.assign(requests));
  const SampleArgs args{.logits = logits,
                        .stride = vocab_,
                        .num_rows = static_cast<int32_t>(requests.size()),
                        .num_tokens = num_tokens_,
                        .results = results_,
                        .ids = ids_,
                        .workspace = workspace_};
  const SampleNeeds needs = rows.needs();
  if (!needs.options) {
    KIPP_CUDA_TRY(sample_greedy(args, context), "sampling");
  } else {
    KIPP_TRY(upload(rows, slot, context));
    const SampleLayout layout = rows.layout();
    const SampleBatch batch{.params = reinterpret_cast<const SampleParams*>(parameters_.data() + layout.params),
                            .edits = reinterpret_cast<const LogitEdit*>(parameters_.data() + layout.edits),
                            .masks = reinterpret_cast<const uint32_t*>(parameters_.data() + layout.masks),
                            .mask_words = rows.mask_words(),
                            .cuts = needs.cuts,
                            .cuts_by_weight = needs.cuts_by_weight,
                            .draws = needs.draws,
                            .logprobs = needs.logprobs,
                            .top_logprobs = needs.top_logprobs};
    KIPP_CUDA_TRY(sample(args, batch, context), "sampling");
  }
  return check(
      cudaMemcpyAsync(returned_.data() + slot * static_cast<size_t>(max_rows_) * sizeof(SampleResult), results_,
                      requests.size() * sizeof(SampleResult), cudaMemcpyDeviceToHost, context.stream),
      "reading back what was sampled");
}

void Sampler::read(size_t slot, std::span<RowResult> rows) const {
  const auto* results = reinterpret_cast<const SampleResult*>(returned_.data()) + slot * static_cast<size_t>(max_rows_);
  slots_[slot].read({results, rows.size()}, rows);
}

}  // namespace kipp::cuda
