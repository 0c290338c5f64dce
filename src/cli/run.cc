// `kipp run`: completes a prompt or answers a chat, streamed to standard output; with --jsonl many of them.
#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "backend/backend.h"
#include "cli/commands.h"
#include "cli/fields.h"
#include "cli/interrupt.h"
#include "cli/jsonl.h"
#include "cli/model_flags.h"
#include "cli/number_flag.h"
#include "cli/output.h"
#include "cli/request.h"

namespace kipp::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  RequestDefaults request;
  std::string prompt;
  bool jsonl = false;
  bool quiet = false;
};

std::string rate(double count, double seconds) {
  return seconds > 0 && count > 0 ? fmt::format(" ({:.1f} tok/s)", count / seconds) : std::string();
}

void print_timings(const GenerateTimings& timings, size_t num_drawn) {
  print_message(fmt::format("prompt: {} tokens in {:.2f} s{}\ndecode: {} tokens in {:.2f} s{}\n", timings.prompt_tokens,
                            timings.prefill_seconds, rate(timings.prompt_tokens, timings.prefill_seconds), num_drawn,
                            timings.decode_seconds, rate(timings.decode_steps, timings.decode_seconds)));
}

void print_summary(const RunFlags& flags, const Request& request, const GenerateResult& result) {
  if (flags.quiet) {
    return;
  }
  print_timings(result.timings, result.ids.size());
  const bool cancelled = result.finish_reason == FinishReason::kCancelled;
  const char* finish = cancelled ? "interrupted" : finish_reason_name(result.finish_reason);
  print_message(fmt::format("finish: {}{}, backend: {}, seed: {}\n", finish,
                            result.context_full && request.generate ? " (the context is full)" : "",
                            flags.model.backend, request.options.seed));
}

Result<void> print_top(const Tokenizer& tokenizer, const std::vector<Candidate>& top) {
  std::string lines;
  int rank = 0;
  for (const Candidate& candidate : top) {
    KIPP_ASSIGN(const std::string piece, quoted_piece(tokenizer, candidate.id));
    lines += fmt::format("{:>3} {:>6} {:>13.9g} {}\n", ++rank, candidate.id, candidate.logit, piece);
  }
  return standard_output().write(lines);
}

Result<Json> top_json(const Tokenizer& tokenizer, const std::vector<Candidate>& top) {
  Json items = Json::array();
  for (const Candidate& candidate : top) {
    KIPP_ASSIGN(std::string piece, quoted_piece(tokenizer, candidate.id));
    items.push_back(Json::object({{"id", Json::number(int64_t{candidate.id})},
                                  {"logit", Json::number_literal(fmt::format("{:.9g}", candidate.logit))},
                                  {"piece", Json::string(std::move(piece))}}));
  }
  return items;
}

Result<ExitCode> run_prompt(Model& model, const RunFlags& flags) {
  KIPP_ASSIGN(const Request request, request_of_prompt(model, flags.prompt, flags.request));
  KIPP_ASSIGN(Session session, model.new_session());
  const RequestEvents events = {
      .on_top = [&](const std::vector<Candidate>& top) { return print_top(model.tokenizer(), top); },
      .on_text = [](std::string_view text) { return standard_output().write(text); }};
  KIPP_ASSIGN(const Answer answer, run_request(model, session, request, events));
  if (request.generate) {
    KIPP_TRY(standard_output().write("\n"));
  }
  print_summary(flags, request, answer.result);
  return answer.result.finish_reason == FinishReason::kCancelled ? ExitCode::kInterrupted : ExitCode::kOk;
}

struct Totals {
  GenerateTimings timings;
  size_t num_drawn = 0;

  void add(const GenerateResult& result) {
    timings.prompt_tokens += result.timings.prompt_tokens;
    timings.prefill_seconds += result.timings.prefill_seconds;
    timings.decode_steps += result.timings.decode_steps;
    timings.decode_seconds += result.timings.decode_seconds;
    num_drawn += result.ids.size();
  }
};

Result<Json> answer_line(Model& model, Session& session, const Request& request, Totals& totals) {
  KIPP_ASSIGN(const Answer answer, run_request(model, session, request, {}));
  totals.add(answer.result);
  Json line = Json::object({{"text", Json::string(answer.result.text)},
                            {"ids", ids_json(answer.result.ids)},
                            {"finish_reason", Json::string(finish_reason_name(answer.result.finish_reason))}});
  if (request.num_top > 0) {
    KIPP_ASSIGN(Json top, top_json(model.tokenizer(), answer.top));
    line.set("top", std::move(top));
  }
  return line;
}

