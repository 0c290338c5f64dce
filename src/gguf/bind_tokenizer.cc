// The tokenizer's arrays: one vocabulary for the whole family, so the added tokens and all types are known here.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "gguf/binder.h"

namespace kipp::gguf {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";

// Ids from kEndOfText on, in order. The first 14 are control tokens ("special": true in tokenizer.json).
constexpr int32_t kNumControlTokens = 14;
constexpr std::array<std::string_view, kNumTokens - kEndOfText> kAddedTokens = {
    "<|endoftext|>",  "<|im_start|>",   "<|im_end|>",      "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>",  "<|box_end|>",    "<|quad_start|>",  "<|quad_end|>",         "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",   "<|video_pad|>",        "<tool_call>",
    "</tool_call>",   "<|fim_prefix|>", "<|fim_middle|>",  "<|fim_suffix|>",       "<|fim_pad|>",
    "<|repo_name|>",  "<|file_sep|>",   "<tool_response>", "</tool_response>",     "<think>",
    "</think>"};

TokenType expected_type(int32_t id, bool isolates_think_tokens) {
  if (id < kEndOfText) {
    return TokenType::kNormal;
  }
  if (id < kEndOfText + kNumControlTokens) {
    return TokenType::kControl;
  }
  if (id < kFirstThinkToken || (id < kNumTokens && isolates_think_tokens)) {
    return TokenType::kUserDefined;
  }
  return TokenType::kUnused;
}

bool text_matches(int32_t id, std::string_view text, TokenType type) {
  switch (type) {
    case TokenType::kNormal: return !text.empty();
    case TokenType::kUnused: {
      std::array<char, 16> placeholder{};
      const auto end = fmt::format_to(placeholder.begin(), "[PAD{}]", id);
      return text == std::string_view(placeholder.begin(), end);
    }
    default: return text == kAddedTokens[static_cast<size_t>(id - kEndOfText)];
  }
}

std::string expected_text(int32_t id, TokenType type) {
  switch (type) {
    case TokenType::kNormal: return "a token that is not empty";
    case TokenType::kUnused: return fmt::format("\"[PAD{}]\"", id);
    default: return quote(kAddedTokens[static_cast<size_t>(id - kEndOfText)]);
  }
}

// A merge is two non-empty parts and the one space between them; the byte alphabet has no space.
bool is_merge(std::string_view text) {
  const size_t space = text.find(' ');
  return space != std::string_view::npos && space > 0 && space + 1 < text.size() &&
         text.find(' ', space + 1) == std::string_view::npos;
}

std::string element(std::string_view key, size_t index) {
  return fmt::format("{}[{}]", key, index);
}

Result<StringArray> sized_strings(MetadataReader& reader, std::string_view key, int32_t count) {
  KIPP_ASSIGN(const auto strings, reader.strings(key));
  if (strings.size() != static_cast<uint64_t>(count)) {
    return reader.mismatch(key, fmt::format("an array of {} string", count));
  }
  return strings;
}

Result<std::vector<std::string_view>> bind_tokens(MetadataReader& reader, bool isolates_think_tokens) {
  KIPP_ASSIGN(auto strings, sized_strings(reader, kTokens, kVocabSize));
  std::vector<std::string_view> tokens;
  tokens.reserve(static_cast<size_t>(kVocabSize));
  for (int32_t id = 0; id < kVocabSize; ++id) {
    const std::string_view text = strings.next();
    const TokenType type = expected_type(id, isolates_think_tokens);
    if (!text_matches(id, text, type)) {
      return artifact_error(element(kTokens, tokens.size()), expected_text(id, type), quote(text), strings.offset());
    }
    tokens.push_back(text);
  }
  return tokens;
}

Result<std::vector<TokenType>> bind_types(MetadataReader& reader, bool isolates_think_tokens) {
  KIPP_ASSIGN(const auto values, reader.i32s(kTypes, static_cast<uint64_t>(kVocabSize)));
  std::vector<TokenType> types;
  types.reserve(static_cast<size_t>(kVocabSize));
  for (int32_t id = 0; id < kVocabSize; ++id) {
    const int32_t found = values.at(types.size());
    const TokenType type = expected_type(id, isolates_think_tokens);
    if (found != static_cast<int32_t>(type)) {
      return artifact_error(element(kTypes, types.size()), fmt::format("{}", static_cast<int32_t>(type)),
                            fmt::format("{}", found), values.offset(types.size()));
    }
    types.push_back(type);
  }
  return types;
}

Result<std::vector<std::string_view>> bind_merges(MetadataReader& reader) {
  KIPP_ASSIGN(auto strings, sized_strings(reader, kMerges, kNumMerges));
  std::vector<std::string_view> merges;
  merges.reserve(static_cast<size_t>(kNumMerges));
  for (int32_t i = 0; i < kNumMerges; ++i) {
    const std::string_view text = strings.next();
    if (!is_merge(text)) {
      return artifact_error(element(kMerges, merges.size()), "two parts with one space between them", quote(text),
                            strings.offset());
    }
    merges.push_back(text);
  }
  return merges;
}

}  // namespace

Result<TokenizerSource> bind_tokenizer(MetadataReader& reader, bool isolates_think_tokens) {
  TokenizerSource source;
  KIPP_ASSIGN(source.tokens, bind_tokens(reader, isolates_think_tokens));
  KIPP_ASSIGN(source.types, bind_types(reader, isolates_think_tokens));
  KIPP_ASSIGN(source.merges, bind_merges(reader));
  return source;
}

}  // namespace kipp::gguf
