// The golden tokenizer cases of every gate, in the binary itself, so that Phase 0 needs no other file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/tokenizer.h"

namespace kipp::gates {

struct PinnedCase {
  std::string_view name;
  std::string_view text;
  std::string_view decoded;
  std::vector<int32_t> ids;        // added tokens parsed
  std::vector<int32_t> ids_plain;  // nothing parsed as special
  std::vector<int32_t> ids_base;   // where a checkpoint that splits the four think/tool tokens differs from ids
};

// The first 13 cases of tests/golden/tokenizer.jsonl; a test compares them.
const std::vector<PinnedCase>& pinned_cases();

// Encodes and decodes every case. Returns what differs, in words.
std::vector<std::string> check_pinned_cases(const Tokenizer& tokenizer, bool isolates_think_tokens);

}  // namespace kipp::gates
