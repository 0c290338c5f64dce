// Variables of kernels, found in this program's own symbol table: what MSL's address spaces say where C++ has none.
#pragma once

#include <string>
#include <vector>

#include "metal/emulation/memory.h"

namespace kipp::metal_emulation {

// Threadgroup variables of the function with this demangled name, which are its static variables in C++.
std::vector<Range> threadgroup_variables(const std::string& cxx_name);
// Variables at program scope (function constants, tables) and constant data, which kernels may read.
std::vector<Range> program_scope();

}  // namespace kipp::metal_emulation
