// See fault.h.
// In the list, \n stands for the end of a line.
#include "metal/emulation/signatures/fault.h"

#include <array>
#include <utility>

namespace kipp::metal_emulation {
namespace {

constexpr size_t kFields = 6;
constexpr std::string_view kPragma = "#pragma once";

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  std::string out(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
  for (size_t at = out.find("\\n"); at != std::string::npos; at = out.find("\\n", at)) out.replace(at, 2, "\n");
  return out;
}

Result<SeededFault> read_fault(std::string_view line) {
  std::array<std::string, kFields> fields;
  size_t begin = 0;
  for (size_t f = 0; f < kFields; ++f) {
    const size_t end = f + 1 < kFields ? line.find(" | ", begin) : line.size();
    if (end == std::string_view::npos) {
      return make_error(ErrorCode::kInvalidArgument, "not six fields: " + std::string(line));
    }
    fields[f] = std::string(line.substr(begin, end - begin));
    begin = end + 3;
  }
  const size_t arrow = fields[5].find(" ==> ");
  if (arrow == std::string::npos) {
    return make_error(ErrorCode::kInvalidArgument, "no arrow: " + std::string(line));
  }
  return SeededFault{.name = trimmed(fields[0]),
                     .kernel = trimmed(fields[1]),
                     .check = trimmed(fields[2]),
                     .finding = trimmed(fields[3]),
                     .file = trimmed(fields[4]),
                     .text = trimmed(fields[5].substr(0, arrow)),
                     .replacement = trimmed(fields[5].substr(arrow + 5))};
}

}  // namespace

Result<std::vector<SeededFault>> read_faults(std::string_view list) {
  std::vector<SeededFault> faults;
  while (!list.empty()) {
    const size_t end = list.find('\n');
    const std::string_view line = list.substr(0, end);
    if (!line.empty() && line.front() != '#') {
      KIPP_ASSIGN(SeededFault fault, read_fault(line));
      faults.push_back(std::move(fault));
    }
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return faults;
}

Result<std::string> with_fault(const SeededFault& fault, std::string kernel, std::string header) {
  std::string& changed = header.empty() ? kernel : header;
  const size_t at = changed.find(fault.text);
  if (at == std::string::npos || changed.find(fault.text, at + 1) != std::string::npos) {
    return make_error(ErrorCode::kInvalidArgument, fault.name + ": its text stands not once in " + fault.file);
  }
  changed.replace(at, fault.text.size(), fault.replacement);
  if (header.empty()) return kernel;
  const std::string include = "#include \"backend/metal/kernels/" + fault.file + "\"";
  const size_t line = kernel.find(include);
  const size_t pragma = header.find(kPragma);
  if (line == std::string::npos || pragma == std::string::npos) {
    return make_error(ErrorCode::kInvalidArgument, fault.name + ": the kernel does not include " + fault.file);
  }
  header.erase(pragma, kPragma.size());
  return kernel.replace(line, include.size(), header);
}

}  // namespace kipp::metal_emulation
