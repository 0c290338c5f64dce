// Server-sent events taken apart, as a client does it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "tokenizer/utf8.h"

namespace kipp::openai::testing {

// The data of each event. Everything must be framed as "data: …\n\n" and be valid UTF-8.
inline std::vector<std::string> event_data(std::string_view stream) {
  EXPECT_EQ(valid_utf8_prefix(stream), stream.size());
  std::vector<std::string> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_TRUE(stream.starts_with("data: ") && end != std::string_view::npos);
    if (end == std::string_view::npos) {
      break;
    }
    const std::string_view data = stream.substr(0, end).substr(6);
    EXPECT_EQ(data.find('\n'), std::string_view::npos);
    EXPECT_EQ(data.find('\r'), std::string_view::npos);
    events.emplace_back(data);
    stream.remove_prefix(end + 2);
  }
  return events;
}

inline std::vector<Json> chunks_of(std::string_view stream) {
  std::vector<Json> chunks;
  for (const std::string& data : event_data(stream)) {
    chunks.push_back(parse_json(data).value());
  }
  return chunks;
}

// The value at a path of member names and indices: at(json, "choices", 0, "delta").
inline const Json& at(const Json& json) {
  return json;
}
template <typename Step, typename... Steps>
const Json& at(const Json& json, Step step, Steps... steps) {
  static const Json missing;
  if constexpr (std::is_integral_v<Step>) {
    const auto index = static_cast<size_t>(step);
    return index < json.items().size() ? at(json.items()[index], steps...) : missing;
  } else {
    const Json* member = json.find(step);
    return member != nullptr ? at(*member, steps...) : missing;
  }
}

}  // namespace kipp::openai::testing
