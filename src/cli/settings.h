// Values of a command's flags that come from elsewhere than the command line: from variables KIPP_… and from a file.
// A flag wins over a variable, a variable over the file.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace kipp::cli {

// "--max-sequences" to "KIPP_MAX_SEQUENCES".
std::string variable_of_flag(std::string_view flag);

// After all other flags of the command: adds --config FILE, and names every flag's variable (for the manual).
void add_settings(CLI::App& command);

// After the command line was parsed: gives each flag that it does not have the value of its variable, else of the
// file. Throws CLI::ValidationError that says where a wrong value, or a key that no flag has, was found.
void apply_settings(CLI::App& command);

}  // namespace kipp::cli
