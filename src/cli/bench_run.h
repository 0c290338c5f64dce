// Runs the cases of a bench on a model, with the machine's limits measured around every repetition.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend_machine.h"
#include "cli/bench_plan.h"
#include "cli/process_memory.h"
#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::cli {

struct CaseResult {
  BenchCase measured;
  std::vector<double> seconds;     // [repetitions]
  std::vector<LimitRates> probes;  // [repetitions + 1]: around each of them
};

// Time from before the artifact is opened.
struct StartTimes {
  Spread open_ms;         // until the model is ready
  Spread first_token_ms;  // until the logits after a prompt of kStartTokens
};

struct BenchMemory {
  FileMemory file;                // the model's mapping of the artifact, after the first case
  uint64_t besides_file_bytes{};  // the host's peak without the artifact's pages and the probe's memory
  uint64_t copied_bytes{};        // of that, the copy of the artifact (--copy-weights)
  uint64_t kv_bytes{};            // and the KV pool, unless it is on a device
  uint64_t device_bytes{};        // in use on the device; 0: the model is in the host's memory
};

// Called after each repetition and warm-up; false ends the work early.
using BenchProgress = std::function<bool(const BenchCase& current)>;

// A warm-up, then `repetitions` timed runs. after_warm_up is called in between. Errors: those of Session and
// Model::step; of LimitProbe::measure. Ended early: fewer repetitions than asked for.
Result<CaseResult> measure_case(Model& model, const LimitProbe& probe, const BenchCase& wanted, const BenchPlan& plan,
                                const std::function<Result<void>()>& after_warm_up, const BenchProgress& progress);

// Opens the model anew each time; the first `uncounted` times only warm the page cache. Errors: those of open and
// Session::append.
struct StartRuns {
  int32_t uncounted;
  int32_t counted;
  uint64_t seed;
};
Result<StartTimes> measure_start(const std::function<Result<std::unique_ptr<Model>>()>& open, const StartRuns& runs,
                                 const std::function<bool()>& go_on);

}  // namespace kipp::cli
