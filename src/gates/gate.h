// What every gate shares: its input, its outcome, and the phases themselves. A gate returns a record and prints
// nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "gates/cancel.h"
#include "gates/metrics.h"
#include "gates/vectors.h"
#include "gguf/model_file.h"
#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::gates {

struct GateSetup {
  std::filesystem::path artifact;
  std::string backend = "oracle";
  Precision precision = Precision::kDefault;
  int32_t num_threads = 0;  // 0: the processors this process may use
  int32_t device = 0;       // of the backend, where it has several
  bool allow_synthetic = false;
  std::function<void(std::string_view)> on_progress;  // a line for people; may be empty
  // Asked between steps of the backend. One stateless pass over a prompt is one step.
  CancelCheck is_cancelled;
};

struct GateInput {
  GateSetup setup;
  ModelFile file;
  VectorSet vectors;

  // Errors: those of ModelFile::open and load_vectors.
  static Result<GateInput> open(GateSetup setup, const std::filesystem::path& vectors_folder);
  // The same for an artifact that is open already. Errors: those of load_vectors.
  static Result<GateInput> open(GateSetup setup, ModelFile file, const std::filesystem::path& vectors_folder);

  // What a test switch changes; everything else is as a user would run it.
  struct ModelChanges {
    bool round_kv = true;
    uint64_t placement_seed = 0;
    int32_t num_blocks = 0;
    std::string backend = {};                 // empty: that of the setup
    std::optional<Precision> precision = {};  // likewise
    std::string isa = {};                     // ModelOptions::isa
  };
  // The artifact on the backend, with room for the longest prompt and what is generated after it.
  Result<std::unique_ptr<Model>> open_model(const ModelChanges& changes) const;

  // For the artifact's output head; takes a pass over it.
  NearTieRule near_tie_rule() const;
  // Whether the backend keeps activations at FP32 quality: then rounding K and V is all that it may lose.
  bool is_fp32() const { return setup.backend == "oracle" || setup.precision == Precision::kHigh; }
  bool is_twin() const { return file.info().synthetic; }
  size_t longest_prompt() const;
  void progress(std::string_view line) const;
  Result<void> go_on() const { return gates::go_on(setup.is_cancelled); }
};

inline constexpr int32_t kNumGreedy = 8;  // ids that gates generate after a prompt

struct PhaseRecord {
  std::string name;
  std::vector<std::string> failures;  // what is not as it must be, in words; empty: green
  Json details = Json::object();
  double seconds = 0.0;
  bool cancelled = false;  // cut short: neither green nor red

  bool passed() const { return failures.empty() && !cancelled; }
  void fail(std::string_view where, std::string_view what);
  void fail_all(std::string_view where, const std::vector<std::string>& reasons);
};

// Bounds of the numerics contract. Phase 1 is the vector set's own where it has an nmse-max.txt.
inline constexpr double kPhase1Nmse = 5e-5;
// A single row may be this much worse than its prompt's bound. Chosen, not derived: 5e-4 lies between the worst row
// measured (1.3e-4) and what a fault in one row's positions or blocks costs (from 1.9e-3): docs/decisions/0005.
inline constexpr double kWorstRowFactor = 10.0;
// With K and V in FP32 nothing is left but the order of FP32 sums: 1e-13 to 1e-12 on 2 layers, 1e-11 on 28. Only for an
// FP32 reference.
inline constexpr double kPhase1UnroundedNmse = 1e-8;
// Of every backend against the oracle (docs/numerics.md).
inline constexpr double kAgainstOracleNmse = 1e-4;
// At high precision and with K and V in FP32 on both sides, only the order of FP32 sums is left.
inline constexpr double kHighPrecisionNmse = 1e-8;
// Where rounding K and V alone leads the reference so far that 5e-5 leaves it no room, the backend may be off by this
// many times that: it rounds the same numbers, so that what it adds of its own is what the factor leaves.
inline constexpr double kKvRoundingFactor = 1.5;
// The vectors' own, or kPhase1Nmse, or kKvRoundingFactor times what rounding K and V cost the reference at its worst
// prompt, whichever is larger.
double phase1_bound(const VectorSet& vectors);
// Of a single row: kWorstRowFactor times the vectors' own or kPhase1Nmse, or kKvRoundingFactor times what rounding K
// and V cost the reference at its worst row.
double phase1_row_bound(const VectorSet& vectors);

// Tokenizer, metadata and reference ids; the artifact against the registry is the loader's work (GateInput::open).
Result<PhaseRecord> run_phase0(const GateInput& input);
// The backend against the reference, with the cost of rounding K and V beside it.
Result<PhaseRecord> run_phase1(const GateInput& input);
// Cached decoding, token by token, against one stateless pass.
Result<PhaseRecord> run_phase2(const GateInput& input);
// Bitwise: block placement, what unused memory holds, chunks, batch mates, truncation and reuse.
Result<PhaseRecord> run_placement(const GateInput& input);
// The backend against the oracle: a whole prompt, every decoded position, and a stateless pass; cpu with every
// instruction set that the machine has and at both precisions. Called cpu-simd for cpu, phase3 for metal, phase4 for
// cuda.
Result<PhaseRecord> run_against_oracle(const GateInput& input);
std::string_view against_oracle_name(std::string_view backend);
// A byte snapshot of the next tokens, compared with a file, or written to it.
enum class SnapshotMode { kCompare, kWrite };
Result<PhaseRecord> run_snapshot(const GateInput& input, const std::filesystem::path& path, SnapshotMode mode);

// What to run. Phase 0 comes first in any case: nothing else is evidence without it.
struct Selection {
  bool phase1 = false;
  bool phase2 = false;
  bool placement = false;
  bool against_oracle = false;
  std::optional<std::filesystem::path> snapshot;
  SnapshotMode snapshot_mode = SnapshotMode::kCompare;
};

// Runs Phase 0 and, if it is green, what is selected. An error inside a phase is a failure of that phase. Cancelled
// work ends with the record of the phase that it was to be or was cut short in.
std::vector<PhaseRecord> run_gates(const GateInput& input, const Selection& selection);

}  // namespace kipp::gates
