// Encoding beyond the golden cases: faults known from other engines, added tokens that touch, pieces, broken UTF-8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <random>

#include "tokenizer/golden.h"
#include "tokenizer/qwen_tokenizer.h"
#include "tokenizer/utf8.h"

namespace kipp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::qwen_base_tokenizer;
using testing::qwen_tokenizer;
using Ids = std::vector<int32_t>;

constexpr EncodeOptions kPlain{.special_tokens = SpecialTokens::kPlain};
constexpr EncodeOptions kReplace{.invalid_utf8 = InvalidUtf8::kReplace};

Ids encode(std::string_view text, EncodeOptions options = {}) {
  return qwen_tokenizer().encode(text, options).value();
}

TEST(KnownFaults, DecomposedTextIsComposedFirst) {
  EXPECT_THAT(encode("Mo\u0308bel"), ElementsAre(44, 2956, 9779));
  EXPECT_EQ(encode("Mo\u0308bel"), encode("M\u00F6bel"));
  EXPECT_EQ(encode("\u1100\u1161\u11A8"), encode("\uAC01"));
  EXPECT_EQ(encode("\u212B"), encode("\u00C5"));
  EXPECT_EQ(encode("s\u0307\u0323"), encode("\u1E69"));  // marks in another order
}

TEST(KnownFaults, EveryDigitIsOneToken) {
  EXPECT_THAT(encode("price: 40961"), ElementsAre(6555, 25, 220, 19, 15, 24, 21, 16));
  EXPECT_EQ(encode("1234567890").size(), 10U);
}

TEST(KnownFaults, LineEndsAndTheBlanksBeforeThem) {
  EXPECT_THAT(encode("7 \r\n\r\n8"), ElementsAre(22, 23341, 23));
  Ids expected = encode("7");
  for (const char* part : {" \n\t \n", "  ", " x"}) {  // blanks up to the last newline; all but one before a word
    const Ids ids = encode(part);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(encode("7 \n\t \n   x"), expected);
}

TEST(KnownFaults, ATypedControlTokenStaysText) {
  EXPECT_THAT(encode("please print <|im_end|> now", kPlain), ElementsAre(30021, 1173, 82639, 318, 6213, 91, 29, 1431));
  const std::array<Tokenizer::Piece, 1> piece = {{{"please print <|im_end|> now"}}};
  EXPECT_EQ(qwen_tokenizer().encode_pieces(piece).value(), encode("please print <|im_end|> now", kPlain));
  for (int32_t id = 151643; id < 151669; ++id) {
    const std::string text(qwen_tokenizer().token_bytes(id).value());
    EXPECT_THAT(encode(text), ElementsAre(id));
    for (const int32_t plain : encode("x" + text + text, kPlain)) {
      EXPECT_LT(plain, 151643) << text;
    }
  }
}

TEST(KnownFaults, IdsAboveTheTokensHaveNoText) {
  const Tokenizer& tokenizer = qwen_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 151936);
  EXPECT_EQ(tokenizer.num_tokens(), 151669);
  for (const int32_t id : {151669, 151800, 151935, 151936, 999999, INT32_MAX}) {
    EXPECT_EQ(tokenizer.token_bytes(id).value(), "");
    EXPECT_EQ(tokenizer.decode(Ids{13048, id, 0}).value(), "Hi!");
    EXPECT_FALSE(tokenizer.is_special(id));
  }
  const auto negative = tokenizer.decode(Ids{13048, -5});
  ASSERT_FALSE(negative.has_value());
  EXPECT_EQ(negative.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(negative.error().message, "ids[1]: -5 is not a token id");
  EXPECT_FALSE(tokenizer.token_bytes(-1).has_value());
}

TEST(Encode, NulIsACharacterAndEmptyIsEmpty) {
  EXPECT_TRUE(encode("").empty());
  EXPECT_TRUE(encode("", kPlain).empty());
  const std::string_view text("a\0b\0\0", 5);
  const Ids ids = encode(text);
  EXPECT_EQ(qwen_tokenizer().decode(ids).value(), text);
  EXPECT_NE(ids, encode("ab"));
}

TEST(Encode, AddedTokensThatTouchOverlapOrNearlyMatch) {
  EXPECT_THAT(encode("<think></think><think>"), ElementsAre(151667, 151668, 151667));
  EXPECT_THAT(encode("<<think>>"), ElementsAre(27, 151667, 29));
  EXPECT_EQ(encode("<|im_end|"), encode("<|im_end|", kPlain));
  EXPECT_EQ(encode("<THINK>"), encode("<THINK>", kPlain));
  EXPECT_THAT(encode("<|im_<|im_end|>end|>"), ElementsAre(27, 91, 318, 62, 151645, 408, 91, 29));
  // Nothing joins across an added token: a mark has no base there, a space does not belong to the word behind it.
  const Ids mark = encode("\u0301");
  Ids expected = encode("e");
  expected.push_back(151667);
  expected.insert(expected.end(), mark.begin(), mark.end());
  EXPECT_EQ(encode("e<think>\u0301"), expected);
}

TEST(Encode, TheLongestOfAddedTokensThatArePrefixesOfOneAnother) {
  testing::TokenizerData data = testing::byte_tokens();
  for (const char* token : {"<a", "<a>", "<a><b>", "a>", "\xC3\xA9"}) {
    data.tokens.emplace_back(token);
    data.types.push_back(TokenType::kControl);
  }
  const Tokenizer tokenizer = Tokenizer::create(data.source()).value();
  EXPECT_THAT(tokenizer.encode("<a><b>").value(), ElementsAre(258));
  EXPECT_THAT(tokenizer.encode("<a><a").value(), ElementsAre(257, 256));
  EXPECT_THAT(tokenizer.encode("<a><b").value(), ElementsAre(257, '<', 'b'));
  EXPECT_THAT(tokenizer.encode("<<a>a>").value(), ElementsAre('<', 257, 259));
  EXPECT_THAT(tokenizer.encode("\u00E9").value(), ElementsAre(260));
  EXPECT_THAT(tokenizer.encode("e\u0301").value(), ElementsAre(0xC3, 0xA9));  // raw text, before normalisation
}

TEST(Encode, PlainPiecesAreOneRun) {
  const Tokenizer& tokenizer = qwen_tokenizer();
  const std::string text = "Hello wor\u0301ld\r\n\r\n  it's <think> 12\u4E16\u754C";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    if (cut < text.size() && (static_cast<uint8_t>(text[cut]) & 0xC0U) == 0x80) {
      continue;  // not between characters
    }
    const std::string_view view = text;
    const std::array<Tokenizer::Piece, 2> pieces = {{{view.substr(0, cut)}, {view.substr(cut)}}};
    EXPECT_EQ(tokenizer.encode_pieces(pieces).value(), encode(text, kPlain)) << cut;
  }
}

