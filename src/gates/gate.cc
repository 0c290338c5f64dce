// Opening what gates work on, and the parts of a record that all phases share.
#include "gates/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kipp::gates {

Result<GateInput> GateInput::open(GateSetup setup, const std::filesystem::path& vectors_folder) {
  KIPP_ASSIGN(ModelFile file, ModelFile::open(setup.artifact, {.allow_synthetic = setup.allow_synthetic}));
  return open(std::move(setup), std::move(file), vectors_folder);
}

Result<GateInput> GateInput::open(GateSetup setup, ModelFile file, const std::filesystem::path& vectors_folder) {
  KIPP_ASSIGN(VectorSet vectors, load_vectors(vectors_folder, file.info().dimensions));
  return GateInput{std::move(setup), std::move(file), std::move(vectors)};
}

NearTieRule GateInput::near_tie_rule() const {
  const WeightView& head = file.weights().output_head;
  return {file.bytes().subspan(head.offset, head.bytes), static_cast<size_t>(file.info().dimensions.hidden)};
}

size_t GateInput::longest_prompt() const {
  size_t longest = 0;
  for (const PromptVectors& prompt : vectors.prompts) {
    longest = std::max(longest, prompt.ids.size());
  }
  return longest;
}

Result<std::unique_ptr<Model>> GateInput::open_model(const ModelChanges& changes) const {
  const auto wanted = static_cast<int32_t>(longest_prompt()) + kNumGreedy;
  const bool other = !changes.backend.empty() && changes.backend != setup.backend;
  return Model::open(setup.artifact, {.backend = other ? changes.backend : setup.backend,
                                      .precision = changes.precision.value_or(setup.precision),
                                      .isa = changes.isa,
                                      .num_threads = setup.num_threads,
                                      .context = std::min(wanted, file.info().dimensions.context),
                                      .num_blocks = changes.num_blocks,
                                      .device = other ? 0 : setup.device,
                                      .allow_synthetic = setup.allow_synthetic,
                                      .round_kv = changes.round_kv,
                                      .placement_seed = changes.placement_seed});
}

void GateInput::progress(std::string_view line) const {
  if (setup.on_progress) {
    setup.on_progress(line);
  }
}

void PhaseRecord::fail(std::string_view where, std::string_view what) {
  failures.push_back(where.empty() ? std::string(what) : fmt::format("{}: {}", where, what));
}

void PhaseRecord::fail_all(std::string_view where, const std::vector<std::string>& reasons) {
  for (const std::string& reason : reasons) {
    fail(where, reason);
  }
}

namespace {

double kv_rounding(const VectorSet& vectors, std::string_view figure) {
  const Json* found = vectors.kv_rounding.find(figure);
  return found == nullptr ? 0.0 : kKvRoundingFactor * found->as_double().value_or(0.0);
}

}  // namespace

double phase1_bound(const VectorSet& vectors) {
  return vectors.nmse_max.value_or(std::max(kPhase1Nmse, kv_rounding(vectors, "worst_prompt_nmse")));
}

double phase1_row_bound(const VectorSet& vectors) {
  return std::max(kWorstRowFactor * vectors.nmse_max.value_or(kPhase1Nmse), kv_rounding(vectors, "worst_nmse"));
}

}  // namespace kipp::gates
