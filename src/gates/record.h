// A gate record: what was run on what, with every figure, as JSON for bench/results.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "gates/gate.h"

namespace kipp::gates {

// What only the program around the library knows.
struct Provenance {
  std::string version;
  std::string commit;
  std::string compiler;
  std::string build_type;
  std::string utc;  // when the run began, ISO 8601
};

// The processor's name as the operating system gives it, or "unknown".
std::string processor_name();

bool all_passed(const std::vector<PhaseRecord>& phases);
Json make_record(const GateInput& input, const std::vector<PhaseRecord>& phases, const Provenance& provenance);

}  // namespace kipp::gates
