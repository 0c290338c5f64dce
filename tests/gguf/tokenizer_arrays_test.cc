// The tokenizer's arrays with one element changed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "gguf/rejection.h"

namespace kipp::gguf {
namespace {

constexpr size_t kArrayHeader = sizeof(uint32_t) + sizeof(uint64_t);

// Where element `index` begins in an encoded array of strings.
size_t string_position(const std::string& bytes, size_t index) {
  size_t at = kArrayHeader;
  for (size_t i = 0; i < index; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    at += sizeof(length) + length;
  }
  return at;
}

void set_string(EncodedValue& array, size_t index, std::string_view text) {
  const size_t begin = string_position(array.bytes, index);
  const size_t end = string_position(array.bytes, index + 1);
  array.bytes.replace(begin, end - begin, encode(text).bytes);
}

void set_i32(EncodedValue& array, size_t index, int32_t value) {
  std::memcpy(array.bytes.data() + kArrayHeader + index * sizeof(value), &value, sizeof(value));
}

void change_count(EncodedValue& array, int64_t difference) {
  uint64_t count = 0;
  std::memcpy(&count, array.bytes.data() + sizeof(uint32_t), sizeof(count));
  count += static_cast<uint64_t>(difference);
  std::memcpy(array.bytes.data() + sizeof(uint32_t), &count, sizeof(count));
}

FileImage twin(bool isolates = true) {
  return valid_image({.id = "kipp-demo", .twin_layers = 1, .isolates_think_tokens = isolates});
}

struct TokenCase {
  bool isolates;
  size_t id;
  const char* text;
  const char* expected;
};

TEST(TokenizerArrays, EachKindOfTokenTextIsChecked) {
  const TokenCase cases[] = {
      {true, 0, "", "not empty"},
      {true, 151642, "", "not empty"},
      {true, 151643, "<|im_start|>", "\"<|endoftext|>\""},
      {true, 151645, "<|im_end|> ", "\"<|im_end|>\""},
      {true, 151656, "[PAD151656]", "\"<|video_pad|>\""},
      {true, 151664, "", "\"<|file_sep|>\""},
      {true, 151668, "[PAD151668]", "\"</think>\""},
      {false, 151668, "</think>", "\"[PAD151668]\""},
      {true, 151669, "[PAD151670]", "\"[PAD151669]\""},
      {true, 151935, "<extra>", "\"[PAD151935]\""},
  };
  for (const TokenCase& test : cases) {
    FileImage image = twin(test.isolates);
    set_string(image.value("tokenizer.ggml.tokens"), test.id, test.text);
    expect_rejected(
        image, ErrorCode::kInvalidArtifact,
        {fmt::format("tokenizer.ggml.tokens[{}]", test.id), test.expected, fmt::format("\"{}\"", test.text)});
  }
}

TEST(TokenizerArrays, EachKindOfTokenTypeIsChecked) {
  const struct {
    bool isolates;
    size_t id;
    int32_t found, expected;
  } cases[] = {{true, 0, 3, 1},      {true, 151642, 6, 1}, {true, 151643, 1, 3},  {true, 151656, 4, 3},
               {true, 151657, 3, 4}, {true, 151664, 5, 4}, {true, 151667, 5, 4},  {false, 151667, 4, 5},
               {true, 151669, 4, 5}, {true, 151935, 0, 5}, {true, 151935, -1, 5}, {true, 100, 7, 1}};
  for (const auto& test : cases) {
    FileImage image = twin(test.isolates);
    set_i32(image.value("tokenizer.ggml.token_type"), test.id, test.found);
    expect_rejected(image, ErrorCode::kInvalidArtifact,
                    {fmt::format("tokenizer.ggml.token_type[{}]", test.id), fmt::format("expected {}", test.expected),
                     fmt::format("found {}", test.found)});
  }
}

TEST(TokenizerArrays, MergesHaveTwoParts) {
  for (const char* text : {"", " ", "ab", " ab", "ab ", "a b c", "a  b"}) {
    FileImage image = twin();
    set_string(image.value("tokenizer.ggml.merges"), 151386, text);
    expect_rejected(image, ErrorCode::kInvalidArtifact,
                    {"tokenizer.ggml.merges[151386]", "two parts", fmt::format("\"{}\"", text)});
  }
}

TEST(TokenizerArrays, CountsAreExact) {
  const struct {
    const char* key;
    uint64_t count;
    std::string element;
  } cases[] = {{"tokenizer.ggml.tokens", 151936, encode("more").bytes},
               {"tokenizer.ggml.token_type", 151936, std::string("\5\0\0\0", 4)},
               {"tokenizer.ggml.merges", 151387, encode("a b").bytes}};
  for (const auto& test : cases) {
    FileImage image = twin();
    change_count(image.value(test.key), 1);
    image.value(test.key).bytes += test.element;
    expect_rejected(image, ErrorCode::kInvalidArtifact,
                    {test.key, fmt::format("array of {}", test.count), fmt::format("array of {}", test.count + 1)});
    image.set(test.key, test.key == std::string("tokenizer.ggml.token_type") ? encode(std::vector<int32_t>{})
                                                                             : encode(std::vector<std::string>{}));
    expect_rejected(image, ErrorCode::kInvalidArtifact, {test.key, "array of 0"});
  }
}

// One element less than announced: the next key is read as an element, and whatever that gives is refused.
TEST(TokenizerArrays, CountsThatLieShiftTheRestOfTheFile) {
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    for (const int64_t difference : {-1, 1}) {
      FileImage image = twin();
      change_count(image.value(key), difference);
      EXPECT_FALSE(open_image(image)) << key;
    }
  }
}

// The recorded property and the arrays must tell the same story.
TEST(TokenizerArrays, ThinkTokensMustMatchTheRecordedProperty) {
  for (const bool isolates : {false, true}) {
    FileImage image = twin(isolates);
    image.set("kipp.tokenizer.isolates_think_tokens", encode(!isolates));
    expect_rejected(image, ErrorCode::kInvalidArtifact, {"tokenizer.ggml.tokens[151665]"});
  }
}

}  // namespace
}  // namespace kipp::gguf
