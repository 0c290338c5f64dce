// The text format of Prometheus, version 0.0.4.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/metrics/histogram.h"

namespace kipp::metrics {

struct Label {
  std::string_view name;
  std::string value;
};
using Labels = std::vector<Label>;

class TextPage {
 public:
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

  // A family of samples with one name, all at once: HELP and TYPE, then a line for each call of sample().
  class Family {
   public:
    Family& sample(uint64_t value, const Labels& labels = {});
    Family& sample(double value, const Labels& labels = {});

   private:
    friend class TextPage;
    Family(std::string& text, std::string_view name) : text_(text), name_(name) {}
    std::string& text_;
    std::string_view name_;
  };
  Family counter(std::string_view name, std::string_view help) { return family(name, "counter", help); }
  Family gauge(std::string_view name, std::string_view help) { return family(name, "gauge", help); }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram, const Labels& labels = {});

  std::string take() { return std::move(text_); }

 private:
  Family family(std::string_view name, std::string_view type, std::string_view help);
  std::string text_;
};

}  // namespace kipp::metrics
