// `kipp render`: a chat to the prompt that the model sees.
#include <array>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/json_values.h"
#include "cli/artifact_command.h"
#include "cli/chat_flags.h"
#include "cli/commands.h"
#include "cli/fields.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/text_flag.h"
#include "kipp/chat.h"
#include "kipp_checkpoints.h"

namespace kipp::cli {
namespace {

struct RenderFlags {
  ModelFlags model;
  ChatFlags chat;
  std::string prompt;
  std::string variant;  // empty: the artifact's
  bool no_generation_prompt = false;
  bool ids = false;
  bool jsonl = false;
};

// The last three are what golden files carry beside the chat: such a file can be piped in as it is.
constexpr std::array<std::string_view, 5> kOwnFields = {"messages", "variant", "name", "rendered", "ids"};
constexpr auto kFields = joined(kOwnFields, kChatFields);

constexpr std::array kVariants = {Variant::kBase, Variant::kInstruct, Variant::kInstruct2507, Variant::kThinking2507};

Result<Variant> variant_of_name(std::string_view name) {
  std::string known;
  for (const Variant variant : kVariants) {
    if (variant_name(variant) == name) {
      return variant;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", variant_name(variant));
  }
  return make_error(ErrorCode::kInvalidArgument, fmt::format("unknown variant \"{}\"; known: {}", name, known));
}

// The line's variant, else the flag's, else the artifact's.
Result<Variant> choose_variant(const OpenArtifact& artifact, const RenderFlags& flags,
                               const std::optional<std::string>& line_variant) {
  const std::string& name = line_variant ? *line_variant : flags.variant;
  if (name.empty() && !line_variant) {
    return artifact.file.info().checkpoint->variant;
  }
  return variant_of_name(name);
}

Result<RenderedPrompt> render_object(const OpenArtifact& artifact, const RenderFlags& flags, const Json& object) {
  KIPP_TRY(check_field_names(object, kFields));
  KIPP_ASSIGN(const std::optional<std::string> line_variant, string_field(object, "variant"));
  KIPP_ASSIGN(const Variant variant, choose_variant(artifact, flags, line_variant));
  KIPP_ASSIGN(ChatRequest chat, chat_of_json(object, flags.chat, ContentRule::kAsTemplate));
  KIPP_ASSIGN(const std::optional<bool> said, bool_field(object, "add_generation_prompt"));
  if (flags.no_generation_prompt && !said) {
    chat.add_generation_prompt = false;
  }
  return render_chat(chat, variant, artifact.tokenizer);
}

Result<Json> answer_line(const OpenArtifact& artifact, const RenderFlags& flags, const Json& object) {
  KIPP_ASSIGN(RenderedPrompt prompt, render_object(artifact, flags, object));
  return Json::object({{"rendered", Json::string(std::move(prompt.text))}, {"ids", ids_json(prompt.ids)}});
}

Result<ExitCode> render_prompt(const OpenArtifact& artifact, const RenderFlags& flags) {
  const Json object = Json::object({{"messages", messages_of_prompt(flags.prompt)}});
  KIPP_ASSIGN(const RenderedPrompt prompt, render_object(artifact, flags, object));
  KIPP_TRY(standard_output().write(flags.ids ? fmt::format("{}\n", fmt::join(prompt.ids, " ")) : prompt.text));
  return ExitCode::kOk;
}

ExitCode render(RenderFlags& flags) {
  const Result<void> tools = load_tools(flags.chat);
  if (!tools) {
    return end_of(tools.error());
  }
  return run_artifact_command(
      flags.model, flags.jsonl,
      {.answer_line = [&](const OpenArtifact& artifact,
                          const Json& line) { return answer_line(artifact, flags, line); },
       .answer_flags = [&](const OpenArtifact& artifact) { return render_prompt(artifact, flags); }});
}

void check_flags(const RenderFlags& flags, bool has_prompt) {
  if (has_prompt == flags.jsonl) {
    throw CLI::ValidationError("PROMPT", flags.jsonl ? "not together with --jsonl: chats come from standard input"
                                                     : "missing (or use --jsonl)");
  }
  if (flags.jsonl && (flags.ids || flags.chat.tools_path == "-")) {
    throw CLI::ValidationError("--jsonl", "not together with --ids or --tools -");
  }
  if (!flags.variant.empty()) {
    const auto variant = variant_of_name(flags.variant);
    if (!variant) {
      throw CLI::ValidationError("--variant", variant.error().message);
    }
  }
}

constexpr std::string_view kExamples =
    "  kipp render -m models/kipp-kipp-demo-bf16.gguf --system \"Be brief.\" --thinking off \"Hello\"\n"
    "  head -n 20 tests/golden/chat.jsonl | kipp render -m models/kipp-kipp-demo-bf16.gguf --jsonl\n";

}  // namespace

void add_render_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("render", "A chat to the prompt that the model sees");
  const auto flags = std::make_shared<RenderFlags>();
  const CLI::Option* prompt = command->add_option("PROMPT", flags->prompt, "A user's message");
  add_artifact_flags(*command, flags->model);
  command->add_option("--variant", flags->variant, "Template: instruct, instruct-2507, thinking-2507")
      ->check(not_empty())
      ->type_name("NAME");
  command->add_flag("--no-generation-prompt", flags->no_generation_prompt, "End after the last message");
  command->add_flag("--ids", flags->ids, "Print token ids instead of text");
  command->add_flag("--jsonl", flags->jsonl,
                    "{\"messages\", ...} from standard input to {\"rendered\", \"ids\"}, a line each");
  add_chat_flags(*command, flags->chat);
  command->footer(help_footer(kExamples));
  command->callback([prompt, flags, &exit_code] {
    check_flags(*flags, prompt->count() > 0);
    exit_code = render(*flags);
  });
}

}  // namespace kipp::cli
