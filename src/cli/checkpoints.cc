// `kipp checkpoints`: the registry as a table, with what is in the models folder and what was gated.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/json.h"
#include "base/json_values.h"
#include "cli/commands.h"
#include "cli/gate_records.h"
#include "cli/model_flags.h"
#include "cli/model_store.h"
#include "cli/output.h"
#include "cli/units.h"
#include "model/dimensions.h"

namespace kipp::cli {
namespace {

struct CheckpointsFlags {
  std::string folder = "models";
  bool json = false;
};

std::string stored_text(const std::vector<StoredArtifact>& stored) {
  std::string text;
  for (const StoredArtifact& artifact : stored) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", scheme_name(artifact.scheme), bytes_text(artifact.bytes));
  }
  return text.empty() ? "-" : text;
}

// What the records prove: a twin's say something of the engine, nothing of the checkpoint.
std::string gated_text(const std::vector<GateRecord>& records) {
  std::string text;
  for (const GateRecord& record : records) {
    text += fmt::format("{}{}{} {} {}", text.empty() ? "" : ", ", record.synthetic ? "twin: " : "", record.backend,
                        record.scheme, record.verdict);
  }
  return text.empty() ? "-" : text;
}

using Row = std::vector<std::string>;

std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string report(const std::string& folder) {
  std::vector<Row> rows = {{"ID", "VARIANT", "PARAMETERS", "CONTEXT", "ON DISK", "GATES"}};
  for (const Checkpoint& checkpoint : kCheckpoints) {
    rows.push_back({std::string(checkpoint.id), std::string(variant_name(checkpoint.variant)),
                    count_text(num_parameters(dimensions_of(checkpoint))), fmt::format("{}", checkpoint.context),
                    stored_text(stored_artifacts(folder, checkpoint)), gated_text(records_of(checkpoint.id))});
  }
  return table(rows);
}

Json stored_json(const StoredArtifact& artifact) {
  return Json::object({{"scheme", Json::string(scheme_name(artifact.scheme))},
                       {"path", Json::string(artifact.path.string())},
                       {"bytes", Json::number(static_cast<int64_t>(artifact.bytes))}});
}

Json entry_json(const Checkpoint& checkpoint, const std::string& folder) {
  return Json::object({{"id", Json::string(std::string(checkpoint.id))},
                       {"repository", Json::string(std::string(checkpoint.repository))},
                       {"revision", Json::string(std::string(checkpoint.revision))},
                       {"variant", Json::string(std::string(variant_name(checkpoint.variant)))},
                       {"parameters", Json::number(num_parameters(dimensions_of(checkpoint)))},
                       {"context", Json::number(int64_t{checkpoint.context})},
                       {"on_disk", array_json(stored_artifacts(folder, checkpoint), stored_json)},
                       {"gates", array_json(records_of(checkpoint.id), record_json)}});
}

ExitCode checkpoints(const CheckpointsFlags& flags) {
  if (std::error_code ignored; !std::filesystem::is_directory(flags.folder, ignored)) {
    print_message(fmt::format("kipp: there is no models folder {}\n", flags.folder));
  }
  std::string text = report(flags.folder);
  if (flags.json) {
    const auto entry = [&](const Checkpoint& checkpoint) { return entry_json(checkpoint, flags.folder); };
    text = write_json(array_json(kCheckpoints, entry)) + "\n";
  }
  return print_result(text);
}

constexpr std::string_view kExamples =
    "  kipp checkpoints\n"
    "  kipp checkpoints --models models --json\n";

}  // namespace

void add_checkpoints_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command =
      app.add_subcommand("checkpoints", "The registry: what Kipp runs, what is on disk, what was gated");
  const auto flags = std::make_shared<CheckpointsFlags>();
  add_folder_flag(*command, flags->folder);
  command->add_flag("--json", flags->json, "Print the table as JSON");
  command->footer(help_footer(kExamples));
  command->callback([flags, &exit_code] { exit_code = checkpoints(*flags); });
}

}  // namespace kipp::cli
