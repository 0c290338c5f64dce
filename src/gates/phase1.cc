// Phase 1: logits at every position against the reference's, and the residual stream after each layer, so that a
// failure names the first bad layer. The same with K and V in FP32 shows how much of the deviation is their rounding.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/backend.h"
#include "base/machine.h"
#include "gates/gate.h"
#include "gates/greedy.h"
#include "gates/kernels.h"
#include "gates/reference_head.h"

namespace kipp::gates {
namespace {

// A backend that rounds activations is as far off with K and V in FP32 as without.
double phase1_unrounded_bound(const GateInput& input) {
  return input.is_fp32() ? input.vectors.nmse_max.value_or(kPhase1UnroundedNmse) : phase1_bound(input.vectors);
}

constexpr size_t kRowsAtOnce = 16;  // 10 MB of logits from each of the two models

// The recomputed reference against the stored one: an FP32 product of up to 5,120 terms is within 1e-10 of the
// double's.
constexpr double kStoredNmse = 1e-9;

struct PromptOutcome {
  Comparison rounded;    // against the recomputed reference, every position
  Comparison unrounded;  // the same with K and V in FP32
  Comparison stored;     // against the stored logits, where there are some
  SquaredError recomputed_against_stored;
  std::vector<double> layer_nmse;  // [num_layers + 1] of the taps
  double final_hidden_nmse = 0.0;
  int64_t num_greedy_equal = -1;  // of the reference's 8 ids, before the first that differs; -1: it has none
};

class Phase1 {
 public:
  Phase1(const GateInput& input, Model& rounded, Model& unrounded)
      : input_(input),
        rounded_(rounded),
        unrounded_(unrounded),
        rule_(input.near_tie_rule()),
        head_(input.file, input.setup.num_threads > 0 ? input.setup.num_threads : available_processors()) {}

  Result<PromptOutcome> run(const PromptVectors& prompt) {
    PromptOutcome outcome;
    KIPP_TRY(compare_logits(prompt, outcome));
    KIPP_TRY(input_.go_on());
    KIPP_TRY(compare_layers(prompt, outcome));
    KIPP_TRY(input_.go_on());
    KIPP_TRY(compare_greedy(prompt, outcome));
    return outcome;
  }

 private:
  Result<void> compare_logits(const PromptVectors& prompt, PromptOutcome& outcome);
  void compare_stored(const PromptVectors& prompt, size_t position, std::span<const float> found,
                      std::span<const double> recomputed, PromptOutcome& outcome) const;
  Result<void> compare_layers(const PromptVectors& prompt, PromptOutcome& outcome);
  Result<void> compare_greedy(const PromptVectors& prompt, PromptOutcome& outcome);

