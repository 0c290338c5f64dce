// Declares the flags with their help texts, and opens what they name: the whole model or the tokenizer alone.
#include "cli/model_flags.h"

#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/number_flag.h"

namespace kipp::cli {

void add_artifact_flags(CLI::App& command, ModelFlags& flags) {
  command.add_option("-m,--model", flags.path, "Artifact (.gguf made by tools/convert_to_gguf.py)")
      ->envname("KIPP_MODEL")
      ->type_name("PATH");
  command.add_flag("--allow-synthetic", flags.allow_synthetic, "Accept a synthetic twin (weights drawn from a seed)");
}

void add_backend_flags(CLI::App& command, ModelFlags& flags) {
  command.add_option("--backend", flags.backend, "Backend to run on")->capture_default_str()->type_name("NAME");
  add_number_flag<int32_t>(command, "--threads", flags.num_threads, {.min = 0, .max = 4096},
                           "Threads; 0: the processors this process may use");
}

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  add_artifact_flags(command, flags);
  add_backend_flags(command, flags);
  add_number_flag<int32_t>(command, "--context", flags.context, {.min = 0},
                           "Positions a sequence may hold; 0: the checkpoint's, 4096 at most");
}

Result<void> require_path(const ModelFlags& flags) {
  if (flags.path.empty()) {
    return make_error(ErrorCode::kNotFound, "no model: give --model PATH or set KIPP_MODEL");
  }
  return {};
}

Result<std::unique_ptr<Model>> open_model(const ModelFlags& flags) {
  KIPP_TRY(require_path(flags));
  return Model::open(flags.path, {.backend = flags.backend,
                                  .num_threads = flags.num_threads,
                                  .context = flags.context,
                                  .allow_synthetic = flags.allow_synthetic});
}

Result<OpenArtifact> open_artifact(const ModelFlags& flags) {
  KIPP_TRY(require_path(flags));
  KIPP_ASSIGN(ModelFile file, ModelFile::open(flags.path, {.allow_synthetic = flags.allow_synthetic}));
  KIPP_ASSIGN(Tokenizer tokenizer, Tokenizer::create(file.tokenizer()));
  return OpenArtifact{std::move(file), std::move(tokenizer)};
}

}  // namespace kipp::cli
