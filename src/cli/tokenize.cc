// `kipp tokenize`: text to token ids.
#include <unistd.h>

#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/json_values.h"
#include "cli/artifact_command.h"
#include "cli/base64.h"
#include "cli/commands.h"
#include "cli/fields.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/request.h"

namespace kipp::cli {
namespace {

struct TokenizeFlags {
  ModelFlags model;
  std::string text;
  bool has_text = false;
  bool plain = false;
  bool replace_invalid = false;
  bool pieces = false;
  bool jsonl = false;
};

// The last five are what golden files carry beside the text: such a file can be piped in as it is.
constexpr std::array<std::string_view, 8> kFields = {"text", "text_b64",  "plain",    "name",
                                                     "ids",  "ids_plain", "ids_base", "decoded"};

EncodeOptions encode_options(const TokenizeFlags& flags, bool plain) {
  return {.special_tokens = plain ? SpecialTokens::kPlain : SpecialTokens::kParse,
          .invalid_utf8 = flags.replace_invalid ? InvalidUtf8::kReplace : InvalidUtf8::kError};
}

Result<std::string> text_of_line(const Json& object) {
  KIPP_ASSIGN(std::optional<std::string> text, string_field(object, "text"));
  KIPP_ASSIGN(const std::optional<std::string> base64, string_field(object, "text_b64"));
  if (text.has_value() == base64.has_value()) {
    return make_error(ErrorCode::kInvalidArgument, text ? "expected one of \"text\" and \"text_b64\", found both"
                                                        : "expected \"text\" or \"text_b64\", found neither");
  }
  if (base64) {
    return decode_base64(*base64);
  }
  return std::move(*text);
}

Result<Json> answer_line(const Tokenizer& tokenizer, const TokenizeFlags& flags, const Json& object) {
  KIPP_TRY(check_field_names(object, kFields));
  KIPP_ASSIGN(const std::string text, text_of_line(object));
  KIPP_ASSIGN(const std::optional<bool> plain, bool_field(object, "plain"));
  KIPP_ASSIGN(const auto ids, tokenizer.encode(text, encode_options(flags, plain.value_or(flags.plain))));
  return Json::object({{"ids", ids_json(ids)}});
}

Result<ExitCode> tokenize_text(const Tokenizer& tokenizer, const TokenizeFlags& flags) {
  std::string text = flags.text;
  if (!flags.has_text) {
    KIPP_ASSIGN(text, read_all(STDIN_FILENO));
  }
  KIPP_ASSIGN(const auto ids, tokenizer.encode(text, encode_options(flags, flags.plain)));
  if (interrupted()) {
    return ExitCode::kInterrupted;
  }
  std::string out;
  if (flags.pieces) {
    for (const int32_t id : ids) {
      KIPP_ASSIGN(const std::string piece, quoted_piece(tokenizer, id));
      out += fmt::format("{:>6} {}\n", id, piece);
    }
  } else {
    out = fmt::format("{}\n", fmt::join(ids, " "));
  }
  KIPP_TRY(standard_output().write(out));
  return ExitCode::kOk;
}

ExitCode tokenize(const TokenizeFlags& flags) {
  return run_artifact_command(
      flags.model, flags.jsonl,
      {.answer_line = [&](const OpenArtifact& artifact,
                          const Json& line) { return answer_line(artifact.tokenizer, flags, line); },
       .answer_flags = [&](const OpenArtifact& artifact) { return tokenize_text(artifact.tokenizer, flags); }});
}

constexpr std::string_view kExamples =
    "  kipp tokenize -m models/kipp-kipp-demo-bf16.gguf \"Hello world\"\n"
    "  kipp tokenize -m models/kipp-kipp-demo-bf16.gguf --pieces < README.md\n"
    "  echo '{\"text\": \"<|im_end|>\", \"plain\": true}' | kipp tokenize -m models/kipp-kipp-demo-bf16.gguf --jsonl\n";

}  // namespace

void add_tokenize_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("tokenize", "Text to token ids");
  const auto flags = std::make_shared<TokenizeFlags>();
  const CLI::Option* text = command->add_option("TEXT", flags->text, "Text (default: standard input, to its end)");
  add_artifact_flags(*command, flags->model);
  command->add_flag("--plain", flags->plain, "Control tokens such as <|im_end|> in the text are text");
  command->add_flag("--replace-invalid", flags->replace_invalid, "Invalid UTF-8 becomes U+FFFD instead of an error");
  command->add_flag("--pieces", flags->pieces, "One token a line: id and piece");
  command->add_flag("--jsonl", flags->jsonl,
                    "{\"text\"} or {\"text_b64\"} from standard input to {\"ids\"}, a line each");
  command->footer(help_footer(kExamples));
  command->callback([text, flags, &exit_code] {
    flags->has_text = text->count() > 0;
    if (flags->jsonl && (flags->has_text || flags->pieces)) {
      throw CLI::ValidationError("--jsonl", "not together with TEXT or --pieces");
    }
    exit_code = tokenize(*flags);
  });
}

}  // namespace kipp::cli
