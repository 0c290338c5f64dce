// An opened artifact: mapped, parsed, and checked to be exactly what the registry predicts. Opening reads the header
// only: its time and memory do not depend on the size of the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "kipp/error.h"
#include "kipp/tokenizer.h"
#include "kipp_checkpoints.h"
#include "model/dimensions.h"
#include "model/weights.h"

namespace kipp {

enum class QuantScheme : uint8_t { kBf16, kQ8_0, kAffine4Gs32 };
const char* scheme_name(QuantScheme scheme);  // "bf16", "q8_0", "affine4_gs32"

// Default sampling of the checkpoint (its generation_config.json as recorded at conversion).
struct SamplingDefaults {
  std::optional<float> temperature;
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;
};

// What the artifact says about itself, apart from weights and tokenizer.
struct ArtifactInfo {
  const Checkpoint* checkpoint = nullptr;  // the registry entry
  Dimensions dimensions{};                 // the registry's, or with a synthetic twin's own number of layers
  QuantScheme scheme = QuantScheme::kBf16;
  std::string source_repository;  // "Qwen/…", "synthetic/<id>" or "synthetic/<id>-<n>layers"
  std::string source_revision;
  std::vector<std::string> source_sha256;  // "file:hash"
  bool synthetic = false;
  bool isolates_think_tokens = false;
  std::optional<std::string> chat_template;  // recorded, never executed
  std::vector<int32_t> stop_token_ids;
  SamplingDefaults sampling;

  // Ids below it have a token and may be sampled; equal to Tokenizer::num_tokens() of the artifact's tokenizer.
  int32_t num_tokens() const { return isolates_think_tokens ? kNumTokens : kFirstThinkToken; }
};

class ModelFile {
 public:
  struct Options {
    bool allow_synthetic = false;           // accept a synthetic twin (weights drawn from a seed)
    bool copy = false;                      // into memory of the process (MappedFile::copy) instead of mapping the file
    MappedFile::Progress on_progress = {};  // of the copy
  };

  // Errors: kNotFound, kIo; kInvalidArtifact naming the field, what was expected and what was found; kUnsupported for
  // an architecture or scheme that Kipp does not run, and for a synthetic twin without allow_synthetic.
  static Result<ModelFile> open(const std::filesystem::path& path, const Options& options);

  const ArtifactInfo& info() const { return info_; }
  const ModelWeights& weights() const { return weights_; }
  // Views into the mapped header: valid as long as this ModelFile lives.
  const TokenizerSource& tokenizer() const { return tokenizer_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }  // the whole file; WeightView offsets index it
  const std::filesystem::path& path() const { return path_; }
  // sha256 (hex) over the header: every metadata key and tensor entry, so also the sources' hashes. Computed
  // on each call (about 30 ms): opening must not pay for it.
  std::string header_sha256() const;

 private:
  ModelFile() = default;
  std::filesystem::path path_;
  MappedFile file_;
  ArtifactInfo info_;
  ModelWeights weights_;
  TokenizerSource tokenizer_;
  size_t header_bytes_ = 0;  // up to the last tensor entry
};

}  // namespace kipp
