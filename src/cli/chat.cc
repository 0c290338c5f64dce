// `kipp chat`: a conversation at the terminal, or line by line from standard input.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/chat_commands.h"
#include "cli/chat_view.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/model_flags.h"
#include "cli/number_flag.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/request.h"
#include "cli/terminal.h"
#include "cli/text_flag.h"

namespace kipp::cli {
namespace {

struct ChatCommandFlags {
  ModelFlags model;
  RequestDefaults request;
  std::string history;
  bool quiet = false;
};

// Where lines come from: a person's terminal, or a pipe or file.
class LineSource {
 public:
  static Result<LineSource> open(const std::string& history) {
    LineSource source;
    if (is_terminal(STDIN_FILENO) && is_terminal(STDOUT_FILENO)) {
      KIPP_ASSIGN(LineEditor editor, LineEditor::create(history));
      source.editor_.emplace(std::move(editor));
    }
    return source;
  }

  bool interactive() const { return editor_.has_value(); }

  // A message: lines joined where they end with a backslash. Nothing at the end of the input. given_up: Ctrl-C.
  Result<std::optional<std::string>> next(bool& given_up) {
    std::string message;
    given_up = false;
    for (const char* prompt = "> "; !given_up; prompt = ". ") {
      KIPP_ASSIGN(const std::optional<std::string> line, read(prompt, given_up));
      if (!line) {
        return message.empty() || given_up ? std::nullopt : std::optional(message);
      }
      message += *line;
      if (!message.ends_with('\\')) {
        break;
      }
      message.back() = '\n';
    }
    if (editor_ && !message.empty()) {
      editor_->remember(message);
    }
    return message;
  }

  Result<void> save_history() { return editor_ ? editor_->save_history() : Result<void>(); }

 private:
  Result<std::optional<std::string>> read(const char* prompt, bool& given_up) {
    if (!editor_) {
      KIPP_ASSIGN(std::optional<LineReader::Line> line, reader_.next());
      given_up = interrupted();
      if (line && line->too_long) {
        return make_error(ErrorCode::kInvalidArgument, fmt::format("a line is longer than {} bytes", kMaxLineBytes));
      }
      return line && !given_up ? std::optional(std::move(line->text)) : std::nullopt;
    }
    std::string line;
    const LineEditor::Outcome outcome = editor_->read(prompt, line);
    given_up = outcome == LineEditor::Outcome::kInterrupted;
    return outcome == LineEditor::Outcome::kLine ? std::optional(std::move(line)) : std::nullopt;
  }

  std::optional<LineEditor> editor_;
  LineReader reader_{STDIN_FILENO};
};

class Chat {
 public:
  Chat(Model& model, Conversation conversation, LineSource source, const ChatCommandFlags& flags)
      : conversation_(std::move(conversation)),
        source_(std::move(source)),
        flags_(flags),
        options_(generate_options(model, flags.request, flags.request.sampling)),
        seed_(flags.request.sampling.seed ? *flags.request.sampling.seed : draw_seed()),
        view_(standard_output(), use_colours(STDOUT_FILENO)) {}

  Result<ExitCode> run() {
    while (!ended_) {
      bool given_up = false;
      KIPP_ASSIGN(const std::optional<std::string> line, source_.next(given_up));
      if (given_up && !source_.interactive()) {
        return ExitCode::kInterrupted;
      }
      if (given_up) {
        rearm_interrupt();
        print_message("^C\n");
        note("Ctrl-D or /quit ends");
        continue;
      }
      if (!line) {
        break;
      }
      KIPP_TRY(take_line(*line));
      if (interrupted() && !source_.interactive()) {
        return ExitCode::kInterrupted;
      }
      rearm_interrupt();
    }
    KIPP_TRY(source_.save_history());
    if (source_.interactive() && !ended_) {
      KIPP_TRY(standard_output().write("\n"));  // behind the prompt that Ctrl-D left
    }
    return failed_ ? ExitCode::kFailure : ExitCode::kOk;
  }

 private:
  // Errors end the chat: those of standard output. All others are shown, and the chat goes on.
  Result<void> take_line(const std::string& line) {
    Result<std::optional<ChatCommand>> command = parse_chat_command(line);
    if (!command) {
      return report(command.error());
    }
    if (*command) {
      return obey(**command);
    }
    if (line.find_first_not_of(" \t\r\n") == std::string::npos) {
      return {};
    }
    return ask(Role::kUser, std::string(message_of_line(line)));
  }

  Result<void> obey(const ChatCommand& command) {
    switch (command.kind) {
      case ChatCommandKind::kHelp: print_message(chat_help()); break;
      case ChatCommandKind::kReset:
        conversation_.reset();
        note("the chat is empty");
        break;
      case ChatCommandKind::kUndo: undo(); break;
      case ChatCommandKind::kSystem:
        conversation_.set_system(command.argument);
        note("the chat is empty, with a new system prompt");
        break;
      case ChatCommandKind::kTool: return ask(Role::kTool, command.argument);
      case ChatCommandKind::kQuit: ended_ = true; break;
      case ChatCommandKind::kSave:
        if (const auto saved = save_conversation(conversation_.request(), command.argument); !saved) {
          return report(saved.error());
        }
        note(fmt::format("saved to {}", command.argument));
        break;
    }
    return {};
  }

  void undo() {
    const std::optional<ChatMessage> undone = conversation_.undo();
    note(undone ? fmt::format("took back: {}", undone->content.value_or("")) : "there is nothing to take back");
  }

