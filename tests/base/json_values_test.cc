// Lists and floats as JSON.
#include "base/json_values.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace kipp {
namespace {

TEST(JsonValues, ListsKeepTheirOrder) {
  EXPECT_EQ(write_json(ids_json(std::vector<int32_t>{3, -1, 2147483647})), "[3,-1,2147483647]");
  EXPECT_EQ(write_json(ids_json({})), "[]");
  const std::vector<std::string> texts = {"b", "a"};
  EXPECT_EQ(write_json(array_json(texts, Json::string)), R"(["b","a"])");
}

TEST(JsonValues, AFloatIsNamedExactly) {
  for (const float value : {0.1F, -1.0F / 3.0F, 1e-45F, 3.4028235e38F, 16777217.0F}) {
    const Json json = float_json(value);
    EXPECT_EQ(static_cast<float>(json.as_double().value()), value) << json.literal();
  }
  EXPECT_EQ(write_json(float_json(0.0F)), "0");
  EXPECT_TRUE(float_json(std::numeric_limits<float>::infinity()).is_null());
  EXPECT_TRUE(float_json(std::numeric_limits<float>::quiet_NaN()).is_null());
}

}  // namespace
}  // namespace kipp
