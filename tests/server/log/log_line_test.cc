// One event is one line, whatever a client has put into it.
#include "server/log/log_line.h"

#include <gtest/gtest.h>

namespace kipp::log {
namespace {

constexpr std::chrono::system_clock::time_point kTime{std::chrono::milliseconds(1'700'000'000'007)};
constexpr const char* kTimeText = "2023-11-14T22:13:20.007Z";

std::string json_line(std::vector<Json::Member> fields) {
  return log_line(Format::kJson, kTime, Level::kInfo, "e", std::move(fields));
}
std::string text_line(std::vector<Json::Member> fields) {
  return log_line(Format::kText, kTime, Level::kInfo, "e", std::move(fields));
}

TEST(LogLine, JsonHasTimeLevelEventAndTheFieldsInTheirOrder) {
  EXPECT_EQ(log_line(Format::kJson, kTime, Level::kError, "request_failed",
                     {{"z", Json::number(int64_t{3})}, {"a", Json::string("b")}, {"n", Json()}}),
            std::string("{\"time\":\"") + kTimeText +
                "\",\"level\":\"error\",\"event\":\"request_failed\",\"z\":3,\"a\":\"b\",\"n\":null}\n");
}

TEST(LogLine, TextIsForPeople) {
  EXPECT_EQ(text_line({{"a", Json::string("b/c:1")},
                       {"b", Json::string("two words")},
                       {"c", Json::string("")},
                       {"d", Json::array({Json::string("stop"), Json::string("length")})},
                       {"e", Json::array({Json::string("a,b")})},
                       {"f", Json::array()},
                       {"g", Json::boolean(true)}}),
            std::string(kTimeText) + " info e a=b/c:1 b=\"two words\" c=\"\" d=stop,length e=[\"a,b\"] f=[] g=true\n");
}

TEST(LogLine, NothingBeginsALineOrActsOnATerminal) {
  const std::string evil =
      "a\nb\r\x1b[31m\x7f\xC2\x9B"
      "31m\xFF\xC3(\xED\xA0\x80 \"\\";
  for (const std::string& line : {json_line({{"x", Json::string(evil)}}), text_line({{"x", Json::string(evil)}}),
                                  json_line({{"x", Json::array({Json::string(evil)})}})}) {
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    for (const char c : line.substr(0, line.size() - 1))
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
    EXPECT_EQ(line.find("\xC2\x9B"), std::string::npos);
    EXPECT_NE(line.find("\xEF\xBF\xBD"), std::string::npos) << "the broken bytes";
  }
  const auto parsed = parse_json(json_line({{"x", Json::string(evil)}}));
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_TRUE(
      parsed->find("x")->as_string().starts_with("a\nb\r\x1b[31m\x7f\xC2\x9B"
                                                 "31m\xEF\xBF\xBD"));
}

}  // namespace
}  // namespace kipp::log