  Result<void> ask(Role role, std::string content) {
    ChatMessage message;
    message.role = role;
    message.content = std::move(content);
    options_.seed = seed_ + num_answers_;
    Progress progress("prompt", 0, "tokens");
    Result<void> written;
    const Conversation::Events events = {.on_output =
                                             [&](const OutputEvent& event) {
                                               progress.clear();
                                               written = view_.show(event);
                                               return written;
                                             },
                                         .on_prompt =
                                             [&](size_t evaluated, size_t total) {
                                               progress.update(evaluated, total);
                                               return !interrupted();
                                             },
                                         .goes_on = [] { return !interrupted(); }};
    const Result<Turn> turn = conversation_.ask(std::move(message), options_, events);
    progress.clear();
    KIPP_TRY(written);
    if (!turn) {
      return report(turn.error());
    }
    ++num_answers_;
    KIPP_TRY(view_.end());
    summarise(*turn);
    return {};
  }

  void summarise(const Turn& turn) const {
    const GenerateResult& result = turn.result;
    if (result.finish_reason == FinishReason::kCancelled) {
      note(result.ids.empty() ? "stopped before the answer; the question is taken back" : "stopped");
    } else if (result.context_full) {
      note("the context is full: /undo or /reset makes room");
    }
    if (flags_.quiet) {
      return;
    }
    const double seconds = result.timings.decode_seconds;
    const double rate = seconds > 0 ? result.timings.decode_steps / seconds : 0.0;
    note(fmt::format("{} of {} prompt tokens evaluated in {:.2f} s, {} tokens at {:.1f} tok/s",
                     result.timings.prompt_tokens, turn.prompt_tokens, result.timings.prefill_seconds,
                     result.ids.size(), rate));
  }

  // A line from Kipp itself.
  static void note(const std::string& text) {
    const bool colours = use_colours(STDERR_FILENO);
    print_message(fmt::format("{}[{}]{}\n", colours ? kDim : "", text, colours ? kReset : ""));
  }

  Result<void> report(const Error& error) {
    failed_ = !source_.interactive();  // a person has seen it
    print_message(fmt::format("kipp: error: {}\n", error.message));
    return {};
  }

  Conversation conversation_;
  LineSource source_;
  const ChatCommandFlags& flags_;
  GenerateOptions options_;
  uint64_t seed_;
  uint64_t num_answers_ = 0;
  ChatView view_;
  bool ended_ = false;
  bool failed_ = false;
};

// The system prompt, the tools and thinking, as a chat without a question.
Result<ChatRequest> opening_of(const ChatCommandFlags& flags) {
  const Json object = Json::object({{"messages", messages_of_prompt("")}});
  KIPP_ASSIGN(ChatRequest opening, chat_of_json(object, flags.request.chat, ContentRule::kTextParts));
  opening.messages.pop_back();
  return opening;
}

Result<ExitCode> converse(Model& model, const ChatCommandFlags& flags) {
  KIPP_ASSIGN(ChatRequest opening, opening_of(flags));
  KIPP_ASSIGN(Session session, model.new_session());
  KIPP_ASSIGN(LineSource source, LineSource::open(flags.history));
  if (source.interactive() && !flags.quiet) {
    print_message(fmt::format("{} ({}, {}). /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends.\n",
                              model.info().checkpoint->id, scheme_name(model.info().scheme), flags.model.backend));
  }
  Chat chat(model, Conversation(model, std::move(session), std::move(opening)), std::move(source), flags);
  return chat.run();
}

ExitCode chat(ChatCommandFlags& flags) {
  if (const Result<void> tools = load_tools(flags.request.chat); !tools) {
    return interrupted() ? ExitCode::kInterrupted : fail(ExitCode::kFailure, tools.error());
  }
  const auto model = open_model(flags.model);
  if (!model) {
    return fail(ExitCode::kModel, model.error());
  }
  if (const Checkpoint& checkpoint = *(*model)->info().checkpoint; checkpoint.variant == Variant::kBase) {
    return fail(ExitCode::kModel,
                {ErrorCode::kUnsupported,
                 fmt::format("{} is a base checkpoint, which has no chat template: use kipp run", checkpoint.id)});
  }
  const auto done = converse(**model, flags);
  return done ? *done : fail(ExitCode::kFailure, done.error());
}

void check_flags(const ChatCommandFlags& flags) {
  if (flags.request.chat.tools_path == "-") {
    throw CLI::ValidationError("--tools", "- is standard input, where the chat comes from");
  }
  if (const Result<void> valid = check_sampling(flags.request.sampling); !valid) {
    throw CLI::ValidationError("sampling", valid.error().message);
  }
}

constexpr std::string_view kExamples =
    "  kipp chat -m kipp-demo\n"
    "  kipp chat -m models/kipp-kipp-demo-bf16.gguf --system \"You answer in one sentence.\" --thinking on\n"
    "  echo \"What is Kipp?\" | kipp chat -m kipp-demo --greedy -q\n";

}  // namespace

void add_chat_command(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model at the terminal");
  const auto flags = std::make_shared<ChatCommandFlags>();
  add_model_flags(*command, flags->model);
  add_number_flag<int32_t>(*command, "--decode", flags->request.decode, {.min = 1},
                           "Tokens of an answer at most (default: what the context holds)");
  command->add_option("--history", flags->history, "Keep the typed lines in this file (default: they are forgotten)")
      ->check(not_empty())
      ->type_name("FILE");
  command->add_flag("-q,--quiet", flags->quiet, "No greeting and no figures on standard error");
  add_chat_flags(*command, flags->request.chat);
  add_sampling_flags(*command, flags->request.sampling);
  command->footer(help_footer(kExamples));
  command->callback([flags, &exit_code] {
    check_flags(*flags);
    exit_code = chat(*flags);
  });
}

}  // namespace kipp::cli
