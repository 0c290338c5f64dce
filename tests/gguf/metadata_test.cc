// Artifacts with one metadata key changed: missing, twice, of another type, of another value, or one too many.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "gguf/rejection.h"

namespace kipp::gguf {
namespace {

using Strings = std::vector<std::string>;

bool is_optional(std::string_view key) {
  return key.starts_with("kipp.sampling.") || key == "tokenizer.chat_template";
}

// Another value of the same type, where every value but one is wrong.
EncodedValue changed(const EncodedValue& value) {
  EncodedValue result = value;
  switch (static_cast<ValueType>(value.type)) {
    case ValueType::kString: return encode(value.bytes.substr(8) + "x");
    case ValueType::kArray: result.bytes.back() ^= 1; break;  // the last element
    case ValueType::kF32: result.bytes[0] ^= 1; break;        // the nearest other number
    default: result.bytes[0] ^= 1; break;
  }
  return result;
}

class Metadata : public testing::Test {
 protected:
  const FileImage valid_ = valid_image({.id = "qwen3-0.6b"});
};

TEST_F(Metadata, EachRequiredKeyMissing) {
  for (const MetadataEntry& entry : valid_.metadata) {
    if (is_optional(entry.key)) {
      continue;
    }
    SCOPED_TRACE(entry.key);
    FileImage image = valid_;
    image.remove(entry.key);
    if (entry.key == "general.alignment") {
      image.alignment = kDefaultAlignment;
    }
    expect_rejected(image, ErrorCode::kInvalidArtifact, {entry.key, "found none"});
  }
}

TEST_F(Metadata, EachKeyTwice) {
  for (const MetadataEntry& entry : valid_.metadata) {
    SCOPED_TRACE(entry.key);
    FileImage image = valid_;
    image.metadata.push_back(entry);
    expect_rejected(image, ErrorCode::kInvalidArtifact, {entry.key, "a second one"});
  }
}

TEST_F(Metadata, EachKeyOfAnotherType) {
  for (const MetadataEntry& entry : valid_.metadata) {
    SCOPED_TRACE(entry.key);
    FileImage image = valid_;
    const bool is_u32 = entry.value.type == static_cast<uint32_t>(ValueType::kU32);
    image.set(entry.key, is_u32 ? encode(uint64_t{1}) : encode(uint32_t{1}));
    expect_rejected(image, ErrorCode::kInvalidArtifact, {entry.key, is_u32 ? "u64 1" : "u32 1"});
  }
}

TEST_F(Metadata, EachArrayOfAnotherElementType) {
  for (const MetadataEntry& entry : valid_.metadata) {
    if (entry.value.type != static_cast<uint32_t>(ValueType::kArray)) {
      continue;
    }
    SCOPED_TRACE(entry.key);
    FileImage image = valid_;
    EncodedValue floats{entry.value.type, encode(std::vector<uint32_t>{1, 2}).bytes};
    floats.bytes[0] = static_cast<char>(ValueType::kF32);
    image.set(entry.key, floats);
    expect_rejected(image, ErrorCode::kInvalidArtifact, {entry.key, "array of 2 f32"});
  }
}

TEST_F(Metadata, EachKeyOfAnotherValue) {
  for (const MetadataEntry& entry : valid_.metadata) {
    // Optional keys and the recorded treatment of think tokens have several legal values; see below.
    if (is_optional(entry.key) || entry.key == "kipp.tokenizer.isolates_think_tokens") {
      continue;
    }
    SCOPED_TRACE(entry.key);
    FileImage image = valid_;
    image.set(entry.key, changed(entry.value));
    if (entry.key == "tokenizer.ggml.merges") {
      image.value(entry.key).bytes.back() = ' ';
    }
    if (entry.key == "kipp.source.sha256") {
      image.value(entry.key).bytes.back() = 'g';
    }
    const bool unsupported = entry.key == "general.architecture" || entry.key == "kipp.quant.scheme";
    expect_rejected(image, unsupported ? ErrorCode::kUnsupported : ErrorCode::kInvalidArtifact, {entry.key});
  }
}

TEST_F(Metadata, KeysThatDoNotBelong) {
  for (const char* key :
       {"general.author", "qwen3.expert_count", "kipp.sampling.min_p", "rope.scaling.type", "qwen3.rope.scaling.type",
        "qwen3.attention.sliding_window", "split.count", "tokenizer.ggml.bos_token_id", "General.name"}) {
    SCOPED_TRACE(key);
    FileImage image = valid_;
    image.set(key, encode(uint32_t{1}));
    expect_rejected(image, ErrorCode::kInvalidArtifact, {key, "no such key", "u32 1"});
  }
}

TEST_F(Metadata, OtherArchitecturesByName) {
  for (const char* found : {"qwen3moe", "qwen2", "qwen3next", "qwen3vl", "llama", "", "Qwen3", "qwen3 "}) {
    FileImage image = valid_;
    image.set("general.architecture", encode(found));
    expect_rejected(image, ErrorCode::kUnsupported,
                    {"general.architecture", "\"qwen3\"", fmt::format("found \"{}\"", found)});
  }
}

// A file of another tool lacks Kipp's keys and has others; what counts is its architecture.
TEST(OtherTools, ArchitectureIsNamedBeforeAnyMissingKey) {
  FileImage image;
  image.alignment = 32;
  image.set("general.architecture", encode("qwen3moe"));
  image.set("qwen3moe.expert_count", encode(uint32_t{128}));
  image.tensors.push_back({"blk.0.ffn_gate_exps.weight", {2048, 768, 128}, 12, 0});
  expect_rejected(image, ErrorCode::kUnsupported, {"general.architecture", "found \"qwen3moe\""});
}

TEST(OtherTools, DenseQwen3OfAnotherToolIsNotAnArtifact) {
  FileImage image;
  image.alignment = 32;
  image.set("general.architecture", encode("qwen3"));
  image.set("qwen3.block_count", encode(uint32_t{28}));
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"kipp.format_version"});
}

