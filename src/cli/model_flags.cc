// Declares the flags with their help texts, and opens what they name: the whole model or the tokenizer alone.
#include "cli/model_flags.h"

#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "backend/backend_machine.h"
#include "cli/model_store.h"
#include "cli/number_flag.h"
#include "cli/progress.h"
#include "cli/text_flag.h"

namespace kipp::cli {

void add_folder_flag(CLI::App& command, std::string& folder) {
  command.add_option("--models", folder, "Folder in which checkpoint ids are looked up")
      ->envname("KIPP_MODELS")
      ->check(not_empty())
      ->capture_default_str()
      ->type_name("DIR");
}

void add_name_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("-m,--model", flags.model, "Artifact: a path, or a checkpoint id such as qwen3-0.6b, or id:scheme")
      ->envname("KIPP_MODEL")
      ->type_name("MODEL");
  add_folder_flag(command, flags.folder);
}

void add_artifact_flags(CLI::App& command, ModelFlags& flags) {
  add_name_flags(command, flags);
  command.add_flag("--allow-synthetic", flags.allow_synthetic, "Accept a synthetic twin (weights drawn from a seed)");
}

void add_backend_flags(CLI::App& command, ModelFlags& flags) {
  command.add_option("--backend", flags.backend, "Backend to run on: cpu, cuda, or oracle, the slow reference")
      ->capture_default_str()
      ->type_name("NAME");
  const std::map<std::string, Precision> precisions = {{"default", Precision::kDefault}, {"high", Precision::kHigh}};
  command
      .add_option("--precision", flags.precision,
                  "Activations that meet quantised weights: of 16 bits (default) or of 24 (high)")
      ->transform(CLI::CheckedTransformer(precisions).description(""))
      ->type_name("default|high");
  add_number_flag<int32_t>(command, "--threads", flags.num_threads, {.min = 0, .max = 4096},
                           "Threads; 0: the processors this process may use");
  add_number_flag<int32_t>(command, "--device", flags.device, {.min = 0, .max = 1023}, "cuda: which GPU");
}

void add_copy_flag(CLI::App& command, ModelFlags& flags) {
  command.add_flag(
      "--copy-weights", flags.copy_weights,
      "Read the artifact into memory of the process, in huge pages if there are any, instead of mapping it");
}

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  add_artifact_flags(command, flags);
  add_backend_flags(command, flags);
  add_copy_flag(command, flags);
  add_number_flag<int32_t>(command, "--context", flags.context, {.min = 0},
                           "Positions a sequence may hold; 0: the checkpoint's, 4096 at most");
}

Result<std::filesystem::path> artifact_path(const ModelFlags& flags) {
  if (!flags.model.empty()) {
    return find_artifact(flags.model, flags.folder);
  }
  std::string there;
  for (const Checkpoint& checkpoint : kCheckpoints) {
    if (!stored_artifacts(flags.folder, checkpoint).empty()) {
      there += fmt::format("{}{}", there.empty() ? "" : ", ", checkpoint.id);
    }
  }
  return make_error(
      ErrorCode::kNotFound,
      fmt::format("no model: give --model PATH or --model ID, or set KIPP_MODEL; in the models folder {}: {}",
                  flags.folder, there.empty() ? "none" : there));
}

Result<std::unique_ptr<Model>> open_with_progress(const std::filesystem::path& path, ModelOptions options) {
  if (options.copy_weights && uploads_weights(options.backend)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--copy-weights: the backend \"{}\" copies weights to its device anyway: leave it out",
                    options.backend));
  }
  Progress bar("weights", 0, "MiB");
  options.on_copied = [&bar](uint64_t copied, uint64_t size) { bar.update(copied >> 20, size >> 20); };
  return Model::open(path, options);
}

ModelOptions model_options(const ModelFlags& flags) {
  return {.backend = flags.backend,
          .precision = flags.precision,
          .num_threads = flags.num_threads,
          .context = flags.context,
          .device = flags.device,
          .allow_synthetic = flags.allow_synthetic,
          .copy_weights = flags.copy_weights};
}

Result<std::unique_ptr<Model>> open_model(const ModelFlags& flags) {
  KIPP_ASSIGN(const std::filesystem::path path, artifact_path(flags));
  return open_with_progress(path, model_options(flags));
}

Result<OpenArtifact> open_artifact(const ModelFlags& flags) {
  KIPP_ASSIGN(const std::filesystem::path path, artifact_path(flags));
  KIPP_ASSIGN(ModelFile file, ModelFile::open(path, {.allow_synthetic = flags.allow_synthetic}));
  KIPP_ASSIGN(Tokenizer tokenizer, Tokenizer::create(file.tokenizer()));
  return OpenArtifact{std::move(file), std::move(tokenizer)};
}

}  // namespace kipp::cli
