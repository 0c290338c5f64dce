// `kipp chat`: a conversation at the terminal, or line by line from standard input.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/draw_seed.h"
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
#include "tokenizer/utf8.h"

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

  // kTooLong: a line that no message may be, skipped to its end; interactive lines are never that.
  enum class Outcome { kMessage, kTooLong, kInterrupted, kEnd };
  // Waits for a message: lines joined where they end with a backslash. Errors: kIo.
  Result<Outcome> next(std::string& message) {
    message.clear();
    std::string line;
    for (const char* prompt = "> ";; prompt = ". ") {
      KIPP_ASSIGN(const Outcome outcome, read(prompt, line));
      if (outcome != Outcome::kMessage) {
        return outcome == Outcome::kEnd && !message.empty() ? Outcome::kMessage : outcome;
      }
      message += line;
      if (!message.ends_with('\\')) {
        return Outcome::kMessage;
      }
      message.back() = '\n';
    }
  }

  // What to say of the line that was too long.
  Error too_long_line() const {
    return {ErrorCode::kInvalidArgument,
            fmt::format("line {}: expected {} bytes at most, found {}", line_number_, kMaxLineBytes, line_bytes_)};
  }

  // Keeps a message for the editor. Errors: those of LineHistory::add.
  Result<void> remember(const std::string& message) {
    return editor_ && !message.empty() ? editor_->remember(message) : Result<void>();
  }

 private:
  // One line, as next() does.
  Result<Outcome> read(const char* prompt, std::string& line) {
    ++line_number_;
    return editor_ ? read_typed(prompt, line) : read_piped(line);
  }

  Outcome read_typed(const char* prompt, std::string& line) {
    switch (editor_->read(prompt, line)) {
      case LineEditor::Outcome::kLine: return Outcome::kMessage;
      case LineEditor::Outcome::kInterrupted: return Outcome::kInterrupted;
      case LineEditor::Outcome::kEnd: return Outcome::kEnd;
    }
    return Outcome::kEnd;
  }

  Result<Outcome> read_piped(std::string& line) {
    KIPP_ASSIGN(std::optional<LineReader::Line> read, reader_.next());
    if (interrupted()) {
      return Outcome::kInterrupted;
    }
    line_bytes_ = read ? read->num_bytes : 0;
    if (!read || read->too_long) {
      return read ? Outcome::kTooLong : Outcome::kEnd;
    }
    line = std::move(read->text);
    if (line.ends_with('\r')) {  // a file from Windows
      line.pop_back();
    }
    return Outcome::kMessage;
  }

  std::optional<LineEditor> editor_;
  LineReader reader_{STDIN_FILENO};
  size_t line_number_ = 0;  // from 1
  size_t line_bytes_ = 0;
};

class Chat {
 public:
  Chat(Model& model, Conversation conversation, LineSource source, const ChatCommandFlags& flags)
      : conversation_(std::move(conversation)),
        source_(std::move(source)),
        flags_(flags),
        options_(generate_options(model, flags.request, flags.request.sampling)),
        seed_(flags.request.sampling.seed ? *flags.request.sampling.seed : draw_seed()),
        view_(standard_output(), use_colours(STDOUT_FILENO), is_terminal(STDOUT_FILENO)) {}

  Result<ExitCode> run() {
    using Outcome = LineSource::Outcome;
    std::string message;
    Outcome outcome = Outcome::kMessage;
    while (!ended_ && outcome != Outcome::kEnd) {
      KIPP_ASSIGN(outcome, source_.next(message));
      if (outcome == Outcome::kMessage) {
        remember(message);
        KIPP_TRY(take_line(message));
      } else if (outcome == Outcome::kTooLong) {
        report(source_.too_long_line());
      } else if (outcome == Outcome::kInterrupted && source_.interactive()) {
        print_message("^C\n");
        note("Ctrl-D or /quit ends");
      }
      if (interrupted() && !source_.interactive()) {
        return ExitCode::kInterrupted;
      }
      rearm_interrupt();
    }
    if (source_.interactive() && !ended_) {
      KIPP_TRY(standard_output().write("\n"));  // behind the prompt that Ctrl-D left
    }
    return failed_ || history_failed_ ? ExitCode::kFailure : ExitCode::kOk;
  }

