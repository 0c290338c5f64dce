// Distances between names, and what counts as near.
#include "base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace kipp {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("", "ab"), 2U);
  EXPECT_EQ(edit_distance("top-k", "top-k"), 0U);
  EXPECT_EQ(edit_distance("topk", "top-k"), 1U);
  EXPECT_EQ(edit_distance("temprature", "temperature"), 1U);
  EXPECT_EQ(edit_distance("rnu", "run"), 1U) << "neighbours swapped";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("ca", "abc"), 3U) << "a part is edited once";
}

TEST(DidYouMean, NamesTheNearestOrNothing) {
  const std::vector<std::string> names = {"--temperature", "--top-k", "--top-p", "-m"};
  EXPECT_EQ(did_you_mean("--temprature", names), "; did you mean --temperature?");
  EXPECT_EQ(did_you_mean("--top_p", names), "; did you mean --top-p?");
  EXPECT_EQ(did_you_mean("--top", names), "; did you mean --top-k?") << "of equals the first";
  EXPECT_EQ(did_you_mean("--frobnicate", names), "");
  EXPECT_EQ(did_you_mean("-n", names), "; did you mean -m?");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

}  // namespace
}  // namespace kipp
