// The Qwen pre-tokenizer: cuts text into the words that BPE merges within.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kipp {

// End of the word that begins at `start` < text.size(). `text` is valid UTF-8, `classes` is char_class_table().
// The same as the leftmost match of the checkpoint's pattern, alternatives in order:
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// Some alternative matches at every position, so the words cover the text.
size_t next_word_end(std::string_view text, size_t start, const uint8_t* classes);

}  // namespace kipp
