// Both directions of the GPT-2 byte alphabet, from tables built at compile time.
#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace kipp {
namespace {

constexpr uint32_t kAlphabetEnd = 0x144;
constexpr int16_t kNoByte = -1;

consteval bool stands_for_itself(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

consteval std::array<uint16_t, 256> make_characters() {
  std::array<uint16_t, 256> characters{};
  uint16_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    characters[byte] = stands_for_itself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return characters;
}

constexpr std::array<uint16_t, 256> kCharacters = make_characters();

consteval std::array<int16_t, kAlphabetEnd> make_bytes() {
  std::array<int16_t, kAlphabetEnd> bytes{};
  bytes.fill(kNoByte);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<int16_t, kAlphabetEnd> kBytes = make_bytes();

}  // namespace

bool append_alphabet_bytes(std::string_view text, std::string& bytes) {
  for (size_t position = 0; position < text.size();) {
    const Utf8Part part = read_utf8(text.substr(position));
    if (part.status != Utf8Status::kValid || part.length > 2) {
      return false;
    }
    const CodePoint c = decode_valid_utf8(text.data() + position);
    if (c.value >= kAlphabetEnd || kBytes[c.value] == kNoByte) {
      return false;
    }
    bytes.push_back(static_cast<char>(kBytes[c.value]));
    position += part.length;
  }
  return true;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    append_utf8(kCharacters[static_cast<uint8_t>(byte)], text);
  }
  return text;
}

}  // namespace kipp
