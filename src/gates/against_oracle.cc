// A backend against the oracle, on the same artifact and prompts. The rows of the oracle are those of its stateless
// pass, which Phase 2 holds its cached pass against.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/isa.h"
#include "base/block_positions.h"
#include "gates/decode.h"
#include "gates/gate.h"
#include "gates/kernels.h"
#include "sampling/sampler.h"

namespace kipp::gates {
namespace {

using Rows = std::vector<std::vector<float>>;  // [positions][vocab]

// How one model is opened and what it is held to.
struct Variant {
  std::string name;  // "amx, high precision, K and V in FP32"
  GateInput::ModelChanges changes;
  double bound;
};

std::vector<Variant> variants_of(const GateInput& input) {
  std::vector<Variant> variants;
  const auto add = [&](const std::string& name, const std::string& isa, Precision precision, bool round_kv) {
    const bool only_order = precision == Precision::kHigh && !round_kv;
    variants.push_back({.name = name,
                        .changes = {.round_kv = round_kv, .precision = precision, .isa = isa},
                        .bound = only_order ? kHighPrecisionNmse : kAgainstOracleNmse});
  };
  if (input.setup.backend != "cpu") {
    add(input.setup.backend, "", input.setup.precision, true);
    return variants;
  }
  for (const std::string_view name : cpu::supported_isas()) {
    const std::string isa(name);
    add(isa, isa, Precision::kDefault, true);
    add(isa + ", high precision, K and V in FP32", isa, Precision::kHigh, false);
  }
  return variants;
}

// How often compare_decoded_together() decodes each prompt.
size_t num_copies(const VectorSet& vectors) {
  constexpr size_t kMostSequences = 64;
  return std::max<size_t>(2, kMostSequences / vectors.prompts.size());
}

// KV blocks for every sequence that compare_decoded_together() holds.
int32_t blocks_of_many_copies(const VectorSet& vectors) {
  const size_t copies = num_copies(vectors);
  size_t blocks = 0;
  for (const PromptVectors& prompt : vectors.prompts) {
    blocks += copies * (prompt.ids.size() / kBlockPositions + 2);
  }
  return static_cast<int32_t>(blocks);
}

class AgainstOracle {
 public:
  AgainstOracle(const GateInput& input, PhaseRecord& record)
      : input_(input), record_(record), rule_(input.near_tie_rule()) {}

  Result<void> run();

 private:
  Result<std::vector<Rows>> oracle_rows(bool round_kv) const;
  Result<void> run_variant(const Variant& variant, const std::vector<Rows>& expected);
  Result<Comparison> compare_prefill(Model& model, const PromptVectors& prompt, const Rows& expected) const;
  Result<Comparison> compare_decoded(Model& model, const PromptVectors& prompt, const Rows& expected) const;
  Result<Comparison> compare_stateless(Model& model, const PromptVectors& prompt, const Rows& expected) const;
  Result<Comparison> compare_decoded_together(Model& model, const std::vector<Rows>& expected) const;
  Result<void> check_samples(Model& model, const PromptVectors& prompt) const;
  Comparison compare_all(const Rows& found, const Rows& expected) const;

