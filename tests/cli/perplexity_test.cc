// Windows of a perplexity run: every token but the first is scored once, with the context that was promised.
#include "cli/perplexity.h"

#include <gtest/gtest.h>

namespace kipp::cli {
namespace {

TEST(Windows, CoverEveryTokenOnceForEverySize) {
  for (size_t num_tokens = 2; num_tokens <= 40; ++num_tokens) {
    for (size_t window = 2; window <= 12; ++window) {
      for (size_t stride = 1; stride < window; ++stride) {
        size_t next = 1;
        for (const Window& w : plan_windows(num_tokens, window, stride)) {
          ASSERT_EQ(w.first_scored, next);
          ASSERT_GT(w.end, w.first_scored);
          ASSERT_LE(w.end - w.begin, window);
          ASSERT_LT(w.begin, w.first_scored);
          if (w.begin > 0) {
            ASSERT_GE(w.first_scored - w.begin, window - stride);
          }
          next = w.end;
        }
        ASSERT_EQ(next, num_tokens) << "window " << window << " stride " << stride;
      }
    }
  }
}

TEST(Windows, AreFewWhenTheTextFits) {
  EXPECT_EQ(plan_windows(10, 10, 5).size(), 1U);
  EXPECT_EQ(plan_windows(11, 10, 5).size(), 2U);
  EXPECT_TRUE(plan_windows(1, 10, 5).empty());
  EXPECT_TRUE(plan_windows(0, 10, 5).empty());
}

}  // namespace
}  // namespace kipp::cli
