// The words of the pre-tokenizer, alternative by alternative, as the reference's regex engine cuts them.
#include "tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/char_class.h"

namespace kipp {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> result;
  for (size_t start = 0; start < text.size();) {
    const size_t end = next_word_end(text, start, char_class_table());
    result.emplace_back(text.substr(start, end - start));
    start = end;
  }
  return result;
}

TEST(PreTokenizer, Contractions) {
  EXPECT_THAT(words("it's we'RE I'Ll you'Ve x'm y'D z't"),
              ElementsAre("it", "'s", " we", "'RE", " I", "'Ll", " you", "'Ve", " x", "'m", " y", "'D", " z", "'t"));
  EXPECT_THAT(words("'Test'"), ElementsAre("'T", "est", "'"));  // no word boundary
  EXPECT_THAT(words("'re'r'l'"), ElementsAre("'re", "'r", "'l", "'"));
  EXPECT_THAT(words("'\u017Fx"), ElementsAre("'\u017F", "x"));    // the long s folds to s
  EXPECT_THAT(words("it\u2019s"), ElementsAre("it", "\u2019s"));  // only the ASCII apostrophe
  EXPECT_THAT(words("'"), ElementsAre("'"));
}

TEST(PreTokenizer, LettersWithOneCharacterBefore) {
  EXPECT_THAT(words("-a \tb.c\u3000d"), ElementsAre("-a", " ", "\tb", ".c", "\u3000d"));
  EXPECT_THAT(words("\nx\ry"), ElementsAre("\n", "x", "\r", "y"));  // CR and LF never
  EXPECT_THAT(words("--a"), ElementsAre("--", "a"));
  EXPECT_THAT(words("a\u0302b"), ElementsAre("a", "\u0302b"));  // a mark is no letter
}

TEST(PreTokenizer, NumbersStandAlone) {
  EXPECT_THAT(words("a12 3"), ElementsAre("a", "1", "2", " ", "3"));
  EXPECT_THAT(words("\u00BD\u2167\u0663"), ElementsAre("\u00BD", "\u2167", "\u0663"));
}

TEST(PreTokenizer, SymbolsTakeASpaceBeforeAndNewlinesBehind) {
  EXPECT_THAT(words("x  !?\r\n\ny"), ElementsAre("x", " ", " !?\r\n\n", "y"));
  EXPECT_THAT(words("\t!"), ElementsAre("\t", "!"));
  EXPECT_THAT(words("! "), ElementsAre("!", " "));
  EXPECT_THAT(words(std::string_view("\0\0a", 3)), ElementsAre(std::string(2, '\0'), "a"));
}

TEST(PreTokenizer, WhiteSpace) {
  EXPECT_THAT(words("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(words("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(words("a \n \n  b"), ElementsAre("a", " \n \n", " ", " b"));
  EXPECT_THAT(words(" \r\n\t"), ElementsAre(" \r\n", "\t"));
  EXPECT_THAT(words("  1"), ElementsAre(" ", " ", "1"));
  EXPECT_THAT(words("\u0085\u2028\u200B"), ElementsAre("\u0085", "\u2028", "\u200B"));  // U+200B is no white space
}

}  // namespace
}  // namespace kipp
