// Valid artifacts of every registry entry and scheme, real and synthetic, and what ModelFile says about them.
#include "gguf/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/sha256.h"
#include "gguf/gguf_builder.h"
#include "gguf/rejection.h"

namespace kipp::gguf {
namespace {

constexpr QuantScheme kAllSchemes[] = {QuantScheme::kBf16, QuantScheme::kQ8_0, QuantScheme::kAffine4Gs32};

TEST(ModelFile, OpensEveryRegistryEntryInEveryScheme) {
  for (const Checkpoint& entry : kCheckpoints) {
    for (const QuantScheme scheme : kAllSchemes) {
      SCOPED_TRACE(std::string(entry.id) + " " + scheme_name(scheme));
      const auto model = open_image(valid_image({.id = entry.id, .scheme = scheme}), false);
      ASSERT_TRUE(model) << model.error().message;
      const ArtifactInfo& info = model->info();
      EXPECT_EQ(info.checkpoint, &entry);
      EXPECT_EQ(info.scheme, scheme);
      EXPECT_EQ(info.source_repository, entry.repository);
      EXPECT_EQ(info.source_revision, entry.revision);
      EXPECT_FALSE(info.synthetic);
      EXPECT_EQ(info.dimensions.num_layers, entry.num_layers);
      EXPECT_EQ(info.dimensions.hidden, entry.hidden);
      EXPECT_EQ(info.isolates_think_tokens, entry.isolates_think_tokens);
      EXPECT_EQ(info.num_tokens(), entry.variant == Variant::kBase ? 151665 : 151669);
      EXPECT_EQ(info.chat_template.has_value(), entry.variant != Variant::kBase);
      EXPECT_EQ(info.stop_token_ids, entry.variant == Variant::kBase ? (std::vector<int32_t>{151643})
                                                                     : (std::vector<int32_t>{151645, 151643}));
    }
  }
}

// What may be sampled follows the tokenizer as it was converted, not the registry: the same rule as
// Tokenizer::num_tokens.
TEST(ModelFile, NumTokensIsOneAboveTheLastThatHasAToken) {
  for (const bool isolates : {false, true}) {
    const auto model = open_image(valid_image({.isolates_think_tokens = isolates}), false);
    ASSERT_TRUE(model) << model.error().message;
    const auto& types = model->tokenizer().types;
    const auto last = std::find_if(types.rbegin(), types.rend(), [](TokenType t) { return t != TokenType::kUnused; });
    EXPECT_EQ(model->info().num_tokens(), types.rend() - last);
  }
}

TEST(ModelFile, ExposesWhatWasRecorded) {
  const auto model = open_image(valid_image({}), false);
  ASSERT_TRUE(model) << model.error().message;
  const ArtifactInfo& info = model->info();
  EXPECT_EQ(info.chat_template, "{{ messages }}");
  EXPECT_EQ(info.sampling.temperature, 0.6F);
  EXPECT_EQ(info.sampling.top_k, 20U);
  EXPECT_EQ(info.sampling.top_p, 0.95F);
  EXPECT_THAT(info.source_sha256,
              testing::ElementsAre("config.json:" + std::string(64, 'a'), "model.safetensors:" + std::string(64, '0')));
  const TokenizerSource& tokenizer = model->tokenizer();
  ASSERT_EQ(tokenizer.tokens.size(), 151936U);
  ASSERT_EQ(tokenizer.types.size(), 151936U);
  ASSERT_EQ(tokenizer.merges.size(), 151387U);
  EXPECT_EQ(tokenizer.tokens[255], "tff");
  EXPECT_EQ(tokenizer.tokens[151667], "<think>");
  EXPECT_EQ(tokenizer.tokens[151935], "[PAD151935]");
  EXPECT_EQ(tokenizer.types[151642], TokenType::kNormal);
  EXPECT_EQ(tokenizer.types[151656], TokenType::kControl);
  EXPECT_EQ(tokenizer.types[151657], TokenType::kUserDefined);
  EXPECT_EQ(tokenizer.types[151669], TokenType::kUnused);
  EXPECT_EQ(tokenizer.merges[151386], "t24f5a u");
}

TEST(ModelFile, ViewsPointAtTheDataOfTheirTensor) {
  TemporaryFile file;
  const FileImage image = valid_image({.scheme = QuantScheme::kQ8_0});
  file.write_image(image);
  const auto model = ModelFile::open(file.path(), {});
  ASSERT_TRUE(model) << model.error().message;
  const uint64_t data_offset = image.padded_header().size();
  const WeightView& down = model->weights().layers[7].down_projection;
  EXPECT_EQ(down.offset, data_offset + image.tensors[88].offset);
  EXPECT_EQ(image.tensors[88].name, "blk.7.ffn_down.weight");
  EXPECT_EQ(down.rows, 192);
  EXPECT_EQ(down.columns, 512);
  EXPECT_EQ(down.type, WeightType::kQ8_0);
  EXPECT_EQ(down.bytes, 192U * 512 / 32 * 34);
  EXPECT_EQ(down.offset % 128, 0U);
  const WeightView& norm = model->weights().output_norm;
  EXPECT_EQ(norm.offset + norm.bytes, model->bytes().size());
  EXPECT_EQ(model->path(), file.path());
}

TEST(ModelFile, ViewsStayValidWhenTheModelIsMoved) {
  auto model = open_image(valid_image({}));
  ASSERT_TRUE(model) << model.error().message;
  const ModelFile moved = std::move(*model);
  EXPECT_EQ(moved.tokenizer().tokens[151645], "<|im_end|>");
  EXPECT_GT(moved.bytes().size(), 151936U * 192 * 2);
}

TEST(ModelFile, HeaderHashCoversTheHeaderAndNothingElse) {
  TemporaryFile file;
  const FileImage image = valid_image({});
  file.write_image(image);
  const auto model = ModelFile::open(file.path(), {});
  ASSERT_TRUE(model) << model.error().message;
  const std::string header = image.header();
  EXPECT_EQ(model->header_sha256(), sha256_hex(std::as_bytes(std::span(header))));
}

TEST(ModelFile, TiedHeadIsTheEmbeddingAndUntiedIsNot) {
  const auto tied = open_image(valid_image({.id = "qwen3-0.6b-base"}));
  ASSERT_TRUE(tied) << tied.error().message;
  EXPECT_EQ(tied->weights().output_head.offset, tied->weights().token_embedding.offset);
  const auto untied = open_image(valid_image({.id = "qwen3-8b-base"}));
  ASSERT_TRUE(untied) << untied.error().message;
  EXPECT_NE(untied->weights().output_head.offset, untied->weights().token_embedding.offset);
  EXPECT_EQ(untied->weights().output_head.bytes, 151936U * 4096 * 2);
}

// The converter's option may give a checkpoint the other treatment of the think tokens.
TEST(ModelFile, ExposesEitherTreatmentOfThinkTokens) {
  for (const bool isolates : {false, true}) {
    for (const std::string_view id : {"qwen3-0.6b-base", "kipp-demo"}) {
      const auto model = open_image(valid_image({.id = id, .isolates_think_tokens = isolates}));
      ASSERT_TRUE(model) << model.error().message;
      EXPECT_EQ(model->info().isolates_think_tokens, isolates);
      EXPECT_EQ(model->tokenizer().types[151667], isolates ? TokenType::kUserDefined : TokenType::kUnused);
      EXPECT_EQ(model->tokenizer().tokens[151667], isolates ? "<think>" : "[PAD151667]");
    }
  }
}

TEST(ModelFile, TwinsNeedTheOption) {
  for (const int32_t layers : {1, 3, 28}) {
    const FileImage image = valid_image({.id = "qwen3-0.6b", .twin_layers = layers});
    const auto refused = open_image(image, false);
    ASSERT_FALSE(refused);
    expect_message(refused.error(), ErrorCode::kUnsupported,
                   {"kipp.source.repository", "synthetic", "Qwen/Qwen3-0.6B"});
    const auto accepted = open_image(image, true);
    ASSERT_TRUE(accepted) << accepted.error().message;
    EXPECT_TRUE(accepted->info().synthetic);
    EXPECT_EQ(accepted->info().dimensions.num_layers, layers);
    EXPECT_EQ(accepted->weights().layers.size(), static_cast<size_t>(layers));
    EXPECT_EQ(accepted->info().source_revision, "recipe1-seed7");
    EXPECT_EQ(accepted->info().chat_template, std::nullopt);
  }
}

TEST(ModelFile, TensorEntriesAndDataMayComeInAnyOrder) {
  FileImage image = valid_image({.twin_layers = 1});
  std::reverse(image.tensors.begin(), image.tensors.end());
  EXPECT_TRUE(open_image(image));
  // Now the data too: reversed in place.
  std::vector<uint64_t> sizes;
  uint64_t end = image.data_bytes;
  for (const TensorEntry& tensor : image.tensors) {
    sizes.push_back(end - tensor.offset);
    end = tensor.offset;
  }
  uint64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    image.tensors[i].offset = offset;
    offset += sizes[i];
  }
  const auto model = open_image(image);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_GT(model->weights().token_embedding.offset, model->weights().output_norm.offset);
}

TEST(ModelFile, OptionalKeysMayBeAbsent) {
  for (const char* key :
       {"kipp.sampling.temperature", "kipp.sampling.top_k", "kipp.sampling.top_p", "tokenizer.chat_template"}) {
    FileImage image = valid_image({});
    image.remove(key);
    const auto model = open_image(image);
    EXPECT_TRUE(model) << key << ": " << model.error().message;
  }
}

TEST(ModelFile, MissingFileAndFolder) {
  TemporaryFile file;
  const auto missing = ModelFile::open(file.path(), {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, testing::HasSubstr(file.path().string()));
  const auto folder = ModelFile::open(file.path().parent_path(), {});
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
}

TEST(ModelFile, ErrorsNameTheFile) {
  TemporaryFile file;
  file.write("GGUX");
  const auto model = ModelFile::open(file.path(), {});
  ASSERT_FALSE(model);
  expect_message(model.error(), ErrorCode::kInvalidArtifact, {file.path().string(), "magic", "\"GGUF\"", "\"GGUX\""});
}

TEST(SchemeName, NamesAllSchemes) {
  EXPECT_STREQ(scheme_name(QuantScheme::kBf16), "bf16");
  EXPECT_STREQ(scheme_name(QuantScheme::kQ8_0), "q8_0");
  EXPECT_STREQ(scheme_name(QuantScheme::kAffine4Gs32), "affine4_gs32");
}

}  // namespace
}  // namespace kipp::gguf
