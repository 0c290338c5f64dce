// Any bytes as JSON Lines on standard input. The first byte says in how many pieces the rest arrives. Lines are those
// that a plain split gives, whatever the pieces and the limit; every line gets one answer, in order.
#include "cli/jsonl.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_values.h"
#include "cli/base64.h"
#include "cli/fields.h"
#include "cli/input.h"
#include "fuzz/memory_file.h"

namespace kipp::cli {
namespace {

using fuzzing::require;

constexpr size_t kMaxPieces = 8;  // a socket takes that many packets before somebody reads

std::vector<std::string_view> split_lines(std::string_view bytes) {
  std::vector<std::string_view> lines;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    lines.push_back(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return lines;
}

// A socket keeps packets apart: each read returns one piece.
void check_reader(std::string_view bytes, size_t num_pieces, size_t limit) {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) == 0);
  const size_t piece = bytes.size() / num_pieces + 1;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    const std::string_view part = bytes.substr(i, piece);
    require(::send(ends[1], part.data(), part.size(), 0) == static_cast<ssize_t>(part.size()));
  }
  ::close(ends[1]);
  LineReader reader(ends[0], limit);
  for (const std::string_view expected : split_lines(bytes)) {
    const auto line = reader.next().value();
    require(line.has_value() && line->too_long == (expected.size() > limit));
    require(line->text == (line->too_long ? std::string_view() : expected));
  }
  require(!reader.next().value().has_value());
  ::close(ends[0]);
}

// What the commands do with a line, without a model.
Result<Json> answer(const Json& value, size_t line) {
  require(line > 0);
  static constexpr std::array<std::string_view, 8> kKnown = {"text",  "text_b64", "plain", "ids",
                                                             "top_p", "decode",   "seed",  "messages"};
  KIPP_TRY(check_field_names(value, kKnown));
  KIPP_ASSIGN(const auto text, string_field(value, "text"));
  KIPP_ASSIGN(const auto encoded, string_field(value, "text_b64"));
  KIPP_ASSIGN(const auto plain, bool_field(value, "plain"));
  KIPP_ASSIGN(const auto top_p, float_field(value, "top_p"));
  KIPP_ASSIGN(const auto decode, int_field(value, "decode"));
  KIPP_ASSIGN(const auto seed, uint64_field(value, "seed"));
  if (encoded) {
    KIPP_ASSIGN(const std::string decoded, decode_base64(*encoded));
    require(decoded.size() <= encoded->size() / 4 * 3);
  }
  KIPP_ASSIGN(const auto ids, ids_field(value, "ids"));
  Json result = Json::object({{"ids", ids_json(ids)}, {"text", Json::string(text.value_or(""))}});
  result.set("plain", Json::boolean(plain.value_or(false)));
  result.set("decode", Json::number(int64_t{decode.value_or(0)}));
  result.set("rest", Json::number(static_cast<double>(top_p.value_or(0)) + static_cast<double>(seed.value_or(0))));
  return result;
}

void check_answers(std::string_view bytes) {
  static const fuzzing::MemoryFile input;
  static const fuzzing::MemoryFile output;
  static const bool redirected = ::dup2(input.descriptor(), STDIN_FILENO) == STDIN_FILENO &&
                                 ::dup2(output.descriptor(), STDOUT_FILENO) == STDOUT_FILENO;
  require(redirected);
  input.assign(bytes);
  output.assign("");
  JsonLinesCounts counts;
  const ExitCode code = process_json_lines(answer, &counts).value();
  require(code == (counts.failed > 0 ? ExitCode::kFailure : ExitCode::kOk));
  require(counts.lines == split_lines(bytes).size());
  const std::string written = output.content();
  const auto answers = split_lines(written);
  require(answers.size() == counts.lines);
  size_t failed = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Json json = parse_json(answers[i]).value();
    if (const Json* error = json.find("error")) {
      ++failed;
      require(error->find("line")->as_uint64() == i + 1 && !error->find("message")->as_string().empty());
      require(!error->find("code")->as_string().empty());
    } else {
      require(json.find("ids") != nullptr);
    }
  }
  require(failed == counts.failed);
}

}  // namespace
}  // namespace kipp::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  kipp::cli::check_reader(bytes, data[0] % kipp::cli::kMaxPieces + 1, data[0]);
  kipp::cli::check_answers(bytes);
  return 0;
}
