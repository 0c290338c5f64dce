// Stop strings: what is shown, what is held back, and that the cut of the text into pieces does not matter.
#include "engine/stop_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kipp {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::string text;
  std::optional<size_t> matched;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stop, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stop);
  std::string text;
  for (const std::string& piece : pieces) {
    text += matcher.push(piece);
  }
  text += matcher.finish();
  return {text, matcher.matched()};
}

// The rule, said naively: the first end of any stop string, and of those that end there the longest.
Outcome naive(const std::vector<std::string>& stop, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stop.size(); ++i) {
      if (text.substr(0, end).ends_with(stop[i]) && (!best || stop[i].size() > stop[*best].size())) {
        best = i;
      }
    }
    if (best) {
      return {text.substr(0, end - stop[*best].size()), best};
    }
  }
  return {text, std::nullopt};
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBeginAStopString) {
  const std::vector<std::string> stop = {"END", "\n\n"};
  StopMatcher matcher(stop);
  EXPECT_EQ(matcher.push("a E"), "a ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("ENx\n"), "ENENx");
  EXPECT_EQ(matcher.push("\nmore"), "");
  EXPECT_EQ(matcher.matched(), 1U);
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TheEndReleasesAPartialMatch) {
  EXPECT_EQ(run({"stop"}, {"full sto"}), (Outcome{"full sto", std::nullopt}));
}

TEST(StopMatcher, WithoutStringsTextPassesThrough) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("as it is"), "as it is");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TheLongestOfThoseThatEndTogetherWins) {
  EXPECT_EQ(run({"b", "ab"}, {"xab"}), (Outcome{"x", 1}));
  EXPECT_EQ(run({"ab", "b"}, {"xab"}), (Outcome{"x", 0}));
}

TEST(StopMatcher, TheFirstToBeCompleteWins) {
  EXPECT_EQ(run({"abc", "b"}, {"xabc"}), (Outcome{"xa", 1}));
}

TEST(StopMatcher, EqualToTheNaiveRuleForEveryCut) {
  std::mt19937 random(7);
  const auto draw = [&](size_t longest) {
    std::string text(1 + random() % longest, 'a');
    std::ranges::generate(text, [&] { return static_cast<char>('a' + random() % 2); });
    return text;
  };
  size_t num_matched = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stop(1 + random() % 3);
    std::ranges::generate(stop, [&] { return draw(6); });
    const std::string text = draw(24);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, random() % 5));
      at += pieces.back().size();
    }
    const Outcome expected = naive(stop, text);
    ASSERT_EQ(run(stop, pieces), expected) << text;
    num_matched += expected.matched ? 1U : 0U;
  }
  EXPECT_GT(num_matched, 500U);
  EXPECT_LT(num_matched, 2990U);
}

TEST(StopMatcher, BadStringsAreRefusedByIndex) {
  const std::vector<std::string> empty = {"a", ""};
  EXPECT_THAT(validate_stop_strings(empty).error().message, HasSubstr("stop[1]: expected 1 to 1024 bytes, found 0"));
  const std::vector<std::string> longest = {std::string(1024, 'x'), std::string(1025, 'x')};
  EXPECT_THAT(validate_stop_strings(longest).error().message, HasSubstr("stop[1]"));
  const std::vector<std::string> many(65, "x");
  EXPECT_THAT(validate_stop_strings(many).error().message, HasSubstr("at most 64 strings, found 65"));
  EXPECT_TRUE(validate_stop_strings(std::span(many).first(64)).has_value());
  const std::vector<std::string> broken = {"\xC3\xA9", "ab\xC3"};
  EXPECT_THAT(validate_stop_strings(broken).error().message, HasSubstr("stop[1]: expected UTF-8, found an invalid byte "
                                                                       "at offset 2"));
}

}  // namespace
}  // namespace kipp
