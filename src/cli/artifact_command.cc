// Opens the artifact and hands it to one of two ways: an answer to each line of standard input, or to the flags.
#include "cli/artifact_command.h"

#include "cli/jsonl.h"
#include "cli/output.h"

namespace kipp::cli {

ExitCode run_artifact_command(const ModelFlags& model, bool jsonl, const ArtifactCommand& command) {
  const auto artifact = open_artifact(model);
  if (!artifact) {
    return fail(ExitCode::kModel, artifact.error());
  }
  const auto line = [&](const Json& value, size_t) { return command.answer_line(*artifact, value); };
  return end_of(jsonl ? process_json_lines(line) : command.answer_flags(*artifact));
}

}  // namespace kipp::cli
