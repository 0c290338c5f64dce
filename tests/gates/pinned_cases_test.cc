// The table in the binary is the golden file's, and the check fails with the wrong tokenizer.
#include "gates/pinned_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/json.h"
#include "tokenizer/qwen_tokenizer.h"

namespace kipp::gates {
namespace {

std::vector<int32_t> ids_of(const Json* list) {
  std::vector<int32_t> ids;
  if (list != nullptr) {
    for (const Json& item : list->items()) {
      ids.push_back(static_cast<int32_t>(item.as_int64().value_or(-1)));
    }
  }
  return ids;
}

TEST(PinnedCases, AreThoseOfTheGoldenFile) {
  std::ifstream file(KIPP_SOURCE_DIR "/tests/golden/tokenizer.jsonl");
  size_t num_found = 0;
  for (std::string line; std::getline(file, line);) {
    const auto golden = parse_json(line);
    ASSERT_TRUE(golden.has_value());
    const std::string name = golden->find("name")->as_string();
    if (!name.starts_with("pinned_")) {
      continue;
    }
    const auto& cases = pinned_cases();
    const auto pinned =
        std::find_if(cases.begin(), cases.end(), [&](const PinnedCase& entry) { return entry.name == name; });
    ASSERT_NE(pinned, cases.end()) << name;
    EXPECT_EQ(pinned->text, golden->find("text")->as_string());
    EXPECT_EQ(pinned->decoded, golden->find("decoded")->as_string());
    EXPECT_EQ(pinned->ids, ids_of(golden->find("ids")));
    EXPECT_EQ(pinned->ids_plain, ids_of(golden->find("ids_plain")));
    EXPECT_EQ(pinned->ids_base, ids_of(golden->find("ids_base")));
    ++num_found;
  }
  EXPECT_EQ(num_found, 13U);
  EXPECT_EQ(pinned_cases().size(), 13U);
}

TEST(PinnedCases, PassForEachKindOfTokenizerAndFailForTheOther) {
  EXPECT_TRUE(check_pinned_cases(testing::qwen_tokenizer(), true).empty());
  EXPECT_TRUE(check_pinned_cases(testing::qwen_base_tokenizer(), false).empty());
  EXPECT_FALSE(check_pinned_cases(testing::qwen_tokenizer(), false).empty());
  EXPECT_FALSE(check_pinned_cases(testing::qwen_base_tokenizer(), true).empty());
}

}  // namespace
}  // namespace kipp::gates
