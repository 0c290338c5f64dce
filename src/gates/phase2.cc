// Phase 2: cached incremental decode, every position, against stateless recomputation. The two share operators but no
// KV, block or position code.
#include <fmt/format.h>

#include <utility>

#include "gates/decode.h"
#include "gates/gate.h"
#include "gates/kernels.h"

namespace kipp::gates {
namespace {

// On oracle and cpu the two paths run the same operators in the same order, so that anything but 0 is a fault.
double phase2_bound(std::string_view backend) {
  constexpr double kDevice = 1e-4;  // that of Phase 3 and 4
  return backend == "oracle" || backend == "cpu" ? 0.0 : kDevice;
}

}  // namespace

Result<PhaseRecord> run_phase2(const GateInput& input) {
  PhaseRecord record;
  KIPP_ASSIGN(const auto model, input.open_model({}));
  const double bound = phase2_bound(input.setup.backend);
  const NearTieRule rule = input.near_tie_rule();
  Comparison total;
  Json prompts = Json::array();
  for (const PromptVectors& prompt : input.vectors.prompts) {
    KIPP_TRY(input.go_on());
    KIPP_ASSIGN(const auto rows, stateless_rows(*model, prompt.ids));
    KIPP_ASSIGN(Session session, model->new_session());
    KIPP_ASSIGN(const Comparison comparison, compare_decode(session, prompt.ids, rows, rule, input.setup.is_cancelled));
    record.fail_all(prompt.name, violations(comparison, {.nmse = bound, .near_tie_share = 1.0}));
    total.add(comparison);
    input.progress(fmt::format("phase2 {}: {} of {} positions bitwise equal, NMSE {:.3g}", prompt.name,
                               comparison.num_bitwise, comparison.num_rows, comparison.nmse()));
    Json entry = to_json(comparison);
    entry.set("name", Json::string(prompt.name));
    entry.set("bitwise_equal", Json::number(comparison.num_bitwise));
    prompts.push_back(std::move(entry));
  }
  const double near_tie_share = input.is_twin() ? kNearTieShareOfTwins : 0.0;
  record.fail_all("all prompts", violations(total, {.nmse = bound, .near_tie_share = near_tie_share}));
  record.details.set("bound", Json::number(bound));
  record.details.set("logits", to_json(total));
  record.details.set("bitwise_equal", Json::number(total.num_bitwise));
  record.details.set("prompts", std::move(prompts));
  const Report report = model->backend().report();
  check_kernels({&report, 1}, model->backend().operators(), input.file.info().scheme, kNotInPhase2, record);
  return record;
}

}  // namespace kipp::gates
