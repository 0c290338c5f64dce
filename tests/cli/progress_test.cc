// The line that a progress bar draws.
#include "cli/progress.h"

#include <gtest/gtest.h>

namespace kipp::cli {
namespace {

TEST(ProgressLine, SaysHowFarAndHowLong) {
  EXPECT_EQ(progress_line("prompt", 512, 1024, "tokens", 3.0, "", 100),
            "prompt [##########..........] 50 % 512 of 1024 tokens, 3 s left");
  EXPECT_EQ(progress_line("ppl", 1, 100, "tokens", 10.0, "perplexity so far 5.0", 100),
            "ppl [....................] 1 % 1 of 100 tokens, 16:30 min left, perplexity so far 5.0");
  EXPECT_EQ(progress_line("copy", 7, 7, "blocks", 10.0, "", 100),
            "copy [####################] 100 % 7 of 7 blocks, 0 s left");
}

TEST(ProgressLine, HasNoForecastBeforeTheFirstStep) {
  EXPECT_EQ(progress_line("prompt", 0, 8, "tokens", 2.0, "", 100), "prompt [....................] 0 % 0 of 8 tokens");
  EXPECT_EQ(progress_line("prompt", 0, 0, "tokens", 2.0, "", 100), "prompt [....................] 0 % 0 of 0 tokens");
}

TEST(ProgressLine, IsCutToTheTerminal) {
  EXPECT_EQ(progress_line("prompt", 512, 1024, "tokens", 3.0, "", 10), "prompt [##");
}

}  // namespace
}  // namespace kipp::cli
