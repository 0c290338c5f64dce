// The order of the phases, and their times.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "gates/gate.h"

namespace kipp::gates {
namespace {

PhaseRecord timed(const GateInput& input, std::string_view name, const std::function<Result<PhaseRecord>()>& phase) {
  input.progress(fmt::format("{} …", name));
  const auto start = std::chrono::steady_clock::now();
  Result<PhaseRecord> outcome = input.go_on().and_then(phase);
  PhaseRecord record;
  if (!outcome && !input.go_on()) {
    record.cancelled = true;
  } else if (outcome) {
    record = std::move(*outcome);
  } else {
    record.fail("could not be run", outcome.error().message);
  }
  record.name = name;
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return record;
}

}  // namespace

std::vector<PhaseRecord> run_gates(const GateInput& input, const Selection& selection) {
  std::vector<PhaseRecord> records;
  const auto run = [&](bool selected, std::string_view name, const std::function<Result<PhaseRecord>()>& phase) {
    if (selected && (records.empty() || !records.back().cancelled)) {
      records.push_back(timed(input, name, phase));
    }
  };
  run(true, "phase0", [&] { return run_phase0(input); });
  if (!records.front().passed()) {
    return records;
  }
  run(selection.phase1, "phase1", [&] { return run_phase1(input); });
  run(selection.phase2, "phase2", [&] { return run_phase2(input); });
  run(selection.placement, "placement", [&] { return run_placement(input); });
  run(selection.against_oracle, against_oracle_name(input.setup.backend), [&] { return run_against_oracle(input); });
  run(selection.snapshot.has_value(), "snapshot",
      [&] { return run_snapshot(input, *selection.snapshot, selection.snapshot_mode); });
  return records;
}

}  // namespace kipp::gates
