// The text of a byte snapshot: what a backend predicts after each prompt, to the last digit, so that a refactor which
// moves a bit is seen.
#pragma once

#include <span>
#include <string>

#include "gates/gate.h"

namespace kipp::gates {

Result<std::string> snapshot_text(const GateInput& input, Model& model);

// The first line that differs, in words; empty if the texts are the same bytes.
std::string first_difference(std::string_view found, std::string_view expected);

}  // namespace kipp::gates
