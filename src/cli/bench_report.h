// The result of `kipp bench` as JSON and as a table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend_machine.h"
#include "base/json.h"
#include "cli/bench_plan.h"
#include "cli/bench_run.h"
#include "cli/model_cost.h"
#include "gguf/model_file.h"

namespace kipp::cli {

struct BenchReport {
  const ModelFile& file;
  std::string backend;
  MachineFacts machine;
  const BenchPlan& plan;
  ModelCost cost;
  std::vector<CaseResult> cases;
  BenchMemory memory;
  std::optional<StartTimes> start;
};

// The fields of docs/benchmarks.md.
Json bench_json(const BenchReport& report);
std::string bench_text(const BenchReport& report);

}  // namespace kipp::cli
