// Faults that tests plant in copies of kernels: tests/metal/ops/seeded_faults.txt says which.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"

namespace kipp::metal_emulation {

struct SeededFault {
  std::string name, kernel, check, finding;
  std::string file;               // of src/backend/metal/kernels: the kernel or a header
  std::string text, replacement;  // text stands once in the file
};

// Errors: kInvalidArgument (a line that is none of these).
Result<std::vector<SeededFault>> read_faults(std::string_view list);

// The kernel's text with the fault. header: text of fault.file, where that is not the kernel itself; it then takes the
// place of its #include line. Errors: kInvalidArgument (the text is not there, or more than once).
Result<std::string> with_fault(const SeededFault& fault, std::string kernel, std::string header);

}  // namespace kipp::metal_emulation
