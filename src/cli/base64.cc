// A strict decoder: four characters to three bytes, an error at the first character that does not fit.
#include "cli/base64.h"

#include <cstdint>

#include <fmt/format.h>

namespace kipp::cli {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

tl::unexpected<Error> bad_base64(size_t offset, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("base64: expected {} at offset {}, found {}", expected, offset, found));
}

// A character as messages show it: what is no printable ASCII by its bytes.
std::string quoted(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte > 0x20 && byte < 0x7F ? fmt::format("\"{}\"", character) : fmt::format("the byte 0x{:02x}", byte);
}

}  // namespace

Result<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return bad_base64(text.size(), "more characters or padding", fmt::format("the end after {} of 4", text.size() % 4));
  }
  const size_t padding = text.ends_with("==") ? 2 : (text.ends_with('=') ? 1 : 0);
  const size_t num_digits = text.size() - padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  uint32_t num_bits = 0;
  for (size_t i = 0; i < num_digits; ++i) {
    const size_t value = kAlphabet.find(text[i]);
    if (value == std::string_view::npos) {
      return bad_base64(i, "a character of the alphabet", quoted(text[i]));
    }
    bits = (bits << 6U) | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes.push_back(static_cast<char>((bits >> num_bits) & 0xFFU));
      bits &= (1U << num_bits) - 1U;
    }
  }
  if (bits != 0) {
    return bad_base64(num_digits - 1, "unused bits that are zero", quoted(text[num_digits - 1]));
  }
  return bytes;
}

}  // namespace kipp::cli
