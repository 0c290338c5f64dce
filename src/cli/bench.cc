// `kipp bench`: how fast a model runs here, beside what the machine could do.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "backend/backend_machine.h"
#include "base/block_positions.h"
#include "base/json.h"
#include "cli/bench_plan.h"
#include "cli/bench_report.h"
#include "cli/bench_run.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_cost.h"
#include "cli/model_flags.h"
#include "cli/number_flag.h"
#include "cli/output.h"
#include "cli/process_memory.h"
#include "cli/progress.h"

namespace kipp::cli {
namespace {

struct BenchFlags {
  ModelFlags model;
  BenchPlan plan;
  bool json = false;
};

// An option `name N,N,…`.
void add_list_flag(CLI::App& command, const std::string& name, std::vector<int32_t>& values, NumberRange<int32_t> range,
                   const std::string& help) {
  const auto parse = [&values, name, range](const std::string& text) {
    values.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      values.push_back(number_of_text<int32_t>(name, text.substr(begin, end - begin), range));
      begin = end + 1;
    }
  };
  command.add_option_function<std::string>(name, parse, help)->type_name("LIST");
}

// What all the parts of one bench work on.
struct Setting {
  const ModelFile& file;
  const BenchPlan& plan;
  std::vector<BenchCase> cases;
  ModelOptions options;
};

Result<void> check_context(const std::vector<BenchCase>& cases, const ArtifactInfo& info) {
  for (const BenchCase& one : cases) {
    if (one.positions() > info.dimensions.context) {
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: needs {} positions ({} held, {} new), but {} holds at most {}", one.name(), one.positions(),
                      one.depth, one.tokens, info.checkpoint->id, info.dimensions.context));
    }
  }
  return {};
}

Result<Setting> prepare(const ModelFile& file, const BenchFlags& flags) {
  std::vector<BenchCase> cases = flags.plan.cases();
  if (cases.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--prefill 0 and --decode 0: nothing to measure");
  }
  KIPP_TRY(check_context(cases, file.info()));
  const int64_t num_blocks = needed_blocks(cases);
  if (num_blocks > std::numeric_limits<int32_t>::max()) {
    return make_error(ErrorCode::kCapacity, fmt::format("{} KV blocks are more than any pool holds", num_blocks));
  }
  ModelOptions options = model_options(flags.model);
  options.context = std::min(needed_context(cases), file.info().dimensions.context);
  options.num_blocks = static_cast<int32_t>(num_blocks);
  return Setting{file, flags.plan, std::move(cases), std::move(options)};
}

// Of the whole process, less what only the bench itself needs: the artifact's pages (also those of the mapping that the
// probe reads) and the probe's memory.
Result<uint64_t> peak_besides_file(const ModelFile& file, const MachineFacts& machine) {
  KIPP_ASSIGN(const uint64_t peak, peak_resident_bytes());
  KIPP_ASSIGN(const FileMemory mapped, resident_of_file(file.path()));
  const uint64_t known = mapped.resident_bytes + (machine.has_memory ? 0 : machine.probe_bytes);
  return peak - std::min(peak, known);
}

// Every case on one model. Fewer results than cases: interrupted.
Result<void> run_cases(const Setting& setting, Model& model, const LimitProbe& probe, BenchReport& report) {
  const auto repetitions = static_cast<size_t>(setting.plan.repetitions);
  Progress bar("bench", setting.cases.size() * repetitions, "repetitions");
  size_t done = 0;
  const auto progress = [&](const BenchCase& current) {
    bar.update(done++, current.name());
    return !interrupted();
  };
  const auto note_file = [&]() -> Result<void> {
    if (report.cases.empty()) {
      KIPP_ASSIGN(report.memory.file, resident_of_file(setting.file.path()));
    }
    return {};
  };
  for (const BenchCase& one : setting.cases) {
    KIPP_ASSIGN(CaseResult result, measure_case(model, probe, one, setting.plan, note_file, progress));
    if (interrupted()) {
      return {};
    }
    report.cases.push_back(std::move(result));
  }
  KIPP_ASSIGN(report.memory.besides_file_bytes, peak_besides_file(setting.file, report.machine));
  KIPP_ASSIGN(report.memory.device_bytes, probe.bytes_in_use());
  report.memory.copied_bytes = setting.options.copy_weights ? setting.file.bytes().size() : 0;
  report.memory.kv_bytes = static_cast<uint64_t>(report.cost.kv_bytes_per_position * kBlockPositions) *
                           static_cast<uint64_t>(setting.options.num_blocks);
  return {};
}

