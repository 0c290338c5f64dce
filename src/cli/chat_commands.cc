// The table of commands, and the file that /save writes.
#include "cli/chat_commands.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_values.h"
#include "base/suggest.h"
#include "cli/message_json.h"
#include "gates/output_file.h"

namespace kipp::cli {
namespace {

enum class Argument { kNone, kRequired, kOptional };

struct CommandRow {
  ChatCommandKind kind;
  std::string_view name;
  Argument argument;
  std::string_view usage;
  std::string_view help;
};

constexpr std::array kCommands = {
    CommandRow{ChatCommandKind::kHelp, "/help", Argument::kNone, "/help", "shows this"},
    CommandRow{ChatCommandKind::kReset, "/reset", Argument::kNone, "/reset",
               "forgets the chat; the system prompt stays"},
    CommandRow{ChatCommandKind::kUndo, "/undo", Argument::kNone, "/undo",
               "takes back the last question and its answer"},
    CommandRow{ChatCommandKind::kSave, "/save", Argument::kRequired, "/save FILE",
               "writes the chat as JSON, as kipp run --jsonl reads it"},
    CommandRow{ChatCommandKind::kSystem, "/system", Argument::kOptional, "/system [TEXT]",
               "forgets the chat and sets the system prompt, or takes it away"},
    CommandRow{ChatCommandKind::kTool, "/tool", Argument::kRequired, "/tool TEXT", "answers a tool call"},
    CommandRow{ChatCommandKind::kQuit, "/quit", Argument::kNone, "/quit", "ends, as Ctrl-D does"},
};

constexpr std::string_view kBlanks = " \t\r\n";  // lines joined by backslashes have line feeds

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

}  // namespace

Result<std::optional<ChatCommand>> parse_chat_command(std::string_view line) {
  if (!line.starts_with('/') || line.starts_with("//")) {
    return std::nullopt;
  }
  const std::string_view name = line.substr(0, line.find_first_of(kBlanks));
  const std::string_view argument = trimmed(line.substr(name.size()));
  const auto* row = std::ranges::find(kCommands, name, &CommandRow::name);
  if (row == kCommands.end()) {
    std::vector<std::string> names;
    std::ranges::transform(kCommands, std::back_inserter(names),
                           [](const CommandRow& r) { return std::string(r.name); });
    return invalid(fmt::format("no command {}{} (/help lists them; a message may begin with //)", name,
                               did_you_mean(name, names)));
  }
  if (row->argument == Argument::kRequired && argument.empty()) {
    return invalid(fmt::format("{} needs an argument: {}", name, row->usage));
  }
  if (row->argument == Argument::kNone && !argument.empty()) {
    return invalid(fmt::format("{} takes no argument, found \"{}\"", name, argument));
  }
  return ChatCommand{row->kind, std::string(argument)};
}

std::string_view message_of_line(std::string_view line) {
  return line.starts_with("//") ? line.substr(1) : line;
}

std::string chat_help() {
  std::string text;
  for (const CommandRow& row : kCommands) {
    text += fmt::format("{:<16} {}\n", row.usage, row.help);
  }
  return text +
         "A line that ends with \\ goes on in the next one. A message that begins with / is typed with //.\n"
         "Ctrl-C stops an answer or gives up a line; Ctrl-R searches the lines before.\n";
}

Json conversation_json(const ChatRequest& request) {
  Json json = Json::object({{"messages", array_json(request.messages, message_json)}});
  if (!request.tools.empty()) {
    json.set("tools", array_json(request.tools, [](const std::string& tool) {
               return parse_json(tool).value_or(Json::string(tool));
             }));
  }
  if (request.enable_thinking) {
    json.set("enable_thinking", Json::boolean(*request.enable_thinking));
  }
  return json;
}

Result<void> save_conversation(const ChatRequest& request, const std::string& path) {
  if (request.messages.empty()) {  // which no command would read back
    return invalid("the chat is empty: there is nothing to save");
  }
  constexpr mode_t kOwnerOnly = 0600;  // a chat is private
  return gates::write_new(path, write_json(conversation_json(request)) + "\n", kOwnerOnly);
}

}  // namespace kipp::cli
