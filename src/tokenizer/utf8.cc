// UTF-8 checking by the table of well-formed byte sequences (Unicode 15, table 3-7).
#include "tokenizer/utf8.h"

#include <cstring>

namespace kipp {
namespace {

struct LeadByte {
  uint8_t length;     // 0: not a lead byte
  uint8_t low, high;  // range of the second byte
};

LeadByte classify_lead(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) {
    return {2, 0x80, 0xBF};
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    return {3, static_cast<uint8_t>(lead == 0xE0 ? 0xA0 : 0x80), static_cast<uint8_t>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return {4, static_cast<uint8_t>(lead == 0xF0 ? 0x90 : 0x80), static_cast<uint8_t>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Part read_utf8(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) {
    return {Utf8Status::kValid, 1};
  }
  const LeadByte form = classify_lead(lead);
  if (form.length == 0) {
    return {Utf8Status::kInvalid, 1};
  }
  uint8_t low = form.low;
  uint8_t high = form.high;
  for (uint8_t i = 1; i < form.length; ++i) {
    if (i >= text.size()) {
      return {Utf8Status::kIncomplete, i};
    }
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < low || byte > high) {
      return {Utf8Status::kInvalid, i};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::kValid, form.length};
}

size_t ascii_prefix(std::string_view text) {
  size_t position = 0;
  for (; position + 8 <= text.size(); position += 8) {
    uint64_t chunk;
    std::memcpy(&chunk, text.data() + position, 8);
    if ((chunk & 0x8080808080808080U) != 0) {
      break;
    }
  }
  return position;
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    if (static_cast<uint8_t>(text[position]) < 0x80) {
      const size_t ascii = ascii_prefix(text.substr(position));
      position += ascii > 0 ? ascii : 1;
      continue;
    }
    const Utf8Part part = read_utf8(text.substr(position));
    if (part.status != Utf8Status::kValid) {
      break;
    }
    position += part.length;
  }
  return position;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) {
      return out;
    }
    out.append(kReplacementCharacter);
    text.remove_prefix(read_utf8(text).length);
  }
}

void append_utf8(uint32_t code_point, std::string& out) {
  const auto tail = [code_point](int shift) { return static_cast<char>(0x80U | ((code_point >> shift) & 0x3FU)); };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0U | code_point >> 6));
    out.push_back(tail(0));
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0U | code_point >> 12));
    out.push_back(tail(6));
    out.push_back(tail(0));
  } else {
    out.push_back(static_cast<char>(0xF0U | code_point >> 18));
    out.push_back(tail(12));
    out.push_back(tail(6));
    out.push_back(tail(0));
  }
}

}  // namespace kipp
