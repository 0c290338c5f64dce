// NFC by segments: an inert starter begins a segment that nothing before it can change, so only a segment that holds
// something else (a combining mark, a conjoining jamo, a character that decomposes) goes through utf8proc.
#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "tokenizer/char_class.h"
#include "tokenizer/utf8.h"

namespace kipp {
namespace {

constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

int combining_class(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Sorts a run of marks stably by class: 8 bits of class, 33 of position, 21 of code point in one number.
void sort_marks(std::span<int32_t> marks, std::vector<uint64_t>& keys) {
  keys.clear();
  for (const int32_t mark : marks) {
    keys.push_back(static_cast<uint64_t>(combining_class(mark)) << 54 | uint64_t{keys.size()} << 21 |
                   static_cast<uint64_t>(mark));
  }
  std::sort(keys.begin(), keys.end());
  std::transform(keys.begin(), keys.end(), marks.begin(),
                 [](uint64_t key) { return static_cast<int32_t>(key & 0x1FFFFFU); });
}

// Canonical order (Unicode 3.11, D109): each run of marks stably by class. utf8proc's own ordering is an insertion
// sort, quadratic in the length of a hostile run of marks.
void order_marks(NfcBuffers& buffers) {
  const auto end = buffers.code_points.end();
  for (auto position = buffers.code_points.begin(); position != end;) {
    const auto first = std::find_if(position, end, combining_class);
    const auto last = std::find_if(first, end, [](int32_t c) { return combining_class(c) == 0; });
    const auto precedes = [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); };
    if (!std::is_sorted(first, last, precedes)) {
      sort_marks({first, last}, buffers.sort_keys);
    }
    position = last;
  }
}

void append_normalised(std::string_view segment, NfcBuffers& buffers) {
  std::vector<int32_t>& code_points = buffers.code_points;
  code_points.clear();
  for (size_t position = 0; position < segment.size();) {
    const CodePoint c = decode_valid_utf8(segment.data() + position);
    std::array<utf8proc_int32_t, 8> parts{};  // the longest canonical decomposition has 4 code points
    int boundary_class = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts.data(),
                                                           parts.size(), kOptions, &boundary_class);
    code_points.insert(code_points.end(), parts.begin(), parts.begin() + count);
    position += c.length;
  }
  order_marks(buffers);
  const utf8proc_ssize_t length =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), kOptions);
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_utf8(static_cast<uint32_t>(code_points[static_cast<size_t>(i)]), buffers.text);
  }
}

}  // namespace

std::string_view to_nfc(std::string_view text, NfcBuffers& buffers) {
  const uint8_t* classes = char_class_table();
  const char* data = text.data();
  buffers.text.clear();
  size_t copied = 0;         // text before it is in the buffer
  size_t segment_start = 0;  // the last place that NFC cannot reach across
  size_t position = 0;
  while (position < text.size()) {
    if (static_cast<uint8_t>(data[position]) < 0x80) {  // all of ASCII is inert
      position += std::max<size_t>(ascii_prefix(text.substr(position)), 1);
      segment_start = position - 1;
      continue;
    }
    const CodePoint c = decode_valid_utf8(data + position);
    const uint8_t flags = classes[c.value];
    if ((flags & (kNfcInert | kNfcException)) != 0) {
      segment_start = (flags & kNfcInert) != 0 ? position : position + c.length;
      position += c.length;
      continue;
    }
    size_t end = position + c.length;
    while (end < text.size()) {
      const CodePoint next = decode_valid_utf8(data + end);
      if ((classes[next.value] & (kNfcInert | kNfcException)) != 0) {
        break;
      }
      end += next.length;
    }
    buffers.text.append(text.substr(copied, segment_start - copied));
    append_normalised(text.substr(segment_start, end - segment_start), buffers);
    copied = segment_start = position = end;
  }
  if (copied == 0) {
    return text;
  }
  buffers.text.append(text.substr(copied));
  return buffers.text;
}

}  // namespace kipp
