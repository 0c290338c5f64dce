// A set of reference vectors: what tools/generate_test_vectors.py saw the reference compute (tests/vectors/README.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "kipp/error.h"
#include "model/dimensions.h"

namespace kipp::gates {

// One prompt of T tokens. Without a reference only name, hash, text and ids.
struct PromptVectors {
  std::string name;
  std::string sha256;                    // of its file
  std::optional<std::string> text;       // absent where the ids do not come from a text
  std::vector<int32_t> ids;              // [T]
  std::vector<float> final_hidden;       // [T][hidden] after the last norm: the input of the head
  std::vector<int32_t> logit_positions;  // [P] ascending
  std::vector<float> logits;             // [P][vocab]
  std::vector<int32_t> tap_positions;    // [Q] ascending
  std::vector<float> taps;               // [num_layers + 1][Q][hidden]: residual after the embedding, after each layer
  std::vector<int32_t> greedy;           // [8] ids that follow the prompt, or empty
};

// Of a prompt. More is no reference for gates: a fault in one row's positions or blocks costs that row from 1.9e-3 on.
inline constexpr double kMostKvRounding = 5e-4;

struct VectorSet {
  std::string checkpoint_id;
  std::string repository;
  std::string revision;
  std::string quant_scheme;
  std::optional<std::string> header_sha256;  // of the artifact, where the reference was made from one
  std::string manifest_sha256;
  Json reference;                  // packages, device and dtype, as the tool recorded them; null: prompts alone
  std::optional<double> nmse_max;  // from nmse-max.txt, as the manifest announces it: a bound of its own
  // Of quantised weights: how far they lead the reference from the BF16 weights (nmse, worst_nmse, argmax_equal,
  // positions, manifest_sha256 of the vectors compared with). Null where the manifest does not say.
  Json loss_against_bf16;
  // How far rounding K and V to BF16, as the cache stores them, leads the reference in FP32 itself (nmse, worst_nmse,
  // worst_prompt_nmse, argmax_equal, positions). Null where the manifest does not say.
  Json kv_rounding;
  std::vector<PromptVectors> prompts;

  bool has_reference() const { return !reference.is_null(); }
};

// Reads manifest.json and every file that it names, and checks hashes, shapes, ids, positions, that values are finite,
// that a bound is one that the manifest announces, that a loss is one of quantised weights, and that rounding K and V
// was measured on a reference in FP32 and cost at most kMostKvRounding. Errors: kNotFound, kIo;
// kInvalidArtifact naming file and field, expected and found.
Result<VectorSet> load_vectors(const std::filesystem::path& folder, const Dimensions& dimensions);

}  // namespace kipp::gates
