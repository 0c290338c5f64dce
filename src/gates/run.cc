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
  Result<PhaseRecord> outcome = phase();
  PhaseRecord record;
  if (outcome) {
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
  records.push_back(timed(input, "phase0", [&] { return run_phase0(input); }));
  if (!records.front().passed()) {
    return records;
  }
  if (selection.phase1) {
    records.push_back(timed(input, "phase1", [&] { return run_phase1(input); }));
  }
  if (selection.phase2) {
    records.push_back(timed(input, "phase2", [&] { return run_phase2(input); }));
  }
  if (selection.placement) {
    records.push_back(timed(input, "placement", [&] { return run_placement(input); }));
  }
  if (selection.snapshot) {
    records.push_back(
        timed(input, "snapshot", [&] { return run_snapshot(input, *selection.snapshot, selection.snapshot_mode); }));
  }
  return records;
}

}  // namespace kipp::gates
