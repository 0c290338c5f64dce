// `kipp run`: completes a prompt or answers a chat, streamed to standard output; with --jsonl many of them.
#include <unistd.h>

#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "backend/backend.h"
#include "base/draw_seed.h"
#include "cli/answer_json.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/jsonl.h"
#include "cli/model_flags.h"
#include "cli/number_flag.h"
#include "cli/output.h"
#include "cli/request.h"
#include "cli/terminal.h"
#include "cli/text_flag.h"
#include "engine/stop_matcher.h"

namespace kipp::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  RequestDefaults request;
  std::string prompt;
  std::string prompt_path;  // a file in place of PROMPT
  bool json = false;
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
  return standard_output().write(is_terminal(STDOUT_FILENO) ? escape_controls(lines) : lines);
}

// What a streamed answer shows as it comes; on a terminal without control characters that would act on it.
RequestEvents streaming_events(const Tokenizer& tokenizer) {
  const bool escapes = is_terminal(STDOUT_FILENO);
  return {.on_top = [&tokenizer](const std::vector<Candidate>& top) { return print_top(tokenizer, top); },
          .on_text =
              [escapes](std::string_view text) {
                return standard_output().write(escapes ? escape_controls(text) : std::string(text));
              }};
}

Result<ExitCode> run_prompt(Model& model, const RunFlags& flags) {
  std::string prompt = flags.prompt;
  if (!flags.prompt_path.empty()) {
    KIPP_ASSIGN(prompt, read_file(flags.prompt_path));
  }
  KIPP_ASSIGN(const Request request, request_of_prompt(model, prompt, flags.request));
  KIPP_ASSIGN(Session session, model.new_session());
  const RequestEvents events = flags.json ? RequestEvents() : streaming_events(model.tokenizer());
  KIPP_ASSIGN(const Answer answer, run_request(model, session, request, events));
  if (flags.json) {
    KIPP_ASSIGN(const Json json, answer_json(model, request, answer));
    KIPP_TRY(standard_output().write(write_json(json) + "\n"));
  } else if (request.generate) {
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
  return answer_json(model, request, answer);
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

void refuse_if(bool wrong, const char* flag, const char* reason) {
  if (wrong) {
    throw CLI::ValidationError(flag, reason);
  }
}

// What the flags' types alone cannot say.
void check_flags(const CLI::App& command, const RunFlags& flags) {
  const RequestDefaults& request = flags.request;
  const bool has_prompt = command.get_option("PROMPT")->count() > 0;
  const bool has_file = !flags.prompt_path.empty();
  refuse_if(has_prompt && has_file, "--file", "not together with PROMPT");
  refuse_if(has_prompt && flags.jsonl, "PROMPT", "not together with --jsonl: prompts come from standard input");
  refuse_if(has_file && flags.jsonl, "--file", "not together with --jsonl: prompts come from standard input");
  refuse_if(!has_prompt && !has_file && !flags.jsonl, "PROMPT", "missing (or use --file or --jsonl)");
  refuse_if(flags.json && flags.jsonl, "--json", "not together with --jsonl, whose answers are JSON already");
  refuse_if(request.num_logprobs >= 0 && !flags.json && !flags.jsonl, "--logprobs", "needs --json or --jsonl");
  refuse_if(any_chat_flag(request.chat) && !request.apply_template && !flags.jsonl, "--system, --thinking, --tools",
            "need --chat");
  refuse_if(request.plain && request.apply_template, "--plain",
            "not together with --chat: text in a chat is always plain");
  refuse_if(request.chat.tools_path == "-" && (flags.jsonl || flags.prompt_path == "-"), "--tools",
            "- is standard input, which is read already");
  if (const Result<void> valid = check_sampling(request.sampling); !valid) {
    throw CLI::ValidationError("sampling", valid.error().message);
  }
  if (const Result<void> valid = validate_stop_strings(request.stop); !valid) {
    throw CLI::ValidationError("--stop", valid.error().message);
  }
}

ExitCode run(RunFlags& flags) {
  const Result<void> tools = load_tools(flags.request.chat);
  if (!tools) {
    return end_of(tools.error());
  }
  const auto model = open_model(flags.model);
  if (!model) {
    return fail(ExitCode::kModel, model.error());
  }
  return end_of(flags.jsonl ? run_lines(**model, flags) : run_prompt(**model, flags));
}

constexpr std::string_view kExamples =
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --chat \"What is the capital of France?\"\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --chat --thinking on --decode 256 \"7 + 15?\"\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --greedy --decode 32 \"Once upon a time\"\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --top 10 \"Hi\"\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --chat --json --logprobs 3 \"What is Kipp?\"\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --decode 32 --file LICENSE\n"
    "  kipp run -m models/kipp-kipp-demo-bf16.gguf --stop . --stop \"?\" \"Once upon a time\"\n"
    "  echo '{\"prompt\": \"Hi\", \"decode\": 8, \"seed\": 1}' | kipp run -m models/kipp-kipp-demo-bf16.gguf --jsonl\n";

}  // namespace

void add_run_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Complete a prompt, or answer it with --chat");
  const auto flags = std::make_shared<RunFlags>();
  command->add_option("PROMPT", flags->prompt, "Text to complete; control tokens in it are parsed unless --plain");
  command->add_option("-f,--file", flags->prompt_path, "File with the prompt, taken as it is; - is standard input")
      ->check(not_empty())
      ->type_name("FILE");
  add_model_flags(*command, flags->model);
  add_number_flag<int32_t>(*command, "--decode", flags->request.decode, {.min = 0},
                           "Tokens at most (default: what the context holds)");
  command->add_option("--stop", flags->request.stop, "Ends the text before this string; may be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  add_number_flag<int32_t>(*command, "--top", flags->request.num_top, {.min = 1},
                           "Print rank, id, logit and piece of the N best next tokens; "
                           "generates only if --decode is given too");
  add_number_flag<int32_t>(*command, "--logprobs", flags->request.num_logprobs, {.min = 0, .max = 20},
                           "With --json: log-probability of each token, and of the N best");
  command->add_flag("--plain", flags->request.plain, "Control tokens such as <|im_end|> in the prompt are text");
  command->add_flag("--jsonl", flags->jsonl, "Requests from standard input, one JSON object a line, answered in order");
  command->add_flag("--json", flags->json, "Print the answer as one JSON object when it is complete");
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
