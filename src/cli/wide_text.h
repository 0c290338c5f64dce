// UTF-8 and wide characters, which libedit speaks: one wchar_t is a code point.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/utf8.h"

namespace kipp::cli {

// Invalid UTF-8 becomes U+FFFD.
inline std::wstring to_wide(std::string_view text) {
  const std::string valid = replace_invalid_utf8(text);
  std::wstring wide;
  for (size_t at = 0; at < valid.size();) {
    const CodePoint point = decode_valid_utf8(valid.data() + at);
    wide += static_cast<wchar_t>(point.value);
    at += point.length;
  }
  return wide;
}

inline std::string to_utf8(std::wstring_view wide) {
  std::string text;
  for (const wchar_t character : wide) {
    append_utf8(static_cast<uint32_t>(character), text);
  }
  return text;
}

}  // namespace kipp::cli
