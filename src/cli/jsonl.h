// JSON Lines in, JSON Lines out: output line n answers input line n. A bad line becomes
// {"error": {"code", "message", "line"}} and later lines go on.
#pragma once

#include <cstddef>
#include <functional>

#include "base/json.h"
#include "cli/exit_code.h"
#include "kipp/error.h"

namespace kipp::cli {

struct JsonLinesCounts {
  size_t lines = 0;
  size_t failed = 0;
};

// Answers one line: its JSON value and its number, counted from 1.
using LineHandler = std::function<Result<Json>(const Json& value, size_t line)>;

// Standard input to standard output until the end, an interrupt (kInterrupted; the unfinished line is not answered) or
// an error of the streams themselves (kIo). kFailure if a line failed.
Result<ExitCode> process_json_lines(const LineHandler& handler, JsonLinesCounts* counts = nullptr);

}  // namespace kipp::cli
