// `kipp gates`: runs the gates on an artifact against reference vectors; a table for people, a record for machines.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "build_info.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/text_flag.h"
#include "gates/gate.h"
#include "gates/output_file.h"
#include "gates/record.h"
#include "kipp/version.h"

namespace kipp::cli {
namespace {

struct GateFlags {
  ModelFlags model;
  std::string vectors;
  bool phase0 = false;
  bool phase1 = false;
  bool phase2 = false;
  bool placement = false;
  bool against_oracle = false;
  bool phase4_cuda = false;
  std::string snapshot;
  std::string write_snapshot;
  std::string json;
};

// Without a choice every phase that needs no file of its own.
gates::Selection selection_of(const GateFlags& flags) {
  const bool any = flags.phase0 || flags.phase1 || flags.phase2 || flags.placement || flags.against_oracle ||
                   !flags.snapshot.empty() || !flags.write_snapshot.empty();
  gates::Selection selection;
  selection.phase1 = flags.phase1 || !any;
  selection.phase2 = flags.phase2 || !any;
  selection.placement = flags.placement || !any;
  selection.against_oracle = flags.against_oracle || (!any && flags.model.backend != "oracle");
  if (!flags.write_snapshot.empty()) {
    selection.snapshot = flags.write_snapshot;
    selection.snapshot_mode = gates::SnapshotMode::kWrite;
  } else if (!flags.snapshot.empty()) {
    selection.snapshot = flags.snapshot;
  }
  return selection;
}

gates::Provenance provenance_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return {.version = kVersion,
          .commit = kBuildCommit,
          .compiler = kBuildCompiler,
          .build_type = kBuildType,
          .utc = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                             utc.tm_hour, utc.tm_min, utc.tm_sec)};
}

std::string summary_of(const std::vector<gates::PhaseRecord>& phases) {
  std::string text;
  for (const gates::PhaseRecord& phase : phases) {
    text += fmt::format("{:<10} {:<6} {:8.1f} s", phase.name, phase.passed() ? "passed" : "FAILED", phase.seconds);
    const Json* logits = phase.details.find("logits");
    const Json* nmse = logits != nullptr ? logits->find("nmse") : nullptr;
    const Json* worst = logits != nullptr ? logits->find("worst_nmse") : nullptr;
    if (nmse != nullptr && worst != nullptr) {
      text += fmt::format("  NMSE {:.3g}, worst position {:.3g}", nmse->as_double().value_or(NAN),
                          worst->as_double().value_or(NAN));
    }
    text += "\n";
    for (const std::string& failure : phase.failures) {
      text += fmt::format("  {}\n", failure);
    }
  }
  return text + (gates::all_passed(phases) ? "gates: passed\n" : "gates: FAILED\n");
}

// Before hours of work, not after them.
Result<void> check_outputs(const GateFlags& flags) {
  for (const std::string& path : {flags.json, flags.write_snapshot}) {
    if (!path.empty()) {
      KIPP_TRY(gates::check_writable(path));
    }
  }
  return {};
}

// A cancelled run has no verdict: it leaves no record, and says what it had finished.
ExitCode interrupted_run(const std::vector<gates::PhaseRecord>& phases) {
  std::string finished;
  for (const gates::PhaseRecord& phase : phases) {
    if (!phase.cancelled) {
      finished +=
          fmt::format("{}{} {}", finished.empty() ? "" : ", ", phase.name, phase.passed() ? "passed" : "FAILED");
    }
  }
  print_message(fmt::format("kipp: interrupted in {}; finished before it: {}; no record was written\n",
                            phases.back().name, finished.empty() ? "nothing" : finished));
  return ExitCode::kInterrupted;
}