Result<ExitCode> run_lines(Model& model, const RunFlags& flags) {
  KIPP_ASSIGN(Session session, model.new_session());
  const uint64_t first_seed = draw_seed();
  Totals totals;
  JsonLinesCounts counts;
  const auto handler = [&](const Json& value, size_t line) -> Result<Json> {
    KIPP_ASSIGN(const Request request, request_of_json(model, value, flags.request, first_seed + line - 1));
    return answer_line(model, session, request, totals);
  };
  KIPP_ASSIGN(const ExitCode exit_code, process_json_lines(handler, &counts));
  if (!flags.quiet) {
    print_timings(totals.timings, totals.num_drawn);
    const bool named = flags.request.sampling.seed.has_value();
    print_message(fmt::format(
        "lines: {}, failed: {}, backend: {}, seed: {}\n", counts.lines, counts.failed, flags.model.backend,
        named ? fmt::format("{}", *flags.request.sampling.seed) : fmt::format("{} + line - 1", first_seed)));
  }
  return exit_code;
}

// What the flags' types alone cannot say.
void check_flags(const CLI::App& command, const RunFlags& flags) {
  const bool has_prompt = command.get_option("PROMPT")->count() > 0;
  if (has_prompt == flags.jsonl) {
    throw CLI::ValidationError("PROMPT", flags.jsonl ? "not together with --jsonl: prompts come from standard input"
                                                     : "missing (or use --jsonl)");
  }
  if (any_chat_flag(flags.request.chat) && !flags.request.apply_template && !flags.jsonl) {
    throw CLI::ValidationError("--system, --thinking, --tools", "need --chat");
  }
  if (flags.request.plain && flags.request.apply_template) {
    throw CLI::ValidationError("--plain", "not together with --chat: text in a chat is always plain");
  }
  if (flags.jsonl && flags.request.chat.tools_path == "-") {
    throw CLI::ValidationError("--tools", "- is standard input, which --jsonl reads");
  }
  const Result<void> valid = check_sampling(flags.request.sampling);
  if (!valid) {
    throw CLI::ValidationError("sampling", valid.error().message);
  }
}

ExitCode run(RunFlags& flags) {
  const Result<void> tools = load_tools(flags.request.chat);
  if (!tools) {
    return interrupted() ? ExitCode::kInterrupted : fail(ExitCode::kFailure, tools.error());
  }
  const auto model = open_model(flags.model);
  if (!model) {
    return fail(ExitCode::kModel, model.error());
  }
  const auto done = flags.jsonl ? run_lines(**model, flags) : run_prompt(**model, flags);
  return done ? *done : fail(ExitCode::kFailure, done.error());
}

constexpr std::string_view kExamples =
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --chat \"What is the capital of France?\"\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --chat --thinking on --decode 256 \"7 + 15?\"\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --greedy --decode 32 \"Once upon a time\"\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --top 10 \"Hi\"\n"
    "  echo '{\"prompt\": \"Hi\", \"decode\": 8, \"seed\": 1}' | kipp run -m models/kipp-kipp-demo-bf16.gguf --jsonl\n";

}  // namespace

void add_run_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Complete a prompt, or answer it with --chat");
  const auto flags = std::make_shared<RunFlags>();
  command->add_option("PROMPT", flags->prompt, "Text to complete; control tokens in it are parsed unless --plain");
  add_model_flags(*command, flags->model);
  add_number_flag<int32_t>(*command, "--decode", flags->request.decode, {.min = 0},
                           "Tokens at most (default: what the context holds)");
  add_number_flag<int32_t>(*command, "--top", flags->request.num_top, {.min = 1},
                           "Print rank, id, logit and piece of the N best next tokens; "
                           "generates only if --decode is given too");
  command->add_flag("--plain", flags->request.plain, "Control tokens such as <|im_end|> in the prompt are text");
  command->add_flag("--jsonl", flags->jsonl, "Requests from standard input, one JSON object a line, answered in order");
  command->add_flag("-q,--quiet", flags->quiet, "No summary on standard error");
  command->add_flag("--chat", flags->request.apply_template, "PROMPT is a user's message: apply the chat template")
      ->group("Chat");
  add_chat_flags(*command, flags->request.chat);
  add_sampling_flags(*command, flags->request.sampling);
  command->footer(help_footer(kExamples));
  command->callback([command, flags, &exit_code] {
    check_flags(*command, *flags);
    exit_code = run(*flags);
  });
}

}  // namespace kipp::cli
