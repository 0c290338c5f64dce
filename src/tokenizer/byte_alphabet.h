// The GPT-2 byte alphabet: a printable character for every byte, so that token texts can be written as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kipp {

// Bytes 33…126, 161…172 and 174…255 stand for themselves (as code points); the other 68, in ascending order, are
// U+0100…U+0143.

// Appends the bytes that `text` stands for; false (and `bytes` in an unspecified state) if it holds anything else.
bool append_alphabet_bytes(std::string_view text, std::string& bytes);

std::string to_byte_alphabet(std::string_view bytes);

}  // namespace kipp