struct ValueCase {
  const char* key;
  EncodedValue value;
  ErrorCode code;
  Strings parts;
};

TEST_F(Metadata, ValuesThatAreWrongInTheirOwnWay) {
  const auto invalid = ErrorCode::kInvalidArtifact;
  const auto hash = std::string(64, 'a');
  const ValueCase cases[] = {
      {"general.alignment", encode(uint32_t{256}), invalid, {"u32 128", "u32 256"}},
      {"general.file_type", encode(uint32_t{15}), invalid, {"u32 32 (scheme bf16)", "u32 15"}},
      {"general.file_type", encode(uint32_t{7}), invalid, {"u32 32 (scheme bf16)", "u32 7"}},
      {"kipp.quant.scheme", encode("q8_0"), invalid, {"general.file_type", "u32 7 (scheme q8_0)", "u32 32"}},
      {"kipp.quant.scheme", encode("q4_k_m"), ErrorCode::kUnsupported, {"affine4_gs32", "\"q4_k_m\""}},
      {"kipp.format_version", encode(uint32_t{2}), invalid, {"u32 1", "u32 2"}},
      {"kipp.checkpoint.id", encode("qwen3-0.6B"), invalid, {"registry", "\"qwen3-0.6B\""}},
      {"kipp.checkpoint.id", encode("qwen3-1.7b"), invalid, {"general.name", "\"qwen3-1.7b\"", "\"qwen3-0.6b\""}},
      {"general.name", encode("Qwen3 0.6B"), invalid, {"\"qwen3-0.6b\"", "\"Qwen3 0.6B\""}},
      {"kipp.source.repository", encode("Qwen/Qwen3-0.6B-Base"), invalid, {"\"Qwen/Qwen3-0.6B\""}},
      {"kipp.source.repository", encode("synthetic"), invalid, {"\"Qwen/Qwen3-0.6B\"", "\"synthetic\""}},
      {"kipp.source.revision", encode("main"), invalid, {"c1899de289a04d12100db370d81485cdf75e47ca", "\"main\""}},
      {"kipp.source.sha256", encode(Strings{}), invalid, {"1 to 1024", "array of 0 string"}},
      {"kipp.source.sha256", encode(Strings{"a:" + hash, hash}), invalid, {"element 1", "<file>"}},
      {"kipp.source.sha256", encode(Strings{":" + hash}), invalid, {"element 0"}},
      {"kipp.source.sha256", encode(Strings{"a:" + hash + "0"}), invalid, {"element 0"}},
      {"kipp.source.sha256", encode(Strings{"a:A" + hash.substr(1)}), invalid, {"element 0", "hexadecimal"}},
      {"qwen3.block_count", encode(uint32_t{27}), invalid, {"u32 28", "u32 27"}},
      {"qwen3.attention.head_count_kv", encode(uint32_t{16}), invalid, {"u32 8", "u32 16"}},
      {"qwen3.rope.freq_base", encode(5e6F), invalid, {"f32 1000000", "f32 5000000"}},
      {"qwen3.rope.freq_base", encode(std::nanf("")), invalid, {"f32 nan"}},
      {"qwen3.attention.layer_norm_rms_epsilon", encode(1e-5F), invalid, {"1e-06", "1e-05"}},
      {"tokenizer.ggml.eos_token_id", encode(uint32_t{151643}), invalid, {"u32 151645", "u32 151643"}},
      {"tokenizer.ggml.add_bos_token", encode(true), invalid, {"bool false", "bool true"}},
      {"kipp.stop_token_ids", encode(std::vector<uint32_t>{151643}), invalid, {"[151645, 151643]", "[151643]"}},
      {"kipp.stop_token_ids", encode(std::vector<uint32_t>{}), invalid, {"[151645, 151643]", "[]"}},
      {"kipp.stop_token_ids", encode(std::vector<uint32_t>(17, 1)), invalid, {"at most 16", "array of 17 u32"}},
      {"kipp.sampling.temperature", encode(-0.5F), invalid, {"at least 0", "f32 -0.5"}},
      {"kipp.sampling.temperature", encode(std::numeric_limits<float>::infinity()), invalid, {"finite", "inf"}},
      {"kipp.sampling.temperature", encode(std::nanf("")), invalid, {"finite", "nan"}},
      {"kipp.sampling.top_k", encode(uint32_t{151937}), invalid, {"at most 151936", "u32 151937"}},
      {"kipp.sampling.top_p", encode(0.0F), invalid, {"above 0", "f32 0"}},
      {"kipp.sampling.top_p", encode(1.5F), invalid, {"at most 1", "f32 1.5"}},
      {"kipp.sampling.top_p", encode(std::nanf("")), invalid, {"above 0", "nan"}},
  };
  for (const ValueCase& test : cases) {
    FileImage image = valid_;
    image.set(test.key, test.value);
    SCOPED_TRACE(test.key);
    expect_rejected(image, test.code, test.parts);
  }
}