  const GateInput& input_;
  Model& rounded_;
  Model& unrounded_;
  NearTieRule rule_;
  ReferenceHead head_;
};

std::span<const float> row_of(std::span<const float> rows, size_t row, size_t width) {
  return rows.subspan(row * width, width);
}

Result<void> Phase1::compare_logits(const PromptVectors& prompt, PromptOutcome& outcome) {
  const auto hidden = static_cast<size_t>(input_.file.info().dimensions.hidden);
  KIPP_ASSIGN(Session rounded, rounded_.new_session());
  KIPP_ASSIGN(Session unrounded, unrounded_.new_session());
  for (size_t begin = 0; begin < prompt.ids.size(); begin += kRowsAtOnce) {
    KIPP_TRY(input_.go_on());
    const size_t count = std::min(kRowsAtOnce, prompt.ids.size() - begin);
    const std::span<const int32_t> ids = std::span(prompt.ids).subspan(begin, count);
    KIPP_ASSIGN(const auto rounded_rows, rounded.append_all_logits(ids));
    KIPP_ASSIGN(const auto unrounded_rows, unrounded.append_all_logits(ids));
    for (size_t i = 0; i < count; ++i) {
      const auto reference = head_.logits(row_of(prompt.final_hidden, begin + i, hidden));
      const auto position = static_cast<int64_t>(begin + i);
      outcome.rounded.add(position, compare_rows(rounded_rows[i], reference, rule_));
      outcome.unrounded.add(position, compare_rows(unrounded_rows[i], reference, rule_));
      compare_stored(prompt, begin + i, rounded_rows[i], reference, outcome);
    }
  }
  return {};
}

void Phase1::compare_stored(const PromptVectors& prompt, size_t position, std::span<const float> found,
                            std::span<const double> recomputed, PromptOutcome& outcome) const {
  const auto place = std::lower_bound(prompt.logit_positions.begin(), prompt.logit_positions.end(), position);
  if (place == prompt.logit_positions.end() || static_cast<size_t>(*place) != position) {
    return;
  }
  const auto index = static_cast<size_t>(place - prompt.logit_positions.begin());
  const auto stored = row_of(prompt.logits, index, found.size());
  outcome.stored.add(static_cast<int64_t>(position), compare_rows(found, stored, rule_));
  SquaredError squares;
  for (size_t id = 0; id < stored.size(); ++id) {
    const double difference = static_cast<double>(stored[id]) - recomputed[id];
    squares.add({difference * difference, recomputed[id] * recomputed[id]});
  }
  outcome.recomputed_against_stored.add(squares);
}

Result<void> Phase1::compare_layers(const PromptVectors& prompt, PromptOutcome& outcome) {
  const auto hidden = static_cast<size_t>(input_.file.info().dimensions.hidden);
  const size_t num_taps = prompt.tap_positions.size();
  StatelessObserver observer;
  observer.on_residual = [&](int32_t layer, std::span<const float> residual) {
    SquaredError squares;
    for (size_t tap = 0; tap < num_taps; ++tap) {
      const auto found = row_of(residual, static_cast<size_t>(prompt.tap_positions[tap]), hidden);
      squares.add(squared_error(found, row_of(prompt.taps, static_cast<size_t>(layer + 1) * num_taps + tap, hidden)));
    }
    outcome.layer_nmse.push_back(squares.nmse());
  };
  observer.on_final_hidden = [&](std::span<const float> found) {
    outcome.final_hidden_nmse = squared_error(found, std::span<const float>(prompt.final_hidden)).nmse();
  };
  return rounded_.backend().evaluate_stateless(prompt.ids, observer);
}

Result<void> Phase1::compare_greedy(const PromptVectors& prompt, PromptOutcome& outcome) {
  if (prompt.greedy.empty()) {
    return {};
  }
  KIPP_ASSIGN(Session session, rounded_.new_session());
  KIPP_TRY(session.append(prompt.ids));
  KIPP_ASSIGN(const auto ids,
              greedy_ids(session, static_cast<int32_t>(prompt.greedy.size()), input_.setup.is_cancelled));
  const auto differing = std::mismatch(ids.begin(), ids.end(), prompt.greedy.begin(), prompt.greedy.end());
  outcome.num_greedy_equal = differing.first - ids.begin();
  return {};
}

void judge_layers(const PromptVectors& prompt, const PromptOutcome& outcome, double bound, PhaseRecord& record) {
  const auto bad = std::find_if(outcome.layer_nmse.begin(), outcome.layer_nmse.end(),
                                [bound](double nmse) { return !(nmse <= bound); });
  if (bad != outcome.layer_nmse.end()) {
    const auto index = bad - outcome.layer_nmse.begin();
    const std::string place = index == 0 ? "the embedding" : fmt::format("layer {}", index - 1);
    record.fail(prompt.name, fmt::format("the residual stream is off first after {}: NMSE {:.3g} exceeds {:.3g}", place,
                                         *bad, bound));
  } else if (!(outcome.final_hidden_nmse <= bound)) {
    record.fail(prompt.name, fmt::format("the final hidden state is off, every layer's residual is not: NMSE {:.3g} "
                                         "exceeds {:.3g}",
                                         outcome.final_hidden_nmse, bound));
  }
}

void judge(const GateInput& input, const PromptVectors& prompt, const PromptOutcome& outcome, PhaseRecord& record) {
  const double bound = phase1_bound(input.vectors);
  // Near ties are judged over all prompts.
  const Bounds bounds{.nmse = bound, .worst_nmse = phase1_row_bound(input.vectors), .near_tie_share = 1.0};
  record.fail_all(prompt.name, violations(outcome.rounded, bounds));
  const double unrounded_bound = phase1_unrounded_bound(input);
  record.fail_all(prompt.name + " (K and V in FP32)",
                  violations(outcome.unrounded, {.nmse = unrounded_bound, .near_tie_share = 1.0}));
  if (!prompt.logit_positions.empty()) {
    // A few rows are not a prompt: each has the bound of a row; the prompt's was applied to all its rows above.
    record.fail_all(prompt.name + " (stored logits)",
                    violations(outcome.stored, {.nmse = bounds.worst_nmse, .near_tie_share = 1.0}));
    const double stored_bound = input.vectors.nmse_max.value_or(kStoredNmse);
    if (!(outcome.recomputed_against_stored.nmse() <= stored_bound)) {
      record.fail(prompt.name, fmt::format("the vectors contradict themselves: stored logits and those of final_hidden "
                                           "differ by NMSE {:.3g}, more than {:.3g}",
                                           outcome.recomputed_against_stored.nmse(), stored_bound));
    }
  }
  judge_layers(prompt, outcome, bound, record);
  const auto num_greedy = static_cast<int64_t>(prompt.greedy.size());
  if (!input.is_twin() && outcome.num_greedy_equal >= 0 && outcome.num_greedy_equal < num_greedy) {
    record.fail(prompt.name, fmt::format("greedy id {} differs from the reference's", outcome.num_greedy_equal));
  }
}

Json outcome_json(const PromptVectors& prompt, const PromptOutcome& outcome) {
  Json layers = Json::array();
  for (const double nmse : outcome.layer_nmse) {
    layers.push_back(Json::number(nmse));
  }
  Json json = Json::object({{"name", Json::string(prompt.name)},
                            {"tokens", Json::number(static_cast<int64_t>(prompt.ids.size()))},
                            {"logits", to_json(outcome.rounded)},
                            {"logits_kv_unrounded", to_json(outcome.unrounded)}});
  if (outcome.stored.num_rows > 0) {
    json.set("stored_logits", to_json(outcome.stored));
    json.set("recomputed_against_stored_nmse", Json::number(outcome.recomputed_against_stored.nmse()));
  }
  json.set("layer_nmse", std::move(layers));
  json.set("final_hidden_nmse", Json::number(outcome.final_hidden_nmse));
  if (outcome.num_greedy_equal >= 0) {
    json.set("greedy_equal", Json::number(outcome.num_greedy_equal));
  }
  return json;
}

// Not the backend's doing, and judged by nobody: what the scheme costs stands beside what the backend adds.
void report_loss(const GateInput& input, PhaseRecord& record) {
  const QuantScheme scheme = input.file.info().scheme;
  if (scheme == QuantScheme::kBf16) {
    return;
  }
  const Json& loss = input.vectors.loss_against_bf16;
  if (loss.is_null()) {
    record.fail("vectors", "the manifest does not say what the scheme costs (loss_against_bf16)");
    return;
  }
  input.progress(
      fmt::format("phase1: in the reference, {} weights are off the BF16 weights' logits by NMSE {:.3g}; "
                  "argmax equal at {} of {} positions",
                  scheme_name(scheme), loss.find("nmse")->as_double().value_or(0.0),
                  loss.find("argmax_equal")->literal(), loss.find("positions")->literal()));
  record.details.set("loss_against_bf16", loss);
}

}  // namespace

Result<PhaseRecord> run_phase1(const GateInput& input) {
  if (!input.vectors.has_reference()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "phase1 compares with a reference, and these vectors hold prompts alone (reference: null)");
  }
  PhaseRecord record;
  KIPP_ASSIGN(const auto rounded_model, input.open_model({}));
  KIPP_ASSIGN(const auto unrounded_model, input.open_model({.round_kv = false}));
  Phase1 phase(input, *rounded_model, *unrounded_model);
  Comparison rounded;
  Comparison unrounded;
  Json prompts = Json::array();
  for (const PromptVectors& prompt : input.vectors.prompts) {
    KIPP_ASSIGN(const PromptOutcome outcome, phase.run(prompt));
    judge(input, prompt, outcome, record);
    rounded.add(outcome.rounded);
    unrounded.add(outcome.unrounded);
    input.progress(fmt::format("phase1 {}: {} tokens, NMSE {:.3g} (worst {:.3g}), K and V in FP32 {:.3g}", prompt.name,
                               prompt.ids.size(), outcome.rounded.nmse(), outcome.rounded.worst_nmse,
                               outcome.unrounded.nmse()));
    prompts.push_back(outcome_json(prompt, outcome));
  }
  const double bound = phase1_bound(input.vectors);
  record.fail_all("all prompts",
                  violations(rounded, {.nmse = bound, .near_tie_share = input.is_twin() ? kNearTieShareOfTwins : 0.0}));
  record.details.set("bound", Json::number(bound));
  record.details.set("bound_of_a_row", Json::number(phase1_row_bound(input.vectors)));
  record.details.set("bound_kv_unrounded", Json::number(phase1_unrounded_bound(input)));
  if (!input.vectors.kv_rounding.is_null()) {
    record.details.set("kv_rounding_of_the_reference", input.vectors.kv_rounding);
  }
  record.details.set("logits", to_json(rounded));
  record.details.set("logits_kv_unrounded", to_json(unrounded));
  report_loss(input, record);
  record.details.set("prompts", std::move(prompts));
  const Report reports[] = {rounded_model->backend().report(), unrounded_model->backend().report()};
  check_kernels(reports, rounded_model->backend().operators(), input.file.info().scheme, {}, record);
  return record;
}

}  // namespace kipp::gates
