// See reference_twin.h.
#include "gates/reference_twin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "backend/backend.h"
#include "gates/greedy.h"

namespace kipp::gates {
namespace {

GateSetup twin_setup() {
  return {
      .artifact = KIPP_TWIN_ARTIFACT, .num_threads = 2, .allow_synthetic = true, .on_progress = {}, .is_cancelled = {}};
}

template <typename T>
T value_or_exit(Result<T> result) {
  if (!result) {
    std::cerr << result.error().message << "\n";
    std::exit(1);
  }
  return *std::move(result);
}

PromptVectors make_prompt(Model& model, std::string name, std::optional<std::string> text, std::vector<int32_t> ids) {
  PromptVectors prompt;
  prompt.name = std::move(name);
  prompt.text = std::move(text);
  prompt.ids = std::move(ids);
  const auto last = static_cast<int32_t>(prompt.ids.size()) - 1;
  prompt.logit_positions = {last};
  prompt.tap_positions = {0, last};
  const auto hidden = static_cast<size_t>(model.info().dimensions.hidden);
  StatelessObserver observer;
  observer.on_residual = [&](int32_t, std::span<const float> residual) {
    for (const int32_t position : prompt.tap_positions) {
      const auto row = residual.subspan(static_cast<size_t>(position) * hidden, hidden);
      prompt.taps.insert(prompt.taps.end(), row.begin(), row.end());
    }
  };
  observer.on_final_hidden = [&](std::span<const float> rows) { prompt.final_hidden.assign(rows.begin(), rows.end()); };
  observer.on_logits = [&](int32_t row, std::span<const float> logits) {
    if (row == last) {
      prompt.logits.assign(logits.begin(), logits.end());
    }
  };
  const auto evaluated = model.backend().evaluate_stateless(prompt.ids, observer);
  EXPECT_TRUE(evaluated.has_value());
  Session session = value_or_exit(model.new_session());
  EXPECT_TRUE(session.append(prompt.ids).has_value());
  prompt.greedy = value_or_exit(greedy_ids(session, kNumGreedy));
  return prompt;
}

VectorSet make_vectors() {
  const GateSetup setup = twin_setup();
  const auto model = value_or_exit(
      Model::open(setup.artifact,
                  {.backend = "oracle", .num_threads = 2, .context = 128, .allow_synthetic = true, .round_kv = false}));
  const ModelFile file = value_or_exit(ModelFile::open(setup.artifact, {.allow_synthetic = true}));
  VectorSet set;
  set.checkpoint_id = file.info().checkpoint->id;
  set.repository = file.info().source_repository;
  set.revision = file.info().source_revision;
  set.quant_scheme = scheme_name(file.info().scheme);
  set.header_sha256 = file.header_sha256();
  set.reference = Json::object({{"made_by", Json::string("a test of Kipp itself")}});
  set.prompts.push_back(make_prompt(*model, "hi", "Hi \xe4\xb8\x96\xe7\x95\x8c", {13048, 220, 99489}));
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 66; ++i) {
    ids.push_back((i * 7'919 + 12) % kNumTokens);
  }
  set.prompts.push_back(make_prompt(*model, "long", std::nullopt, ids));
  return set;
}

}  // namespace

GateInput twin_input() {
  static const VectorSet vectors = make_vectors();
  GateSetup setup = twin_setup();
  ModelFile file = value_or_exit(ModelFile::open(setup.artifact, {.allow_synthetic = true}));
  return GateInput{std::move(setup), std::move(file), vectors};
}

std::filesystem::path tampered_artifact(const std::filesystem::path& folder, const WeightView& weight) {
  const std::filesystem::path path = folder / "tampered.gguf";
  std::filesystem::copy_file(KIPP_TWIN_ARTIFACT, path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  // A tenth of the matrix becomes 0.5: far from the twin's values around 0.02.
  const std::vector<uint16_t> halves(weight.bytes / 20, 0x3F00);
  file.seekp(static_cast<std::streamoff>(weight.offset));
  file.write(reinterpret_cast<const char*>(halves.data()), static_cast<std::streamsize>(halves.size() * 2));
  EXPECT_TRUE(file.good());
  return path;
}

}  // namespace kipp::gates