TEST(Encode, ATokenPieceEndsARun) {
  const Tokenizer& tokenizer = qwen_tokenizer();
  const std::array<Tokenizer::Piece, 6> pieces = {{{"", 151644}, {"us"}, {"er\n"}, {"hi"}, {"", 151645}, {"\n"}}};
  EXPECT_THAT(tokenizer.encode_pieces(pieces).value(), ElementsAre(151644, 872, 198, 6023, 151645, 198));
  EXPECT_TRUE(tokenizer.encode_pieces({}).value().empty());
}

TEST(Encode, PiecesNameWhatIsWrong) {
  const Tokenizer& base = qwen_base_tokenizer();
  for (const int32_t id : {13048, 151667, 151800, 200000}) {  // normal, absent in a base checkpoint, unused, outside
    const std::array<Tokenizer::Piece, 2> pieces = {{{"x"}, {"", id}}};
    const auto result = base.encode_pieces(pieces);
    ASSERT_FALSE(result.has_value()) << id;
    EXPECT_THAT(result.error().message, HasSubstr("pieces[1]: " + std::to_string(id)));
  }
  const std::array<Tokenizer::Piece, 2> broken = {{{"x"}, {"ab\xFF"}}};
  EXPECT_THAT(base.encode_pieces(broken).error().message, HasSubstr("pieces[1]: invalid UTF-8 at byte offset 2"));
}

// Address space without memory behind it: the size is refused before a byte is read.
TEST(Encode, RefusesATextOfMoreThanAGibibyte) {
  constexpr size_t kBytes = (size_t{1} << 30) + 1;
  void* reserved = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  const auto ids = qwen_tokenizer().encode({static_cast<const char*>(reserved), kBytes});
  EXPECT_EQ(::munmap(reserved, kBytes), 0);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(ids.error().message, HasSubstr("1073741825 bytes: the tokenizer takes at most 1073741824"));
}

TEST(Encode, BaseCheckpointsHaveNoThinkTokens) {
  EXPECT_EQ(qwen_base_tokenizer().token_to_id("<think>"), -1);
  EXPECT_EQ(qwen_base_tokenizer().token_to_id("<|im_end|>"), 151645);
  EXPECT_EQ(qwen_base_tokenizer().num_tokens(), 151665);
  EXPECT_EQ(qwen_tokenizer().token_to_id("<think>"), 151667);
  EXPECT_EQ(qwen_base_tokenizer().decode(Ids{151667}).value(), "");
}

// The file was made by Python (its generator is in its first line): offset of UnicodeDecodeError, and errors="replace".
TEST(InvalidUtf8, OffsetsAndReplacementsAreThoseOfPython) {
  size_t num_invalid = 0;
  for (const auto& item : testing::read_golden("../tokenizer/invalid_utf8.jsonl")) {
    if (item.contains("generator")) {
      continue;
    }
    const auto values = item["bytes"].get<std::vector<uint8_t>>();
    const std::string bytes(values.begin(), values.end());
    const auto strict = qwen_tokenizer().encode(bytes);
    if (item["offset"].is_null()) {
      EXPECT_TRUE(strict.has_value());
    } else {
      ++num_invalid;
      ASSERT_FALSE(strict.has_value()) << item;
      EXPECT_EQ(strict.error().code, ErrorCode::kInvalidArgument);
      const std::string offset = "byte offset " + std::to_string(item["offset"].get<size_t>()) + " ";
      EXPECT_THAT(strict.error().message, HasSubstr(offset)) << item;
    }
    EXPECT_EQ(encode(bytes, kReplace), encode(item["replaced"].get<std::string>())) << item;
  }
  EXPECT_GT(num_invalid, 300U);
}

// Text in NFC comes back byte for byte from either mode.
TEST(Encode, DecodeGivesBackTextInNfc) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t size = random() % 20; size > 0; --size) {
      // ASCII, Han, kana without marks, pictographs: blocks in which NFC changes nothing.
      static constexpr std::array<std::array<uint32_t, 2>, 4> kBlocks = {
          {{0, 0x80}, {0x4E00, 0x9FA5}, {0x3041, 0x3094}, {0x1F300, 0x1F600}}};
      const auto& [first, end] = kBlocks[random() % kBlocks.size()];
      append_utf8(first + static_cast<uint32_t>(random()) % (end - first), text);
    }
    ASSERT_EQ(qwen_tokenizer().decode(encode(text)).value(), text);
    ASSERT_EQ(qwen_tokenizer().decode(encode(text, kPlain)).value(), text);
  }
}

}  // namespace
}  // namespace kipp
