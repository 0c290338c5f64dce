// Normalisation form C exactly as the reference's normaliser does it (utf8proc, split at its exceptions).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kipp {

struct NfcBuffers {
  std::string text;
  std::vector<int32_t> code_points;
  std::vector<uint64_t> sort_keys;
};

// Returns `text` itself if nothing had to be looked at closely, else a view of buffers.text. `text` is valid UTF-8.
// Time is linear in the text but for a sort of each run of combining marks.
std::string_view to_nfc(std::string_view text, NfcBuffers& buffers);

}  // namespace kipp
