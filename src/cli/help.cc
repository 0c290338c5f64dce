// Texts that every --help and --version share. Few files include the generated build_info.h, so that a new commit
// rebuilds little.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/backend.h"
#include "build_info.h"
#include "cli/commands.h"
#include "kipp/version.h"

namespace kipp::cli {
namespace {

constexpr std::string_view kExitCodes =
    "Exit codes:\n"
    "  0    success\n"
    "  1    failed: unusable input, a failed JSON line, a gate that is not green, a failed write\n"
    "  2    wrong command line\n"
    "  3    the model is missing, broken, refused or does not fit\n"
    "  130  interrupted (Ctrl-C)\n"
    "  141  standard output was closed by its reader\n";

}  // namespace

std::string version_text() {
  return fmt::format("kipp {}\ncommit: {}\nbuild: {}, {}\nbackends: {}\nweight schemes: bf16", kVersion, kBuildCommit,
                     kBuildCompiler, kBuildType, fmt::join(available_backends(), ", "));
}

std::string help_footer(std::string_view examples) {
  return fmt::format("Examples:\n{}\n{}", examples, kExitCodes);
}

}  // namespace kipp::cli