  const GateInput& input_;
  PhaseRecord& record_;
  NearTieRule rule_;
  Comparison total_;  // over the variants that round K and V
  Json variants_ = Json::array();
};

Result<std::vector<Rows>> AgainstOracle::oracle_rows(bool round_kv) const {
  KIPP_ASSIGN(const auto oracle, input_.open_model({.round_kv = round_kv, .backend = "oracle"}));
  std::vector<Rows> rows;
  for (const PromptVectors& prompt : input_.vectors.prompts) {
    KIPP_TRY(input_.go_on());
    KIPP_ASSIGN(Rows of_prompt, stateless_rows(*oracle, prompt.ids));
    rows.push_back(std::move(of_prompt));
    input_.progress(fmt::format("{} oracle {}: {} tokens{}", against_oracle_name(input_.setup.backend), prompt.name,
                                prompt.ids.size(), round_kv ? "" : ", K and V in FP32"));
  }
  return rows;
}

Comparison AgainstOracle::compare_all(const Rows& found, const Rows& expected) const {
  Comparison comparison;
  for (size_t i = 0; i < expected.size(); ++i) {
    comparison.add(static_cast<int64_t>(i), compare_rows(found[i], std::span<const float>(expected[i]), rule_));
  }
  return comparison;
}

Result<Comparison> AgainstOracle::compare_prefill(Model& model, const PromptVectors& prompt,
                                                  const Rows& expected) const {
  KIPP_ASSIGN(Session session, model.new_session());
  KIPP_ASSIGN(const Rows found, session.append_all_logits(prompt.ids));
  return compare_all(found, expected);
}

// Token by token from an empty cache; on cpu only the last few, since Phase 2 and placement hold its decoding against
// whole prompts bit for bit.
Result<Comparison> AgainstOracle::compare_decoded(Model& model, const PromptVectors& prompt,
                                                  const Rows& expected) const {
  KIPP_TRY(input_.go_on());
  KIPP_ASSIGN(Session session, model.new_session());
  constexpr size_t kLast = 4;
  if (input_.setup.backend == "cpu" && prompt.ids.size() > kLast) {
    KIPP_TRY(session.append(std::span(prompt.ids).first(prompt.ids.size() - kLast)));
  }
  return compare_decode(session, prompt.ids, expected, rule_, input_.setup.is_cancelled);
}

Result<Comparison> AgainstOracle::compare_stateless(Model& model, const PromptVectors& prompt,
                                                    const Rows& expected) const {
  KIPP_ASSIGN(const Rows found, stateless_rows(model, prompt.ids));
  return compare_all(found, expected);
}

// How many tokens of a prompt a copy of it decodes. One copy after the other ends in the prompt's second half, so that
// steps have all small numbers of rows and many large ones: a device's kernels for few and for many all run.
size_t end_of_copy(size_t num_tokens, size_t copy, size_t num_copies) {
  return num_tokens - num_tokens * copy / (2 * num_copies);
}

// All prompts at once, token by token, and several copies of each. Copies must agree bit for bit, whatever their
// number.
Result<Comparison> AgainstOracle::compare_decoded_together(Model& model, const std::vector<Rows>& expected) const {
  const std::vector<PromptVectors>& prompts = input_.vectors.prompts;
  const size_t copies = num_copies(input_.vectors);
  std::vector<Session> sessions;
  for (size_t i = 0; i < prompts.size() * copies; ++i) {
    KIPP_ASSIGN(Session session, model.new_session());
    sessions.push_back(std::move(session));
  }
  Comparison comparison;
  constexpr int32_t kHeadRow = 0;
  for (size_t position = 0; position < input_.longest_prompt(); ++position) {
    KIPP_TRY(input_.go_on());
    std::vector<Model::StepRequest> requests;
    std::vector<size_t> prompt_of;
    for (size_t i = 0; i < sessions.size(); ++i) {
      const std::vector<int32_t>& ids = prompts[i % prompts.size()].ids;
      if (position < end_of_copy(ids.size(), i / prompts.size(), copies)) {
        requests.push_back({&sessions[i], std::span(ids).subspan(position, 1), {&kHeadRow, 1}, true});
        prompt_of.push_back(i % prompts.size());
      }
    }
    KIPP_ASSIGN(const auto logits, model.step_all_logits(requests));
    std::map<size_t, const std::vector<float>*> first_copy;
    for (size_t r = 0; r < requests.size(); ++r) {
      const size_t prompt = prompt_of[r];
      const auto [first, is_first] = first_copy.try_emplace(prompt, &logits[r].front());
      if (is_first) {
        comparison.add(static_cast<int64_t>(position),
                       compare_rows(logits[r].front(), std::span<const float>(expected[prompt][position]), rule_));
      } else if (std::memcmp(first->second->data(), logits[r].front().data(), first->second->size() * sizeof(float)) !=
                 0) {
        record_.fail(prompts[prompt].name, fmt::format("position {}: two copies in one step differ", position));
      }
    }
  }
  return comparison;
}

// What the backend draws is what the host's sampler draws from the same logits.
Result<void> AgainstOracle::check_samples(Model& model, const PromptVectors& prompt) const {
  const SamplingParams greedy{.temperature = 0.0F};
  const SamplingParams drawn{.temperature = 0.8F, .top_k = 50, .top_p = 0.95F, .min_p = 0.01F};
  const int32_t num_tokens = model.tokenizer().num_tokens();
  for (const SamplingParams* params : {&greedy, &drawn}) {
    KIPP_ASSIGN(Session session, model.new_session());
    KIPP_TRY(session.append(prompt.ids));
    SampleRequest request{.params = params, .seed = 7, .position = session.length(), .num_logprobs = 5};
    KIPP_ASSIGN(const SampledToken found, session.sample(request));
    KIPP_ASSIGN(const SampledToken expected, sample_token(session.logits(), request, num_tokens));
    if (found.id != expected.id || found.logprob != expected.logprob || found.top_logprobs != expected.top_logprobs) {
      record_.fail(prompt.name, fmt::format("sampled {} with log-probability {}, the host's sampler {} with {}",
                                            found.id, found.logprob, expected.id, expected.logprob));
    }
  }
  return {};
}

Result<void> AgainstOracle::run_variant(const Variant& variant, const std::vector<Rows>& expected) {
  GateInput::ModelChanges changes = variant.changes;
  if (input_.setup.backend != "cpu") changes.num_blocks = blocks_of_many_copies(input_.vectors);
  KIPP_ASSIGN(const auto model, input_.open_model(changes));
  Comparison of_variant;
  const auto judge = [&](const PromptVectors& prompt, std::string_view what, const Comparison& comparison) {
    const Bounds bounds{.nmse = variant.bound, .worst_nmse = kWorstRowFactor * variant.bound, .near_tie_share = 1.0};
    record_.fail_all(fmt::format("{}, {} ({})", prompt.name, what, variant.name), violations(comparison, bounds));
    of_variant.add(comparison);
  };
  for (size_t i = 0; i < expected.size(); ++i) {
    const PromptVectors& prompt = input_.vectors.prompts[i];
    KIPP_TRY(input_.go_on());
    KIPP_ASSIGN(const Comparison prefill, compare_prefill(*model, prompt, expected[i]));
    judge(prompt, "whole prompt", prefill);
    KIPP_ASSIGN(const Comparison decoded, compare_decoded(*model, prompt, expected[i]));
    if (decoded.num_rows > 0) {
      judge(prompt, "decoded", decoded);
    }
    KIPP_TRY(input_.go_on());
    KIPP_ASSIGN(const Comparison stateless, compare_stateless(*model, prompt, expected[i]));
    judge(prompt, "stateless", stateless);
    KIPP_TRY(check_samples(*model, prompt));
  }
  if (input_.setup.backend != "cpu") {  // there Phase 2 and placement hold batches against whole prompts bit for bit
    KIPP_ASSIGN(const Comparison together, compare_decoded_together(*model, expected));
    const Bounds bounds{.nmse = variant.bound, .worst_nmse = kWorstRowFactor * variant.bound, .near_tie_share = 1.0};
    record_.fail_all(fmt::format("all prompts, decoded together ({})", variant.name), violations(together, bounds));
    of_variant.add(together);
  }
  const double near_tie_share = input_.is_twin() ? kNearTieShareOfTwins : 0.0;
  record_.fail_all(fmt::format("all prompts ({})", variant.name),
                   violations(of_variant, {.nmse = variant.bound, .near_tie_share = near_tie_share}));
  input_.progress(fmt::format("{} {}: NMSE {:.3g} in {} rows", against_oracle_name(input_.setup.backend), variant.name,
                              of_variant.nmse(), of_variant.num_rows));
  const Report report = model->backend().report();
  check_kernels({&report, 1}, model->backend().operators(), input_.file.info().scheme,
                variant.changes.round_kv ? Unreachable(kUnroundedKv) : Unreachable(kRoundedKv), record_);
  Json entry = to_json(of_variant);
  entry.set("name", Json::string(variant.name));
  entry.set("backend", Json::string(report.backend));
  if (!report.device.empty()) entry.set("device", Json::string(report.device));
  entry.set("bound", Json::number(variant.bound));
  variants_.push_back(std::move(entry));
  if (variant.changes.round_kv) {
    total_.add(of_variant);
  }
  return {};
}

Result<void> AgainstOracle::run() {
  const std::vector<Variant> variants = variants_of(input_);
  for (const bool round_kv : {true, false}) {
    std::vector<Rows> expected;
    for (const Variant& variant : variants) {
      if (variant.changes.round_kv != round_kv) {
        continue;
      }
      if (expected.empty()) {
        KIPP_ASSIGN(expected, oracle_rows(round_kv));
      }
      KIPP_TRY(run_variant(variant, expected));
    }
  }
  record_.details.set("logits", to_json(total_));
  record_.details.set("variants", std::move(variants_));
  return {};
}

}  // namespace

std::string_view against_oracle_name(std::string_view backend) {
  if (backend == "cpu") {
    return "cpu-simd";
  }
  return backend == "metal" ? "phase3" : "phase4";
}

Result<PhaseRecord> run_against_oracle(const GateInput& input) {
  PhaseRecord record;
  if (input.setup.backend == "oracle") {
    return make_error(ErrorCode::kInvalidArgument, "the backend is the oracle itself: choose another with --backend");
  }
  AgainstOracle gate(input, record);
  KIPP_TRY(gate.run());
  return record;
}

}  // namespace kipp::gates
