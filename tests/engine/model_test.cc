// Opening a model: defaults, refusals.
#include <gmock/gmock.h>

#include "backend/backend.h"
#include "engine/twin.h"
#include "gguf/model_file.h"

namespace kipp {
namespace {

using testing::HasSubstr;

void expect_refused(const ModelOptions& options, ErrorCode code, const char* message) {
  const auto model = Model::open(KIPP_TWIN_ARTIFACT, options);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, code) << model.error().message;
  EXPECT_THAT(model.error().message, HasSubstr(message));
}

ModelOptions with(void (*change)(ModelOptions&)) {
  ModelOptions options = twin_options();
  change(options);
  return options;
}

TEST(ModelTest, KnowsWhatItOpened) {
  const auto model = open_twin();
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->info().checkpoint->id, "kipp-demo");
  EXPECT_EQ(model->info().dimensions.num_layers, 2);
  EXPECT_TRUE(model->info().synthetic);
  EXPECT_EQ(model->tokenizer().num_tokens(), kNumTokens);
  EXPECT_EQ(model->context(), 512);
  EXPECT_EQ(model->num_free_blocks(), 16);
}

TEST(ModelTest, TheDefaultContextIsTheCheckpointsUpToFourThousand) {
  const auto model = open_twin(with([](ModelOptions& options) { options.context = 0; }));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->context(), 2048);
  EXPECT_EQ(model->num_free_blocks(), 64);
}

TEST(ModelTest, NothingIsOpenedSilently) {
  expect_refused(with([](ModelOptions& o) { o.allow_synthetic = false; }), ErrorCode::kUnsupported, "synthetic");
  expect_refused(with([](ModelOptions& o) { o.backend = "abacus"; }), ErrorCode::kNotFound, "abacus");
  expect_refused(with([](ModelOptions& o) { o.context = 2049; }), ErrorCode::kCapacity, "2049");
  expect_refused(with([](ModelOptions& o) { o.context = -1; }), ErrorCode::kInvalidArgument, "context");
  expect_refused(with([](ModelOptions& o) { o.num_blocks = -1; }), ErrorCode::kInvalidArgument, "num_blocks");
  expect_refused(with([](ModelOptions& o) { o.num_threads = -1; }), ErrorCode::kInvalidArgument, "threads");
}

TEST(ModelTest, APoolThatDoesNotFitIsRefusedWithTheNumbers) {
  expect_refused(with([](ModelOptions& o) { o.num_blocks = 2147483647; }), ErrorCode::kCapacity,
                 "2147483647 KV blocks");
}

TEST(ModelTest, AMissingArtifactIsNotFound) {
  const auto model = Model::open("no-such-artifact.gguf", twin_options());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace kipp
