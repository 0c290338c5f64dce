// Command lines that CLI11 takes for something else than what was meant.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "cli/command_table.h"

namespace kipp::cli {

// What is wrong with the arguments (without the program's name); nullopt if there is nothing. An empty value behind "="
// would make the next argument the value, "++" would end the subcommand, a short flag would take "=" into its value,
// and a flag before the command is none of the program's. Values of flags and all behind "--" are text.
std::optional<std::string> misread_argument(std::span<const char* const> arguments,
                                            std::span<const CommandEntry> commands);

}  // namespace kipp::cli
