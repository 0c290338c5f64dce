// UTF-8 as the tokenizer needs it: checked decoding with maximal invalid parts, and unchecked decoding of checked text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kipp {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Status : uint8_t {
  kValid,
  kInvalid,     // `length` bytes are a maximal invalid part (Unicode 3.9, "U+FFFD Substitution of Maximal Subparts")
  kIncomplete,  // the text ends inside a sequence that is valid so far
};

struct Utf8Part {
  Utf8Status status;
  uint8_t length;  // 1…4 (kValid), 1…3 otherwise
};

// The character or invalid part at the start of `text`, which is not empty.
Utf8Part read_utf8(std::string_view text);

// Offset of the first byte that does not begin a valid character, or text.size().
size_t valid_utf8_prefix(std::string_view text);

// Replaces each maximal invalid part by one U+FFFD, as Python's errors="replace" does.
std::string replace_invalid_utf8(std::string_view text);

struct CodePoint {
  uint32_t value;
  uint32_t length;
};

// The character at `data`, which begins a valid one.
inline CodePoint decode_valid_utf8(const char* data) {
  const auto byte = [data](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(data[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  if (lead < 0xE0) {
    return {(lead & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
  }
  if (lead < 0xF0) {
    return {(lead & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  }
  return {(lead & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU), 4};
}

// Bytes of ASCII at the start of `text`, at least to the nearest 8.
size_t ascii_prefix(std::string_view text);

void append_utf8(uint32_t code_point, std::string& out);

}  // namespace kipp
