// The lines of a chat that are for Kipp and not for the model: /reset, /undo, /save, …
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "kipp/chat.h"
#include "kipp/error.h"

namespace kipp::cli {

enum class ChatCommandKind { kHelp, kReset, kUndo, kSave, kSystem, kTool, kQuit };

struct ChatCommand {
  ChatCommandKind kind;
  std::string argument;  // what follows the name, without the spaces around it
};

// A line that begins with "/" and not with "//". Errors: kInvalidArgument (no such command, with the nearest that is;
// an argument that is missing or too much).
Result<std::optional<ChatCommand>> parse_chat_command(std::string_view line);

// What a line says to the model: the line, of "//…" without the first slash.
std::string_view message_of_line(std::string_view line);

// The answer to /help: one command a line.
std::string chat_help();

// The chat as the JSON object that `kipp run --jsonl` and `kipp render --jsonl` read.
Json conversation_json(const ChatRequest& request);
// Writes it to a new file that its owner alone can read. Errors: kInvalidArgument (the file exists already; there
// are no messages), kIo.
Result<void> save_conversation(const ChatRequest& request, const std::string& path);

}  // namespace kipp::cli
