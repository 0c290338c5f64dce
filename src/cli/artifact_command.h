// The frame of tokenize, detokenize and render: open the artifact, then answer JSON Lines or the command line's one
// input.
#pragma once

#include <functional>

#include "base/json.h"
#include "cli/exit_code.h"
#include "cli/model_flags.h"
#include "kipp/error.h"

namespace kipp::cli {

struct ArtifactCommand {
  // One line of --jsonl.
  std::function<Result<Json>(const OpenArtifact&, const Json& line)> answer_line;
  // The input given by the other flags.
  std::function<Result<ExitCode>(const OpenArtifact&)> answer_flags;
};

// Errors are printed: kModel if the artifact is refused, kFailure for the rest.
ExitCode run_artifact_command(const ModelFlags& model, bool jsonl, const ArtifactCommand& command);

}  // namespace kipp::cli
