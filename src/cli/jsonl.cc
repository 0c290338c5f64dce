// The loop over lines: parse, hand to the handler, write its answer or its error, count.
#include "cli/jsonl.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace kipp::cli {
namespace {

Result<Json> answer_line(const LineReader::Line& line, size_t number, const LineHandler& handler) {
  if (line.too_long) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("expected a line of {} bytes at most, found {}", kMaxLineBytes, line.num_bytes));
  }
  if (line.text.find_first_not_of(" \t\r") == std::string::npos) {
    return make_error(ErrorCode::kInvalidArgument, "expected a JSON object, found an empty line");
  }
  KIPP_ASSIGN(const Json value, parse_json(line.text));
  return handler(value, number);
}

Json error_json(const Error& error, size_t line) {
  return Json::object({{"error", Json::object({{"code", Json::string(error_code_name(error.code))},
                                               {"message", Json::string(error.message)},
                                               {"line", Json::number(static_cast<int64_t>(line))}})}});
}

}  // namespace

Result<ExitCode> process_json_lines(const LineHandler& handler, JsonLinesCounts* counts) {
  JsonLinesCounts unused;
  JsonLinesCounts& count = counts != nullptr ? *counts : unused;
  LineReader reader(STDIN_FILENO);
  for (;;) {
    KIPP_ASSIGN(const std::optional<LineReader::Line> line, reader.next());
    if (interrupted()) {
      return ExitCode::kInterrupted;
    }
    if (!line) {
      return count.failed > 0 ? ExitCode::kFailure : ExitCode::kOk;
    }
    ++count.lines;
    const Result<Json> answer = answer_line(*line, count.lines, handler);
    if (interrupted()) {
      return ExitCode::kInterrupted;
    }
    count.failed += answer ? size_t{0} : size_t{1};
    KIPP_TRY(standard_output().write(write_json(answer ? *answer : error_json(answer.error(), count.lines)) + "\n"));
  }
}

}  // namespace kipp::cli