Result<ExitCode> run(gates::GateInput input, const GateFlags& flags) {
  const gates::Provenance provenance = provenance_now();
  const std::vector<gates::PhaseRecord> phases = gates::run_gates(input, selection_of(flags));
  if (phases.back().cancelled) {
    return interrupted_run(phases);
  }
  // Both are tried, whatever becomes of the other: people have the verdict and machines the record.
  const auto shown = standard_output().write(summary_of(phases));
  if (!flags.json.empty()) {
    KIPP_TRY(gates::write_whole(flags.json, write_json(gates::make_record(input, phases, provenance)) + "\n"));
  }
  KIPP_TRY(shown);
  return gates::all_passed(phases) ? ExitCode::kOk : ExitCode::kFailure;
}

ExitCode gates_command(GateFlags flags) {
  if (flags.phase4_cuda) {
    flags.model.backend = "cuda";
    flags.against_oracle = flags.placement = true;
  }
  const auto path = artifact_path(flags.model);
  if (!path) {
    return fail(ExitCode::kModel, path.error());
  }
  // The artifact by itself: a model that is refused has an exit code of its own.
  auto file = ModelFile::open(*path, {.allow_synthetic = flags.model.allow_synthetic});
  if (!file) {
    return fail(ExitCode::kModel, file.error());
  }
  // Phase 0 needs no backend: without this a record could name one that does not exist.
  const BackendOptions options{.num_threads = flags.model.num_threads, .device = flags.model.device};
  if (const auto backend = create_backend(flags.model.backend, options); !backend) {
    return fail(ExitCode::kModel, backend.error());
  }
  if (const auto writable = check_outputs(flags); !writable) {
    return fail(ExitCode::kFailure, writable.error());
  }
  gates::GateSetup setup{.artifact = *path,
                         .backend = flags.model.backend,
                         .precision = flags.model.precision,
                         .num_threads = flags.model.num_threads,
                         .device = flags.model.device,
                         .allow_synthetic = flags.model.allow_synthetic,
                         .on_progress = [](std::string_view line) { print_message(fmt::format("{}\n", line)); },
                         .is_cancelled = interrupted};
  auto input = gates::GateInput::open(std::move(setup), std::move(*file), flags.vectors);
  if (!input) {
    return fail(ExitCode::kFailure, input.error());
  }
  return end_of(run(std::move(*input), flags));
}

constexpr std::string_view kExamples =
    "  kipp gates -m models/kipp-kipp-demo-bf16.gguf --vectors tests/vectors/kipp-demo\n"
    "  kipp gates -m models/kipp-kipp-demo-bf16.gguf --vectors tests/vectors/kipp-demo --phase1 --json record.json\n";

}  // namespace

void add_gates_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("gates", "Check an artifact against reference vectors");
  const auto flags = std::make_shared<GateFlags>();
  add_artifact_flags(*command, flags->model);
  add_backend_flags(*command, flags->model);
  command->add_option("--vectors", flags->vectors, "Folder made by tools/generate_test_vectors.py")
      ->required()
      ->type_name("DIR");
  command->add_flag("--phase0", flags->phase0, "Metadata, tokenizer, reference ids (always runs, before all others)");
  command->add_flag("--phase1", flags->phase1, "Logits and residual stream against the reference");
  command->add_flag("--phase2", flags->phase2, "Cached decoding against one stateless pass");
  command->add_flag("--placement", flags->placement, "Bitwise: block placement, chunks, batches, truncation, reuse");
  command->add_flag("--against-oracle", flags->against_oracle,
                    "Another backend against the oracle; cpu with every instruction set and at both precisions");
  command->add_flag("--phase4-cuda", flags->phase4_cuda, "Phase 4: --backend cuda --against-oracle --placement");
  auto* compare = command->add_option("--snapshot", flags->snapshot, "Compare the next tokens with a byte snapshot")
                      ->check(not_empty())
                      ->type_name("FILE");
  command->add_option("--write-snapshot", flags->write_snapshot, "Write that snapshot instead")
      ->check(not_empty())
      ->type_name("FILE")
      ->excludes(compare);
  command->add_option("--json", flags->json, "Write the record with provenance and every figure")
      ->check(not_empty())
      ->type_name("FILE");
  command->footer(help_footer(kExamples));
  command->callback([flags, &exit_code] { exit_code = gates_command(*flags); });
}

}  // namespace kipp::cli
