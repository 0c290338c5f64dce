// Backends by name, linked in or in a shared object, and options that they refuse.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <vector>

#include "backend/backend.h"
#include "backend/backend_machine.h"

namespace kipp {
namespace {

using testing::_;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
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

TEST(LoaderTest, TheLimitsAreThoseOfWhatTheBackendRunsOn) {
  const std::vector<std::byte> artifact(size_t{1} << 20, std::byte{1});
  for (const char* name : {"cpu", "oracle"}) {
    EXPECT_FALSE(uploads_weights(name));
    const auto probe = create_limit_probe(name, {.num_threads = 1, .isa = "baseline"}, artifact);
    ASSERT_TRUE(probe) << probe.error().message;
    EXPECT_EQ((*probe)->facts().fields.find("isa")->as_string(), "baseline");
    EXPECT_EQ((*probe)->facts().mapped_bytes, artifact.size());
    EXPECT_FALSE((*probe)->facts().has_memory);
    const auto limits = (*probe)->measure();
    ASSERT_TRUE(limits) << limits.error().message;
    ASSERT_EQ(limits->reads.size(), 2U);
    EXPECT_EQ(limits->reads.back().key, "mapped");  // the way by which weights are read comes last
    EXPECT_GT(limits->reads.back().per_second, 0);
    EXPECT_EQ(limits->products.at(limits->matrix).name, "FP32");
  }
}

TEST(LoaderTest, LimitsOfAnUnknownBackendOrOptionsOutOfRange) {
  EXPECT_TRUE(uploads_weights("cuda"));
  const auto unknown = create_limit_probe("abacus", {}, {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  const auto device = create_limit_probe("oracle", {.device = 1}, {});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument);
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

// A folder that KIPP_BACKENDS names, and what is said of the object in it.
class SharedObjectTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* before = std::getenv(kVariable)) before_ = before;
    folder_ = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    setenv(kVariable, folder_.c_str(), 1);
  }
  void TearDown() override {
    before_ ? setenv(kVariable, before_->c_str(), 1) : unsetenv(kVariable);
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path object() const { return folder_ / "libkipp_backend_cuda.so"; }

  static void expect_error(const BackendOptions& options, ErrorCode code, const auto& message) {
    const auto backend = create_backend("cuda", options);
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, code);
    EXPECT_THAT(backend.error().message, message);
  }

  static constexpr const char* kVariable = "KIPP_BACKENDS";
  std::filesystem::path folder_;
  std::optional<std::string> before_;
};

TEST_F(SharedObjectTest, AMissingOneIsNotFoundWithThePlaceAndWhatThereIs) {
  EXPECT_THAT(available_backends(), Not(Contains("cuda")));
  expect_error({}, ErrorCode::kNotFound, AllOf(HasSubstr("\"cuda\""), HasSubstr(object()), HasSubstr("cpu, oracle")));
}

TEST_F(SharedObjectTest, OneThatCannotBeLoadedSaysWhy) {
  std::ofstream(object()) << "not an object\n";
  EXPECT_THAT(available_backends(), Contains("cuda"));
  expect_error({}, ErrorCode::kUnsupported, AllOf(HasSubstr("\"cuda\" cannot be loaded"), HasSubstr(object())));
}

TEST_F(SharedObjectTest, AFolderOfItsNameCannotBeLoaded) {
  std::filesystem::create_directory(object());
  expect_error({}, ErrorCode::kUnsupported, AllOf(HasSubstr("cannot be loaded"), HasSubstr(object())));
}

TEST_F(SharedObjectTest, OneWithoutTheSymbolIsNoBackend) {
  std::filesystem::copy_file(KIPP_OBJECT_WITHOUT_SYMBOL, object());
  expect_error({}, ErrorCode::kUnsupported, AllOf(HasSubstr(object()), HasSubstr("no symbol kipp_create_backend")));
}

TEST_F(SharedObjectTest, ItsErrorsAndTheOptionsPass) {
  std::filesystem::copy_file(KIPP_OBJECT_THAT_REFUSES, object());
  expect_error({.device = 3}, ErrorCode::kUnsupported, HasSubstr("refused: device 3"));
}

}  // namespace
}  // namespace kipp
