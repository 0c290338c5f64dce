// Backends by name, and options that they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/backend.h"

namespace kipp {
namespace {

using testing::_;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Pair;

TEST(LoaderTest, TheOracleIsAlwaysThere) {
  EXPECT_THAT(available_backends(), Contains("oracle"));
  const auto backend = create_backend("oracle", {});
  ASSERT_TRUE(backend) << backend.error().message;
  EXPECT_STREQ((*backend)->operators().backend, "oracle");
  EXPECT_EQ((*backend)->report().backend, "oracle");
  EXPECT_THAT((*backend)->report().kernels, Each(Pair(_, 0U)));  // every class is listed before it runs
  EXPECT_THAT((*backend)->report().kernels, Contains(Pair("stateless_attention", 0U)));
}

TEST(LoaderTest, AnUnknownNameListsWhatThereIs) {
  const auto backend = create_backend("abacus", {});
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(backend.error().message, HasSubstr("\"abacus\""));
  EXPECT_THAT(backend.error().message, HasSubstr("oracle"));
}

TEST(LoaderTest, OptionsOutOfRangeAreRefused) {
  for (const BackendOptions& options :
       {BackendOptions{.num_threads = -1}, BackendOptions{.num_threads = 1 << 20}, BackendOptions{.device = 1}}) {
    const auto backend = create_backend("oracle", options);
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(LoaderTest, NothingRunsBeforeAModelIsLoaded) {
  auto backend = *create_backend("oracle", {.num_threads = 1});
  KvBlock block;
  EXPECT_FALSE(backend->forward({}));
  EXPECT_FALSE(backend->logits(1, 0, {}));
  EXPECT_FALSE(backend->read_block(0, block));
  EXPECT_FALSE(backend->write_block(0, block));
  EXPECT_FALSE(backend->copy_blocks({}, {}));
  EXPECT_FALSE(backend->evaluate_stateless({}, {}));
}

}  // namespace
}  // namespace kipp
