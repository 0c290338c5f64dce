// An answer of `kipp run` as a JSON object: for --json and for each line of --jsonl.
#pragma once

#include "base/json.h"
#include "cli/request.h"
#include "kipp/engine.h"
#include "kipp/error.h"

namespace kipp::cli {

// The fields of docs/cli.md. Errors: those of Tokenizer (ids that a backend made up).
Result<Json> answer_json(const Model& model, const Request& request, const Answer& answer);

}  // namespace kipp::cli
