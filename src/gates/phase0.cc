// Phase 0: exact, and before all others. Vectors of another artifact, or another tokenizer, make every number below
// void.
#include <fmt/format.h>

#include <algorithm>

#include "gates/gate.h"
#include "gates/pinned_cases.h"

namespace kipp::gates {
namespace {

void check_manifest(const GateInput& input, PhaseRecord& record) {
  const ArtifactInfo& info = input.file.info();
  const VectorSet& vectors = input.vectors;
  const auto same = [&record](std::string_view field, std::string_view artifact, std::string_view manifest) {
    if (artifact != manifest) {
      record.fail("manifest",
                  fmt::format("{}: the vectors are of '{}', the artifact is '{}'", field, manifest, artifact));
    }
  };
  same("checkpoint_id", info.checkpoint->id, vectors.checkpoint_id);
  same("repository", info.source_repository, vectors.repository);
  same("revision", info.source_revision, vectors.revision);
  same("quant_scheme", scheme_name(info.scheme), vectors.quant_scheme);
  if (vectors.header_sha256) {
    same("header_sha256", input.file.header_sha256(), *vectors.header_sha256);
  }
}

void check_reference_ids(const GateInput& input, const Tokenizer& tokenizer, PhaseRecord& record) {
  int64_t num_checked = 0;
  for (const PromptVectors& prompt : input.vectors.prompts) {
    if (!prompt.text) {
      continue;
    }
    ++num_checked;
    const auto ids = tokenizer.encode(*prompt.text);
    if (!ids) {
      record.fail(prompt.name, ids.error().message);
    } else if (*ids != prompt.ids) {
      const auto differing = std::mismatch(ids->begin(), ids->end(), prompt.ids.begin(), prompt.ids.end());
      record.fail(prompt.name,
                  fmt::format("the reference tokenised its text to {} ids, Kipp to {}; first difference at {}",
                              prompt.ids.size(), ids->size(), differing.first - ids->begin()));
    }
  }
  record.details.set("prompts_tokenised", Json::number(num_checked));
}

}  // namespace

Result<PhaseRecord> run_phase0(const GateInput& input) {
  PhaseRecord record;
  const ArtifactInfo& info = input.file.info();
  KIPP_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(input.file.tokenizer()));
  check_manifest(input, record);
  if (info.isolates_think_tokens != info.checkpoint->isolates_think_tokens) {
    record.fail("tokenizer", "isolates_think_tokens differs from the registry's");
  }
  record.fail_all("tokenizer", check_pinned_cases(tokenizer, info.isolates_think_tokens));
  record.details.set("pinned_cases", Json::number(static_cast<int64_t>(pinned_cases().size())));
  check_reference_ids(input, tokenizer, record);
  return record;
}

}  // namespace kipp::gates
