// Tokenizer::create on vocabularies that are wrong in one way at a time: each error names the entry.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/qwen_tokenizer.h"

namespace kipp {
namespace {

using testing::byte_tokens;
using ::testing::HasSubstr;
using testing::TokenizerData;

// 256 bytes, then ab, abc, one added token of either kind, one unused id.
TokenizerData small_vocabulary() {
  TokenizerData data = byte_tokens();
  for (const char* token : {"ab", "abc", "<|end|>", "<think>", "[PAD260]"}) {
    data.tokens.emplace_back(token);
  }
  for (const TokenType type :
       {TokenType::kNormal, TokenType::kNormal, TokenType::kControl, TokenType::kUserDefined, TokenType::kUnused}) {
    data.types.push_back(type);
  }
  data.merges = {"a b", "ab c"};
  return data;
}

void expect_error(const TokenizerData& data, const std::string& part) {
  const auto tokenizer = Tokenizer::create(data.source());
  ASSERT_FALSE(tokenizer.has_value()) << "expected: " << part;
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kInvalidArtifact);
  EXPECT_THAT(tokenizer.error().message, HasSubstr(part));
}

TEST(Create, AcceptsASmallVocabulary) {
  const auto tokenizer = Tokenizer::create(small_vocabulary().source()).value();
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_EQ(tokenizer.num_tokens(), 260);
  EXPECT_THAT(tokenizer.encode("abcab<|end|><think>a").value(), ::testing::ElementsAre(257, 256, 258, 259, 'a'));
  EXPECT_EQ(tokenizer.token_to_id("<think>"), 259);
  EXPECT_EQ(tokenizer.token_to_id("ab"), -1);
  EXPECT_EQ(tokenizer.token_to_id(""), -1);
  EXPECT_TRUE(tokenizer.is_special(258));
  EXPECT_FALSE(tokenizer.is_special(259));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(1'000'000));
}

TEST(Create, ATokenizerMovesAsAWhole) {
  auto tokenizer = Tokenizer::create(byte_tokens().source()).value();
  tokenizer = Tokenizer::create(small_vocabulary().source()).value();
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_THAT(tokenizer.encode("abc<think>").value(), ::testing::ElementsAre(257, 259));
}

TEST(Create, RefusesSizesThatDiffer) {
  TokenizerData data = small_vocabulary();
  data.types.pop_back();
  expect_error(data, "expected 261, one for each token, found 260");
}

TEST(Create, RefusesTooFewTokens) {
  expect_error({}, "found 0");
  TokenizerData data = byte_tokens();
  data.tokens.pop_back();
  data.types.pop_back();
  expect_error(data, "found 255");
}

TEST(Create, RefusesTooManyTokens) {
  TokenizerData data = small_vocabulary();
  data.tokens.resize(1U << 18, "[PAD]");
  data.types.resize(1U << 18, TokenType::kUnused);
  expect_error(data, "found 262144");
}

TEST(Create, RefusesAByteWithoutAToken) {
  TokenizerData data = small_vocabulary();
  data.tokens[0x41] = "xyz";
  expect_error(data, "no token for the byte 0x41");
}

TEST(Create, RefusesDuplicates) {
  TokenizerData data = small_vocabulary();
  data.tokens[257] = "ab";
  expect_error(data, "tokens[257] 'ab': the same text as tokens[256]");
  data = small_vocabulary();
  data.tokens[259] = "<|end|>";
  expect_error(data, "tokens[259] '<|end|>': the same text as tokens[258]");
  data = small_vocabulary();
  data.tokens[259] = "ab";
  expect_error(data, "tokens[259] 'ab': the same text as tokens[256]");
}

TEST(Create, RefusesTokensThatAreNoText) {
  TokenizerData data = small_vocabulary();
  data.tokens[256] = "a b";  // a space is not in the byte alphabet
  expect_error(data, "tokens[256] 'a b'");
  data.tokens[256] = "";
  expect_error(data, "tokens[256] ''");
  data.tokens[256] = "a\xFF";
  expect_error(data, "tokens[256]");
  data.tokens[256] = std::string(1U << 14, 'x');
  expect_error(data, "tokens[256]");
  data = small_vocabulary();
  data.tokens[258] = "";
  expect_error(data, "tokens[258] ''");
  data.tokens[258] = "\xC3";
  expect_error(data, "tokens[258]");
}

TEST(Create, RefusesOtherTypes) {
  for (const int32_t type : {0, 2, 6, 7, -1}) {
    TokenizerData data = small_vocabulary();
    data.types[257] = static_cast<TokenType>(type);
    expect_error(data, "tokens[257] 'abc': expected type 1, 3, 4 or 5, found " + std::to_string(type));
  }
}

TEST(Create, RefusesMergesOfOtherForms) {
  for (const char* merge : {"abc", "ab c d", " abc", "abc ", "ab  c", ""}) {
    TokenizerData data = small_vocabulary();
    data.merges[1] = merge;
    expect_error(data, "merges[1]");
  }
}

TEST(Create, RefusesMergesOfUnknownTokens) {
  TokenizerData data = small_vocabulary();
  data.merges[1] = "xy c";
  expect_error(data, "merges[1] 'xy c': 'xy' is not a token");
  data.merges[1] = "c xy";
  expect_error(data, "merges[1] 'c xy': 'xy' is not a token");
  data.merges[1] = "ab d";
  expect_error(data, "merges[1] 'ab d': what it makes is not a token");
  data.merges[1] = "ab <|end|>";  // an added token is no part of BPE
  expect_error(data, "'<|end|>' is not a token");
}

TEST(Create, RefusesMergesOutOfOrder) {
  TokenizerData data = small_vocabulary();
  data.merges = {"ab c", "a b"};
  expect_error(data, "merges[0] 'ab c': no earlier merge makes tokens[256]");
  data.merges = {"a b", "a b"};
  expect_error(data, "merges[1] 'a b': an earlier merge makes tokens[256] too");
}

TEST(Create, RefusesMoreMergesThanTokens) {
  TokenizerData data = small_vocabulary();
  data.merges.assign(262, "a b");
  expect_error(data, "found 262");
}

}  // namespace
}  // namespace kipp
