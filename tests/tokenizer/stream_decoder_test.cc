// The streaming detokenizer: its pieces are whole characters and join to what decode gives.
#include <gtest/gtest.h>

#include <random>

#include "tokenizer/golden.h"
#include "tokenizer/qwen_tokenizer.h"
#include "tokenizer/utf8.h"

namespace kipp {
namespace {

using testing::qwen_tokenizer;
using testing::read_golden;
using Ids = std::vector<int32_t>;

// Streams the ids, checks that every piece is valid UTF-8, and returns the joined text.
std::string stream(const Ids& ids, bool skip_special_tokens) {
  StreamDecoder decoder(qwen_tokenizer(), skip_special_tokens);
  std::string joined;
  for (const int32_t id : ids) {
    const std::string piece = decoder.push(id).value();
    EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
    joined += piece;
  }
  const std::string rest = decoder.finish();
  EXPECT_EQ(valid_utf8_prefix(rest), rest.size());
  EXPECT_EQ(decoder.finish(), "");
  return joined + rest;
}

void expect_as_decoded(const Ids& ids) {
  for (const bool skip : {false, true}) {
    EXPECT_EQ(stream(ids, skip), qwen_tokenizer().decode(ids, skip).value()) << ::testing::PrintToString(ids);
  }
}

TEST(StreamDecoder, EveryGoldenText) {
  for (const auto& item : read_golden("tokenizer.jsonl")) {
    expect_as_decoded(item["ids"].get<Ids>());
    expect_as_decoded(item.value("ids_plain", item["ids"]).get<Ids>());
  }
}

TEST(StreamDecoder, EveryGoldenTextCutAnywhere) {
  for (const auto& item : read_golden("tokenizer.jsonl")) {
    const auto ids = item["ids"].get<Ids>();
    for (size_t cut = 0; cut < std::min<size_t>(ids.size(), 60); ++cut) {
      expect_as_decoded(Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut)));
      expect_as_decoded(Ids(ids.begin() + static_cast<std::ptrdiff_t>(cut), ids.end()));
    }
  }
}

TEST(StreamDecoder, EveryGoldenIdList) {
  for (const auto& item : read_golden("decode.jsonl")) {
    Ids ids;
    for (const auto& id : item["ids"]) {
      ids.push_back(static_cast<int32_t>(std::min<int64_t>(id.get<int64_t>(), INT32_MAX)));
    }
    expect_as_decoded(ids);
    EXPECT_EQ(stream(ids, true), item["decoded_skip_special"].get<std::string>()) << item["name"];
  }
}

TEST(StreamDecoder, RandomBytesAndSpecialTokens) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    Ids ids;
    for (size_t size = random() % 12; size > 0; --size) {
      // Mostly single bytes (ids below 256), so that sequences break in every way; some ids without a token.
      ids.push_back(static_cast<int32_t>(random() % 4 != 0 ? random() % 256 : 151640 + random() % 40));
    }
    expect_as_decoded(ids);
  }
}

TEST(StreamDecoder, OneCharacterOverSeveralTokensIsOnePiece) {
  StreamDecoder decoder(qwen_tokenizer());
  EXPECT_EQ(decoder.push(9284).value(), "");
  EXPECT_EQ(decoder.push(104).value(), "");
  EXPECT_EQ(decoder.push(151645).value(), "");  // skipped, and does not cut the character
  EXPECT_EQ(decoder.push(101).value(), "\U0001FAE8");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, AnIncompleteCharacterAtTheEndIsReplaced) {
  StreamDecoder decoder(qwen_tokenizer());
  EXPECT_EQ(decoder.push(9284).value(), "");
  EXPECT_EQ(decoder.push(104).value(), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST(StreamDecoder, RefusesNegativeIds) {
  StreamDecoder decoder(qwen_tokenizer());
  EXPECT_EQ(decoder.push(9284).value(), "");
  EXPECT_FALSE(decoder.push(-1).has_value());
  EXPECT_EQ(decoder.push(104).value(), "");  // and goes on as before
  EXPECT_EQ(decoder.push(101).value(), "\U0001FAE8");
}

}  // namespace
}  // namespace kipp
