// Reference: Hugging Face tokenizers on Qwen3's tokenizer.json.
#include "gates/pinned_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace kipp::gates {
namespace {

std::vector<std::string> compare_ids(std::string_view name, const Result<std::vector<int32_t>>& found,
                                     std::span<const int32_t> expected) {
  if (!found) {
    return {fmt::format("{}: {}", name, found.error().message)};
  }
  if (!std::equal(found->begin(), found->end(), expected.begin(), expected.end())) {
    return {fmt::format("{}: expected ids [{}], found [{}]", name, fmt::join(expected, ", "), fmt::join(*found, ", "))};
  }
  return {};
}

}  // namespace

const std::vector<PinnedCase>& pinned_cases() {
  // clang-format off
  static const std::vector<PinnedCase> cases = {
      {"pinned_0", "Hi \xe4\xb8\x96\xe7\x95\x8c", "Hi \xe4\xb8\x96\xe7\x95\x8c", {13048, 220, 99489}, {13048, 220, 99489}, {}},
      {"pinned_1", "Hello, world!", "Hello, world!", {9707, 11, 1879, 0}, {9707, 11, 1879, 0}, {}},
      {"pinned_2", "cafe\xcc\x81", "caf\xc3\xa9", {924, 58858}, {924, 58858}, {}},
      {"pinned_3", "Qwen3 \xd9\xa1\xd9\xa2\xd9\xa3", "Qwen3 \xd9\xa1\xd9\xa2\xd9\xa3", {48, 16948, 18, 220, 149, 94, 149, 95, 149, 96}, {48, 16948, 18, 220, 149, 94, 149, 95, 149, 96}, {}},
      {"pinned_4", "\t na\xc3\xafve\n\xe4\xb8\x96\xe7\x95\x8c", "\t na\xc3\xafve\n\xe4\xb8\x96\xe7\x95\x8c", {197, 94880, 586, 198, 99489}, {197, 94880, 586, 198, 99489}, {}},
      {"pinned_5", "  word", "  word", {220, 3409}, {220, 3409}, {}},
      {"pinned_6", "1234", "1234", {16, 17, 18, 19}, {16, 17, 18, 19}, {}},
      {"pinned_7", "<|endoftext|>", "<|endoftext|>", {151643}, {27, 91, 8691, 723, 427, 91, 29}, {}},
      {"pinned_8", "<|fim_prefix|>", "<|fim_prefix|>", {151659}, {27, 91, 69, 318, 13974, 91, 29}, {}},
      {"pinned_9", "<|repo_name|>", "<|repo_name|>", {151663}, {27, 91, 23476, 1269, 91, 29}, {}},
      {"pinned_10", "<|im_start|>user\nhi<|im_end|>", "<|im_start|>user\nhi<|im_end|>", {151644, 872, 198, 6023, 151645}, {27, 91, 318, 4906, 91, 29, 872, 198, 6023, 27, 91, 318, 6213, 91, 29}, {}},
      {"pinned_11", "<think>reason</think>", "<think>reason</think>", {151667, 19895, 151668}, {13708, 766, 29, 19895, 522, 26865, 29}, {13708, 766, 29, 19895, 522, 26865, 29}},
      {"pinned_12", "<tool_response>ok</tool_response>", "<tool_response>ok</tool_response>", {151665, 562, 151666}, {27, 14172, 9655, 29, 562, 522, 14172, 9655, 29}, {27, 14172, 9655, 29, 562, 522, 14172, 9655, 29}},
  };
  // clang-format on
  return cases;
}

std::vector<std::string> check_pinned_cases(const Tokenizer& tokenizer, bool isolates_think_tokens) {
  std::vector<std::string> failures;
  const auto collect = [&failures](std::vector<std::string> found) {
    failures.insert(failures.end(), found.begin(), found.end());
  };
  for (const PinnedCase& pinned : pinned_cases()) {
    const bool base = !isolates_think_tokens && !pinned.ids_base.empty();
    const std::vector<int32_t>& ids = base ? pinned.ids_base : pinned.ids;
    collect(compare_ids(pinned.name, tokenizer.encode(pinned.text), ids));
    const auto plain = tokenizer.encode(pinned.text, {.special_tokens = SpecialTokens::kPlain});
    collect(compare_ids(fmt::format("{} as plain text", pinned.name), plain, pinned.ids_plain));
    const auto decoded = tokenizer.decode(ids);
    if (!decoded || *decoded != pinned.decoded) {
      failures.push_back(fmt::format("{}: decoding does not give back '{}'", pinned.name, pinned.decoded));
    }
  }
  return failures;
}

}  // namespace kipp::gates
