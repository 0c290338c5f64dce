// The result of `kipp bench` as JSON and as a table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/bench_plan.h"
#include "cli/bench_run.h"
#include "cli/model_cost.h"
#include "gguf/model_file.h"

namespace kipp::cli {

struct BenchReport {
  const ModelFile& file;
  std::string backend;
  std::string_view isa;  // of the probe, and of the cpu backend
  int32_t num_threads;
  const BenchPlan& plan;
  ModelCost cost;
  size_t probe_memory_bytes;
  size_t probe_mapped_bytes;
  std::vector<CaseResult> cases;
  BenchMemory memory;
  StartTimes start;
};

// The fields of docs/benchmarks.md.
Json bench_json(const BenchReport& report);
std::string bench_text(const BenchReport& report);

}  // namespace kipp::cli