TEST(Twins, NamesAndRevisions) {
  const FileImage valid = valid_image({.id = "qwen3-0.6b", .twin_layers = 3});
  ASSERT_TRUE(open_image(valid));
  for (const char* repository :
       {"synthetic/", "synthetic/qwen3-4b", "synthetic/qwen3-0.6b-", "synthetic/qwen3-0.6b-layers",
        "synthetic/qwen3-0.6b-0layers", "synthetic/qwen3-0.6b-28layers", "synthetic/qwen3-0.6b-03layers",
        "synthetic/qwen3-0.6b--3layers", "synthetic/qwen3-0.6b-3layers ", "synthetic/qwen3-0.6b-3 layers",
        "synthetic/qwen3-0.6b-99999999999999999999layers", "synthetic/qwen3-0.6b-base"}) {
    SCOPED_TRACE(repository);
    FileImage image = valid;
    image.set("kipp.source.repository", encode(repository));
    expect_rejected(image, ErrorCode::kInvalidArtifact,
                    {"kipp.source.repository", "synthetic/qwen3-0.6b-<1 to 27>layers", repository});
  }
  for (const char* revision : {"recipe1-seed", "recipe1-seed-1", "recipe1-seed01", "recipe1-seed7x", "recipe2-seed7",
                               "c1899de289a04d12100db370d81485cdf75e47ca"}) {
    SCOPED_TRACE(revision);
    FileImage image = valid;
    image.set("kipp.source.revision", encode(revision));
    expect_rejected(image, ErrorCode::kInvalidArtifact, {"kipp.source.revision", "recipe1-seed<seed>", revision});
  }
}

TEST(Twins, NameAndLayersMustAgree) {
  FileImage image = valid_image({.id = "qwen3-0.6b", .twin_layers = 3});
  image.set("kipp.source.repository", encode("synthetic/qwen3-0.6b-4layers"));
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"qwen3.block_count", "u32 4", "u32 3"});
  image.set("kipp.source.repository", encode("synthetic/qwen3-0.6b"));
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"qwen3.block_count", "u32 28", "u32 3"});
}

TEST(Twins, CarryNoChatTemplate) {
  FileImage image = valid_image({.id = "qwen3-0.6b", .twin_layers = 3});
  image.set("tokenizer.chat_template", encode("{{ messages }}"));
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"tokenizer.chat_template", "synthetic twin"});
}

// A pinned checkpoint's file cannot be passed off as its twin, nor with a few layers less.
TEST(Twins, AreNotTheRealThing) {
  FileImage image = valid_image({.id = "qwen3-0.6b", .twin_layers = 28});
  image.set("kipp.source.repository", encode("Qwen/Qwen3-0.6B"));
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"kipp.source.revision", "recipe1-seed7"});
  image.set("kipp.source.revision", encode("c1899de289a04d12100db370d81485cdf75e47ca"));
  EXPECT_TRUE(open_image(image, false));
}

TEST(Base, StopsOnEndOfText) {
  FileImage image = valid_image({.id = "qwen3-0.6b-base"});
  image.set("tokenizer.ggml.eos_token_id", encode(uint32_t{151645}));
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"tokenizer.ggml.eos_token_id", "u32 151643", "u32 151645"});
  image = valid_image({.id = "qwen3-0.6b-base"});
  image.set("kipp.stop_token_ids", encode(std::vector<uint32_t>{151645, 151643}));
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"kipp.stop_token_ids", "[151643]", "[151645, 151643]"});
}

}  // namespace
}  // namespace kipp::gguf
