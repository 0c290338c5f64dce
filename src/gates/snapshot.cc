// Top-10 with logits as %.9g, which tells any two floats apart, and 8 greedy ids, for each prompt.
#include "gates/snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <iterator>

#include "base/sha256.h"
#include "gates/greedy.h"
#include "gates/output_file.h"
#include "sampling/logprobs.h"

namespace kipp::gates {
namespace {

constexpr int32_t kNumBest = 10;

Result<std::string> read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("{}: no snapshot to compare with; --write-snapshot makes it", path.string()));
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<std::string> prompt_text(const PromptVectors& prompt, Model& model, const CancelCheck& is_cancelled) {
  KIPP_TRY(go_on(is_cancelled));
  KIPP_ASSIGN(Session session, model.new_session());
  KIPP_TRY(session.append(prompt.ids));
  const int32_t num_tokens = model.tokenizer().num_tokens();
  KIPP_TRY(check_finite(session.logits(), num_tokens));
  const LogSoftmax softmax = log_softmax(session.logits(), num_tokens);
  std::string text = fmt::format("prompt {} ({} tokens)\n", prompt.name, prompt.ids.size());
  int32_t rank = 1;
  for (const auto& [id, logprob] : best_logprobs(session.logits(), num_tokens, kNumBest, softmax)) {
    text += fmt::format("{} {} {:.9g}\n", rank++, id, session.logits()[static_cast<size_t>(id)]);
  }
  KIPP_ASSIGN(const auto ids, greedy_ids(session, kNumGreedy, is_cancelled));
  text += fmt::format("greedy {}\n", fmt::join(ids, " "));
  return text;
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

Result<std::string> snapshot_text(const GateInput& input, Model& model) {
  const ArtifactInfo& info = input.file.info();
  std::string text = fmt::format("kipp snapshot 1: {} {} {} on {}\n", info.checkpoint->id, info.source_repository,
                                 scheme_name(info.scheme), input.setup.backend);
  for (const PromptVectors& prompt : input.vectors.prompts) {
    KIPP_ASSIGN(const std::string part, prompt_text(prompt, model, input.setup.is_cancelled));
    text += part;
  }
  return text;
}

std::string first_difference(std::string_view found, std::string_view expected) {
  if (found == expected) {
    return {};
  }
  std::string_view prompt;
  for (int64_t line = 1; !found.empty() || !expected.empty(); ++line) {
    const std::string_view found_line = take_line(found);
    const std::string_view expected_line = take_line(expected);
    if (found_line != expected_line) {
      return fmt::format("line {} ({}): expected '{}', found '{}'", line, prompt, expected_line, found_line);
    }
    prompt = found_line.starts_with("prompt") ? found_line : prompt;
  }
  return "the texts differ only in their last line's end";
}

Result<PhaseRecord> run_snapshot(const GateInput& input, const std::filesystem::path& path, SnapshotMode mode) {
  PhaseRecord record;
  KIPP_ASSIGN(const auto model, input.open_model({}));
  KIPP_ASSIGN(const std::string found, snapshot_text(input, *model));
  record.details.set("sha256", Json::string(sha256_hex(std::as_bytes(std::span(found)))));
  record.details.set("written", Json::boolean(mode == SnapshotMode::kWrite));
  if (mode == SnapshotMode::kWrite) {
    KIPP_TRY(write_whole(path, found));
    return record;
  }
  KIPP_ASSIGN(const std::string expected, read_text(path));
  const std::string difference = first_difference(found, expected);
  if (!difference.empty()) {
    record.fail(path.filename().string(), difference);
  }
  return record;
}

}  // namespace kipp::gates
