// The text format to the letter. tests/cli/test_serve_metrics.py reads a server's page with Prometheus's own parser.
#include "server/metrics/text_page.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace kipp::metrics {
namespace {

TEST(TextPage, FamiliesBeginWithHelpAndType) {
  TextPage page;
  page.counter("a_total", "Counts.").sample(uint64_t{18446744073709551615U});
  page.gauge("b", "Now.").sample(0.25, {{"x", "1"}}).sample(-3.0, {{"x", "2"}, {"y", ""}});
  page.gauge("c", "Nothing yet.");
  EXPECT_EQ(page.take(),
            "# HELP a_total Counts.\n# TYPE a_total counter\na_total 18446744073709551615\n"
            "# HELP b Now.\n# TYPE b gauge\nb{x=\"1\"} 0.25\nb{x=\"2\",y=\"\"} -3\n"
            "# HELP c Nothing yet.\n# TYPE c gauge\n");
}

TEST(TextPage, LabelsMayHoldAnyText) {
  TextPage page;
  page.gauge("a", "h").sample(uint64_t{1}, {{"model_name", "a\"b\\c\nd{e},=\xC3\xA4"}});
  EXPECT_EQ(page.take(), "# HELP a h\n# TYPE a gauge\na{model_name=\"a\\\"b\\\\c\\nd{e},=\xC3\xA4\"} 1\n");
}

TEST(TextPage, NumbersThatAreNone) {
  TextPage page;
  page.gauge("a", "h")
      .sample(std::numeric_limits<double>::quiet_NaN())
      .sample(std::numeric_limits<double>::infinity())
      .sample(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(page.take(), "# HELP a h\n# TYPE a gauge\na NaN\na +Inf\na -Inf\n");
}

TEST(TextPage, BucketsOfAHistogramAreCumulative) {
  constexpr std::array kBounds = {0.5, 1.0};
  Histogram histogram(kBounds);
  histogram.observe(0.25, 2);
  histogram.observe(0.75);
  histogram.observe(8.0);
  TextPage page;
  page.histogram("t_seconds", "Time.", histogram, {{"m", "x"}});
  EXPECT_EQ(page.take(),
            "# HELP t_seconds Time.\n# TYPE t_seconds histogram\n"
            "t_seconds_bucket{m=\"x\",le=\"0.5\"} 2\nt_seconds_bucket{m=\"x\",le=\"1.0\"} 3\n"
            "t_seconds_bucket{m=\"x\",le=\"+Inf\"} 4\nt_seconds_sum{m=\"x\"} 9.25\nt_seconds_count{m=\"x\"} 4\n");
}

}  // namespace
}  // namespace kipp::metrics
