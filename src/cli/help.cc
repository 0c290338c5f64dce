// Texts that every --help and --version share. Few files include the generated build_info.h, so that a new commit
// rebuilds little.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/backend.h"
#include "build_info.h"
#include "cli/commands.h"
#include "kipp/version.h"

namespace kipp::cli {
std::string version_text() {
  return fmt::format("kipp {}\ncommit: {}\nbuild: {}, {}\nbackends: {}\nweight schemes: bf16, q8_0, affine4_gs32",
                     kVersion, kBuildCommit, kBuildCompiler, kBuildType, fmt::join(available_backends(), ", "));
}

std::string help_footer(std::string_view examples) {
  std::string text = fmt::format("Examples:\n{}\nExit codes:\n", examples);
  for (const ExitCodeEntry& entry : kExitCodes) {
    text += fmt::format("  {:<3}  {}\n", static_cast<int>(entry.code), entry.meaning);
  }
  return text;
}

}  // namespace kipp::cli
