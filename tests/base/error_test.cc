// Names of error codes.
#include "kipp/error.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kipp {
namespace {

TEST(ErrorCodeName, IsSnakeCaseAndEachItsOwn) {
  EXPECT_STREQ(error_code_name(ErrorCode::kInvalidArgument), "invalid_argument");
  std::set<std::string> names;
  for (const ErrorCode code :
       {ErrorCode::kInvalidArgument, ErrorCode::kInvalidArtifact, ErrorCode::kNotFound, ErrorCode::kIo,
        ErrorCode::kUnsupported, ErrorCode::kCapacity, ErrorCode::kNumerical, ErrorCode::kInternal}) {
    const std::string name = error_code_name(code);
    EXPECT_THAT(name, ::testing::MatchesRegex("[a-z_]+"));
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

}  // namespace
}  // namespace kipp
