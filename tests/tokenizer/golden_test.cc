// Every golden case: made with the reference tokenizer, matched exactly.
#include <gtest/gtest.h>

#include <algorithm>

#include "tokenizer/golden.h"
#include "tokenizer/qwen_tokenizer.h"

namespace kipp {
namespace {

using testing::qwen_base_tokenizer;
using testing::qwen_tokenizer;
using testing::read_golden;
using Ids = std::vector<int32_t>;

constexpr EncodeOptions kPlain{.special_tokens = SpecialTokens::kPlain};

// One case holds 2^32 - 1: like every id past the vocabulary it has no token.
Ids narrow_ids(const nlohmann::json& list) {
  Ids ids;
  for (const auto& id : list) {
    ids.push_back(static_cast<int32_t>(std::min<int64_t>(id.get<int64_t>(), INT32_MAX)));
  }
  return ids;
}

TEST(Golden, EncodesEveryTextParsed) {
  const auto cases = read_golden("tokenizer.jsonl");
  ASSERT_EQ(cases.size(), 860U);
  for (const auto& item : cases) {
    EXPECT_EQ(qwen_tokenizer().encode(item["text"].get<std::string>()).value(), item["ids"].get<Ids>()) << item["name"];
  }
}

TEST(Golden, EncodesEveryTextPlain) {
  for (const auto& item : read_golden("tokenizer.jsonl")) {
    const auto text = item["text"].get<std::string>();
    const auto expected = item.value("ids_plain", item["ids"]).get<Ids>();
    EXPECT_EQ(qwen_tokenizer().encode(text, kPlain).value(), expected) << item["name"];
    EXPECT_EQ(qwen_base_tokenizer().encode(text, kPlain).value(), expected) << item["name"];
  }
}

TEST(Golden, BaseCheckpointsSplitThinkAndToolTokens) {
  size_t num_different = 0;
  for (const auto& item : read_golden("tokenizer.jsonl")) {
    const auto text = item["text"].get<std::string>();
    num_different += item.contains("ids_base") ? 1U : 0U;
    EXPECT_EQ(qwen_base_tokenizer().encode(text).value(), item.value("ids_base", item["ids"]).get<Ids>())
        << item["name"];
  }
  EXPECT_GT(num_different, 0U);
}

TEST(Golden, DecodesEveryText) {
  for (const auto& item : read_golden("tokenizer.jsonl")) {
    EXPECT_EQ(qwen_tokenizer().decode(item["ids"].get<Ids>()).value(), item["decoded"].get<std::string>())
        << item["name"];
  }
}

TEST(Golden, DecodesEveryIdList) {
  const auto cases = read_golden("decode.jsonl");
  ASSERT_EQ(cases.size(), 151U);
  for (const auto& item : cases) {
    const Ids ids = narrow_ids(item["ids"]);
    EXPECT_EQ(qwen_tokenizer().decode(ids).value(), item["decoded"].get<std::string>()) << item["name"];
    EXPECT_EQ(qwen_tokenizer().decode(ids, true).value(), item["decoded_skip_special"].get<std::string>())
        << item["name"];
  }
}

}  // namespace
}  // namespace kipp
