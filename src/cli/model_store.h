// The models folder: artifacts under the names that the converter gives them, found by registry id.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/model_file.h"
#include "kipp/error.h"
#include "kipp_checkpoints.h"

namespace kipp::cli {

// "kipp-<id>-<scheme>.gguf".
std::string artifact_name(const Checkpoint& checkpoint, QuantScheme scheme);

struct StoredArtifact {
  QuantScheme scheme;
  std::filesystem::path path;
  uint64_t bytes;
};
// The artifacts of one checkpoint in a folder, the most exact scheme first. A name is all that is looked at.
std::vector<StoredArtifact> stored_artifacts(const std::filesystem::path& folder, const Checkpoint& checkpoint);

// What --model says to a path: an existing file is itself, and so is a folder unless it has a registry id's name (the
// refusal of it says why); a registry id, or id:scheme, is looked up in the folder (the
// most exact scheme first); any other text is taken for a path. Errors: kNotFound with the two commands that fetch and
// convert the checkpoint; kInvalidArgument (an unknown scheme).
Result<std::filesystem::path> find_artifact(std::string_view model, const std::filesystem::path& folder);

// The commands that make a checkpoint's artifact, one a line; a folder's name is quoted where a shell needs it.
std::string how_to_make(const Checkpoint& checkpoint, QuantScheme scheme, const std::filesystem::path& folder);

}  // namespace kipp::cli