 private:
  // Errors end the chat: those of standard output. All others are shown, and the chat goes on.
  Result<void> take_line(const std::string& line) {
    Result<std::optional<ChatCommand>> command = parse_chat_command(line);
    if (!command) {
      report(command.error());
      return {};
    }
    const bool is_path = *command && (*command)->kind == ChatCommandKind::kSave;
    if (const size_t valid = valid_utf8_prefix(line); valid < line.size() && !is_path) {
      report({ErrorCode::kInvalidArgument, fmt::format("expected UTF-8, found an invalid byte at offset {}", valid)});
      return {};
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
        note(command.argument.empty() ? "the chat is empty, without a system prompt"
                                      : "the chat is empty, with a new system prompt");
        break;
      case ChatCommandKind::kTool: return ask(Role::kTool, command.argument);
      case ChatCommandKind::kQuit: ended_ = true; break;
      case ChatCommandKind::kSave:
        if (const auto saved = save_conversation(conversation_.request(), command.argument); saved) {
          note(fmt::format("saved to {}", command.argument));
        } else {
          report(saved.error());
        }
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
    if (turn || view_.shows_answer()) {
      KIPP_TRY(view_.end());
    }
    if (!turn) {
      report(turn.error());
      return {};
    }
    ++num_answers_;
    summarise(*turn);
    return {};
  }

  void summarise(const Turn& turn) const {
    const GenerateResult& result = turn.result;
    if (result.finish_reason == FinishReason::kCancelled) {
      note(result.ids.empty() ? "stopped before the answer; the question is taken back" : "stopped");
    } else if (result.context_full) {
      note(result.ids.empty() ? "the context has no room for an answer: /undo or /reset makes some"
                              : "the context is full: /undo or /reset makes room");
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
    print_message(fmt::format("{}[{}]{}\n", colours ? kDim : "", for_standard_error(text), colours ? kReset : ""));
  }

  void report(const Error& error) {
    failed_ = !source_.interactive();  // a person has seen it
    print_message(fmt::format("kipp: error: {}\n", for_standard_error(error.message)));
  }

  // What an answer or a typed line may have put into a message must not act on the terminal.
  static std::string for_standard_error(const std::string& text) {
    return is_terminal(STDERR_FILENO) ? escape_controls(text) : text;
  }

  // A history that cannot be written is said once: the chat goes on, and every line tries again.
  void remember(const std::string& message) {
    const Result<void> remembered = source_.remember(message);
    if (!remembered && !history_failed_) {
      report(remembered.error());
    }
    history_failed_ = !remembered;
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
  bool history_failed_ = false;
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
  if (!source.interactive() && !flags.history.empty()) {
    print_message("kipp: --history is ignored: lines are kept only where a person types them, at a terminal\n");
  }
  if (source.interactive() && !flags.quiet) {
    print_message(fmt::format("{} ({}, {}). /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends.\n",
                              model.info().checkpoint->id, scheme_name(model.info().scheme), flags.model.backend));
  }
  Chat chat(model, Conversation(model, std::move(session), std::move(opening)), std::move(source), flags);
  return chat.run();
}

ExitCode chat(ChatCommandFlags& flags) {
  if (const Result<void> tools = load_tools(flags.request.chat); !tools) {
    return end_of(tools.error());
  }
  const auto model = open_model(flags.model);
  if (!model) {
    return fail(ExitCode::kModel, model.error());
  }
  if (interrupted()) {  // while it loaded
    return ExitCode::kInterrupted;
  }
  if (const Checkpoint& checkpoint = *(*model)->info().checkpoint; checkpoint.variant == Variant::kBase) {
    return fail(ExitCode::kModel,
                {ErrorCode::kUnsupported,
                 fmt::format("{} is a base checkpoint, which has no chat template: use kipp run", checkpoint.id)});
  }
  return end_of(converse(**model, flags));
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
