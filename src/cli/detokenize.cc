// `kipp detokenize`: token ids to text.
#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/artifact_command.h"
#include "cli/commands.h"
#include "cli/fields.h"
#include "cli/model_flags.h"
#include "cli/number_flag.h"
#include "cli/output.h"

namespace kipp::cli {
namespace {

struct DetokenizeFlags {
  ModelFlags model;
  std::vector<int32_t> ids;
  bool skip_special = false;
  bool jsonl = false;
};

// The last three are what golden files carry beside the ids: such a file can be piped in as it is.
constexpr std::array<std::string_view, 5> kFields = {"ids", "skip_special_tokens", "name", "decoded",
                                                     "decoded_skip_special"};

Result<Json> answer_line(const Tokenizer& tokenizer, const DetokenizeFlags& flags, const Json& object) {
  KIPP_TRY(check_field_names(object, kFields));
  KIPP_ASSIGN(const std::vector<int32_t> ids, ids_field(object, "ids"));
  KIPP_ASSIGN(const std::optional<bool> skip, bool_field(object, "skip_special_tokens"));
  KIPP_ASSIGN(std::string text, tokenizer.decode(ids, skip.value_or(flags.skip_special)));
  return Json::object({{"text", Json::string(std::move(text))}});
}

Result<ExitCode> detokenize_ids(const Tokenizer& tokenizer, const DetokenizeFlags& flags) {
  KIPP_ASSIGN(const std::string text, tokenizer.decode(flags.ids, flags.skip_special));
  KIPP_TRY(standard_output().write(text + "\n"));
  return ExitCode::kOk;
}

ExitCode detokenize(const DetokenizeFlags& flags) {
  return run_artifact_command(
      flags.model, flags.jsonl,
      {.answer_line = [&](const OpenArtifact& artifact,
                          const Json& line) { return answer_line(artifact.tokenizer, flags, line); },
       .answer_flags = [&](const OpenArtifact& artifact) { return detokenize_ids(artifact.tokenizer, flags); }});
}

constexpr std::string_view kExamples =
    "  kipp detokenize -m models/kipp-kipp-demo-bf16.gguf 9707 1879\n"
    "  echo '{\"ids\": [9707, 1879]}' | kipp detokenize -m models/kipp-kipp-demo-bf16.gguf --jsonl\n";

}  // namespace

void add_detokenize_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("detokenize", "Token ids to text");
  const auto flags = std::make_shared<DetokenizeFlags>();
  command->add_option_function<std::vector<std::string>>(
      "ID",
      [flags](const std::vector<std::string>& texts) {
        std::ranges::transform(texts, std::back_inserter(flags->ids), [](const std::string& text) {
          return number_of_text<int32_t>("ID", text, {.min = std::numeric_limits<int32_t>::min()});
        });
      },
      "Token ids");
  add_artifact_flags(*command, flags->model);
  command->add_flag("--skip-special", flags->skip_special, "Leave control tokens out of the text");
  command->add_flag("--jsonl", flags->jsonl, "{\"ids\"} from standard input to {\"text\"}, a line each");
  command->footer(help_footer(kExamples));
  command->callback([flags, &exit_code] {
    if (flags->jsonl != flags->ids.empty()) {
      throw CLI::ValidationError(
          "ID", flags->jsonl ? "not together with --jsonl: ids come from standard input" : "missing (or use --jsonl)");
    }
    exit_code = detokenize(*flags);
  });
}

}  // namespace kipp::cli
