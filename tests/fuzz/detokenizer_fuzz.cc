// Any ids, also those without a token and negative ones, to text: whole and streamed, with and without control tokens.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/require.h"
#include "fuzz/small_vocabulary.h"
#include "kipp/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using kipp::Tokenizer;
using kipp::TokenType;
using kipp::fuzzing::require;

Tokenizer make_tokenizer() {
  kipp::testing::Vocabulary vocabulary = kipp::testing::byte_vocabulary();
  vocabulary.add("<|im_end|>", TokenType::kControl);
  vocabulary.add("<think>", TokenType::kUserDefined);
  vocabulary.add("[PAD1]", TokenType::kUnused);
  return Tokenizer::create(vocabulary.source()).value();
}

void fuzz_ids(const std::vector<int32_t>& ids, bool skip) {
  static const Tokenizer tokenizer = make_tokenizer();
  const auto text = tokenizer.decode(ids, skip);
  kipp::StreamDecoder decoder(tokenizer, skip);
  std::string joined;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto piece = decoder.push(ids[i]);
    require(piece.has_value() == (ids[i] >= 0));
    if (!piece) {
      require(!text.has_value() && text.error().message.find(std::to_string(ids[i])) != std::string::npos);
      return;
    }
    require(kipp::valid_utf8_prefix(*piece) == piece->size());  // never half a character
    joined += *piece;
  }
  joined += decoder.finish();
  require(text.has_value() && joined == *text);
  require(kipp::valid_utf8_prefix(*text) == text->size());
}

}  // namespace

// One byte an id below 256; 0xF5 … 0xF7, which begin no character, read the next four bytes as an id of any kind.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < size; ++i) {
    int32_t id = data[i];
    if (data[i] >= 0xF5 && data[i] <= 0xF7 && size - i > 4) {
      std::memcpy(&id, data + i + 1, sizeof(id));
      id = data[i] == 0xF5 ? 256 + (id & 3) : id;
      i += 4;
    }
    ids.push_back(id);
  }
  fuzz_ids(ids, false);
  fuzz_ids(ids, true);
  return 0;
}
