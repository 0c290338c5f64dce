// Windows of a perplexity run: every token but the first is scored once, with the context that was promised.
#include "cli/perplexity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/twin.h"

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

// Between two questions whether to go on there is little work, in the part of a window that is not scored too.
TEST(PerplexityOfATwin, AsksOftenAndEndsWhereItIsTold) {
  const std::unique_ptr<Model> model = open_twin();
  ASSERT_NE(model, nullptr);
  Session session = model->new_session().value();
  const std::vector<int32_t> ids = draw_tokens(202, 1);
  const std::vector<Window> windows = plan_windows(ids.size(), 200, 1);
  int32_t before = 0;
  int32_t longest = 0;
  size_t num_asked = 0;
  const auto measure = [&](size_t num_answered) {
    before = 0;
    num_asked = 0;
    return perplexity(session, ids, windows, model->tokenizer().num_tokens(), [&](const Perplexity&) {
      longest = std::max(longest, session.length() - before);  // less than nothing where a window begins
      before = session.length();
      return ++num_asked <= num_answered;
    });
  };
  const auto whole = measure(1000);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->num_scored, ids.size() - 1);
  EXPECT_LE(longest, 64);
  const size_t num_questions = num_asked;
  for (const size_t i : {size_t{0}, size_t{3}, num_questions - 2}) {
    const auto part = measure(i);
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(num_asked, i + 1) << "work went on after no";
    EXPECT_LT(part->num_scored, whole->num_scored);
  }
}

}  // namespace
}  // namespace kipp::cli
