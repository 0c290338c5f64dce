// Base64 decoding: the vectors of RFC 4648 and every kind of malformed text.
#include "cli/base64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace kipp::cli {
namespace {

TEST(Base64, DecodesTheVectorsOfTheStandard) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"Zg==", "f"},
      {"Zm8=", "fo"},
      {"Zm9v", "foo"},
      {"Zm9vYg==", "foob"},
      {"Zm9vYmE=", "fooba"},
      {"Zm9vYmFy", "foobar"},
      {"+/+/", "\xfb\xff\xbf"},
  };
  for (const auto& [text, bytes] : cases) {
    const auto decoded = decode_base64(text);
    ASSERT_TRUE(decoded) << text;
    EXPECT_EQ(*decoded, bytes);
  }
  EXPECT_EQ(*decode_base64("AAAA"), std::string(3, '\0'));
}

TEST(Base64, RefusesMalformedTextAndNamesTheOffset) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"Zg", "offset 2"},   {"Zm9v=", "offset 5"},  {"====", "offset 0"},       {"Z===", "offset 1"},
      {"Zm 9", "offset 2"}, {"Zm-_", "offset 2"},   {"Zg==Zg==", "offset 2"},   {"Zh==", "offset 1"},
      {"Zm9=", "offset 2"}, {"Zm9v\n", "offset 5"}, {"\xc3\xa9==", "offset 0"},
  };
  for (const auto& [text, part] : cases) {
    const auto decoded = decode_base64(text);
    ASSERT_FALSE(decoded) << text;
    EXPECT_EQ(decoded.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(decoded.error().message, testing::HasSubstr(part)) << text;
    EXPECT_THAT(decoded.error().message, testing::HasSubstr("found ")) << text;
  }
}

}  // namespace
}  // namespace kipp::cli
