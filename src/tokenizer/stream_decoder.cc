// The streaming detokenizer: holds back the bytes of a character that is not complete yet.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "kipp/tokenizer.h"
#include "tokenizer/utf8.h"

namespace kipp {
namespace {

// Length of the incomplete but so far valid sequence at the end of `bytes`: 0 to 3.
size_t incomplete_suffix(std::string_view bytes) {
  for (size_t length = 1; length <= std::min<size_t>(3, bytes.size()); ++length) {
    const std::string_view suffix = bytes.substr(bytes.size() - length);
    if ((static_cast<uint8_t>(suffix[0]) & 0xC0U) == 0x80) {
      continue;  // a continuation byte: the lead byte is further left
    }
    const Utf8Part part = read_utf8(suffix);
    return part.status == Utf8Status::kIncomplete && part.length == length ? length : 0;
  }
  return 0;
}

}  // namespace

Result<std::string> StreamDecoder::push(int32_t id) {
  KIPP_ASSIGN(const std::string_view bytes, tokenizer_->token_bytes(id));
  if (skip_special_tokens_ && tokenizer_->is_special(id)) {
    return std::string();
  }
  std::string text = std::exchange(pending_, {});
  text.append(bytes);
  pending_ = text.substr(text.size() - incomplete_suffix(text));
  text.resize(text.size() - pending_.size());
  return replace_invalid_utf8(text);
}

std::string StreamDecoder::finish() {
  return replace_invalid_utf8(std::exchange(pending_, {}));
}

}  // namespace kipp
