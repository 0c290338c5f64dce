// Lines and escapes of the format; a histogram's buckets are cumulative there.
#include "server/metrics/text_page.h"

#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace kipp::metrics {
namespace {

// A label's value: any text, with three characters escaped.
void append_escaped(std::string& text, std::string_view value) {
  for (const char character : value) {
    if (character == '\\' || character == '"') {
      text += '\\';
      text += character;
    } else if (character == '\n') {
      text += "\\n";
    } else {
      text += character;
    }
  }
}

void append_labels(std::string& text, const Labels& labels) {
  if (labels.empty()) return;
  char separator = '{';
  for (const Label& label : labels) {
    text += std::exchange(separator, ',');
    text.append(label.name).append("=\"");
    append_escaped(text, label.value);
    text += '"';
  }
  text += '}';
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// As Python's client writes it, by whose labels some dashboards pick a bucket: 5.0.
std::string bound_text(double bound) {
  const std::string text = number_text(bound);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

void append_sample(std::string& text, std::string_view name, std::string_view suffix, const Labels& labels,
                   std::string_view value) {
  text.append(name).append(suffix);
  append_labels(text, labels);
  text.append(" ").append(value).append("\n");
}

}  // namespace

TextPage::Family& TextPage::Family::sample(uint64_t value, const Labels& labels) {
  append_sample(text_, name_, "", labels, fmt::format("{}", value));
  return *this;
}

TextPage::Family& TextPage::Family::sample(double value, const Labels& labels) {
  append_sample(text_, name_, "", labels, number_text(value));
  return *this;
}

TextPage::Family TextPage::family(std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  return {text_, name};
}

void TextPage::histogram(std::string_view name, std::string_view help, const Histogram& histogram,
                         const Labels& labels) {
  family(name, "histogram", help);
  const Histogram::Snapshot snapshot = histogram.snapshot();
  uint64_t total = 0;
  for (size_t i = 0; i < snapshot.counts.size(); ++i) {
    total += snapshot.counts[i];
    Labels bucket = labels;
    bucket.push_back({"le", i < histogram.bounds().size() ? bound_text(histogram.bounds()[i]) : "+Inf"});
    append_sample(text_, name, "_bucket", bucket, fmt::format("{}", total));
  }
  append_sample(text_, name, "_sum", labels, number_text(snapshot.sum));
  append_sample(text_, name, "_count", labels, fmt::format("{}", total));
}

}  // namespace kipp::metrics
