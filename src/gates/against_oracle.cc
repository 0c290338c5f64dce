// A backend against the oracle, on the same artifact and prompts. The rows of the oracle are those of its stateless
// pass, which Phase 2 holds its cached pass against.
#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/isa.h"
#include "gates/decode.h"
#include "gates/gate.h"
#include "gates/kernels.h"

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

Result<void> AgainstOracle::run_variant(const Variant& variant, const std::vector<Rows>& expected) {
  KIPP_ASSIGN(const auto model, input_.open_model(variant.changes));
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