// Uploading takes long enough for one time to do, and the case before has warmed the page cache.
Result<StartTimes> time_start(const Setting& setting) {
  const bool once = uploads_weights(setting.options.backend);
  const StartRuns runs{
      .uncounted = once ? 0 : 1, .counted = once ? 1 : setting.plan.repetitions, .seed = setting.plan.seed};
  const auto open = [&] { return open_with_progress(setting.file.path(), setting.options); };
  return measure_start(open, runs, [] { return !interrupted(); });
}

Result<ExitCode> measure(const Setting& setting, std::unique_ptr<Model> model, bool json) {
  const BackendOptions machine{.num_threads = setting.options.num_threads, .device = setting.options.device};
  KIPP_ASSIGN(auto probe, create_limit_probe(setting.options.backend, machine, setting.file.bytes()));
  BenchReport report{.file = setting.file,
                     .backend = setting.options.backend,
                     .machine = probe->facts(),
                     .plan = setting.plan,
                     .cost = model_cost(setting.file.weights(), setting.file.info().dimensions),
                     .cases = {},
                     .memory = {},
                     .start = {}};
  KIPP_TRY(run_cases(setting, *model, *probe, report));
  probe.reset();
  model.reset();
  if (!setting.plan.skip_start && !interrupted()) {
    KIPP_ASSIGN(report.start, time_start(setting));
  }
  if (interrupted()) {
    print_message(
        fmt::format("kipp: interrupted after {} of {} measurements\n", report.cases.size(), setting.cases.size()));
    return ExitCode::kInterrupted;
  }
  KIPP_TRY(standard_output().write(json ? write_json(bench_json(report)) + "\n" : bench_text(report)));
  return ExitCode::kOk;
}

ExitCode bench(const BenchFlags& flags) {
  const auto path = artifact_path(flags.model);
  if (!path) {
    return fail(ExitCode::kModel, path.error());
  }
  const auto file = ModelFile::open(*path, {.allow_synthetic = flags.model.allow_synthetic});
  if (!file) {
    return fail(ExitCode::kModel, file.error());
  }
  const auto setting = prepare(*file, flags);
  if (!setting) {
    return fail(ExitCode::kFailure, setting.error());
  }
  auto model = open_with_progress(*path, setting->options);
  if (!model) {
    return fail(ExitCode::kModel, model.error());
  }
  const auto done = measure(*setting, *std::move(model), flags.json);
  return done ? *done : fail(ExitCode::kFailure, done.error());
}

constexpr std::string_view kExamples =
    "  kipp bench -m models/kipp-kipp-demo-bf16.gguf --backend cpu\n"
    "  kipp bench -m models/kipp-kipp-demo-bf16.gguf --backend cpu --prefill 0 --depth 16,1024 --batch 1,8 --json\n";

}  // namespace

void add_bench_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "Speed of a model beside the limits of the machine");
  const auto flags = std::make_shared<BenchFlags>();
  add_artifact_flags(*command, flags->model);
  add_backend_flags(*command, flags->model);
  add_copy_flag(*command, flags->model);
  BenchPlan& plan = flags->plan;
  add_list_flag(*command, "--prefill", plan.prefill, {.min = 0, .max = 1 << 20},
                "Lengths of prompts, as N,N,...; 0: none (default: 512)");
  add_number_flag<int32_t>(*command, "--decode", plan.decode, {.min = 0, .max = 1 << 20},
                           "Steps of a repetition of decoding; 0: none (default: 64)");
  add_list_flag(*command, "--depth", plan.depths, {.min = 0, .max = 1 << 20},
                "Tokens that a sequence holds when it decodes, as N,N,... (default: 16)");
  add_list_flag(*command, "--batch", plan.batches, {.min = 1, .max = 64},
                "Sequences that decode together, as N,N,... (default: 1)");
  add_number_flag<int32_t>(*command, "--repetitions", plan.repetitions, {.min = 1, .max = 1000},
                           "Timed repetitions after one warm-up (default: 5)");
  command->add_flag("--sample", plan.draw, "Also draw each decoded token, greedily, where the logits are");
  command->add_flag("--no-start", plan.skip_start, "Do not time opening and the first token");
  add_number_flag<uint64_t>(*command, "--seed", plan.seed, {.min = 0}, "Seed of the token ids (default: 0)");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command->footer(help_footer(kExamples));
  command->callback([flags, &exit_code] { exit_code = bench(*flags); });
}

}  // namespace kipp::cli
