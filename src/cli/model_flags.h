// The flags that choose and open a model, shared by the subcommands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "gguf/model_file.h"
#include "kipp/engine.h"
#include "kipp/error.h"
#include "kipp/tokenizer.h"

namespace CLI {
class App;
}

namespace kipp::cli {

struct ModelFlags {
  std::string model;              // a path, a registry id or id:scheme
  std::string folder = "models";  // where ids are looked up
  std::string backend = "cpu";
  Precision precision = Precision::kDefault;
  int32_t num_threads = 0;
  int32_t device = 0;
  int32_t context = 0;
  bool allow_synthetic = false;
  bool copy_weights = false;
};

// --models (or KIPP_MODELS).
void add_folder_flag(CLI::App& command, std::string& folder);
// --model (or KIPP_MODEL) and --models: all that looking at an artifact needs.
void add_name_flags(CLI::App& command, ModelFlags& flags);
// Both, and --allow-synthetic: all that tokenize, detokenize and render need.
void add_artifact_flags(CLI::App& command, ModelFlags& flags);
// --backend, --precision, --threads and --device.
void add_backend_flags(CLI::App& command, ModelFlags& flags);
// --copy-weights.
void add_copy_flag(CLI::App& command, ModelFlags& flags);
// All of these and --context.
void add_model_flags(CLI::App& command, ModelFlags& flags);

// The artifact that the flags name. Errors: kNotFound saying how to name a model, and what is there; those of
// find_artifact.
Result<std::filesystem::path> artifact_path(const ModelFlags& flags);

// Model::open with a progress bar while weights are copied. Errors: those of Model::open; kInvalidArgument (a copy for
// a backend that uploads weights).
Result<std::unique_ptr<Model>> open_with_progress(const std::filesystem::path& path, ModelOptions options);

// What the flags say of how to open a model.
ModelOptions model_options(const ModelFlags& flags);

// Errors: those of artifact_path and of Model::open.
Result<std::unique_ptr<Model>> open_model(const ModelFlags& flags);

// An artifact with its tokenizer and no backend: opens in milliseconds.
struct OpenArtifact {
  ModelFile file;
  Tokenizer tokenizer;
};
// Errors: those of artifact_path, ModelFile::open and Tokenizer::create.
Result<OpenArtifact> open_artifact(const ModelFlags& flags);

}  // namespace kipp::cli
