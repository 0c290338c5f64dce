// A valid file, and the same broken in one way at a time.
#include "gates/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gates/vector_writer.h"

namespace kipp::gates {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Safetensors : public ::testing::Test {
 protected:
  Result<SafetensorsFile> open(const std::string& content) {
    return SafetensorsFile::open(folder_.write("x.safetensors", content));
  }
  Result<SafetensorsFile> open_header(const std::string& header, size_t num_data_bytes) {
    return open(safetensors_text(header, std::string(num_data_bytes, '\0')));
  }
  void expect_refused(const std::string& header, size_t num_data_bytes, const char* reason) {
    const auto file = open_header(header, num_data_bytes);
    ASSERT_FALSE(file.has_value()) << header;
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidArtifact);
    EXPECT_THAT(file.error().message, HasSubstr(reason));
  }

  TemporaryFolder folder_;
};

TEST_F(Safetensors, ReadsWhatWasWritten) {
  const auto file = open(
      safetensors_text({{"a", f32({2, 2}, {1.0F, 2.0F, 3.0F, -4.0F})}, {"b", i32({7, -8})}, {"c", f32({0, 5}, {})}}));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_THAT(*file->floats("a", {2, 2}), ElementsAre(1.0F, 2.0F, 3.0F, -4.0F));
  EXPECT_THAT(*file->integers("b", {-1}), ElementsAre(7, -8));
  EXPECT_THAT(*file->floats("c", {0, 5}), IsEmpty());
  EXPECT_TRUE(file->contains("a"));
  EXPECT_FALSE(file->contains("d"));
}

TEST_F(Safetensors, IgnoresItsMetadata) {
  EXPECT_TRUE(
      open_header(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", 4));
}

TEST_F(Safetensors, NamesWhatDoesNotFit) {
  const auto file = open(safetensors_text({{"a", f32({2, 2}, {1.0F, 2.0F, 3.0F, -4.0F})}}));
  ASSERT_TRUE(file.has_value());
  EXPECT_THAT(file->floats("b", {1}).error().message, HasSubstr("tensor b: missing"));
  EXPECT_THAT(file->floats("a", {4}).error().message, HasSubstr("expected F32 [4] (-1: any length), found F32 [2, 2]"));
  EXPECT_THAT(file->floats("a", {2, 3}).error().message, HasSubstr("[2, 3]"));
  EXPECT_THAT(file->integers("a", {2, 2}).error().message, HasSubstr("I32"));
}

TEST_F(Safetensors, RefusesBrokenHeaders) {
  expect_refused("[]", 0, "expected an object");
  expect_refused("{", 0, "header");
  expect_refused(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "found 'F64'");
  expect_refused(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "expected dtype, shape and data_offsets");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "only");
  expect_refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "no size");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "no size");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}})", 4, "no size");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4, "no size");
  expect_refused(R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,4]}})", 4, "tensor a");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "takes 8 bytes");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4, "ascending offsets");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "ascending offsets");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "ascending offsets");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":["0",4]}})", 4, "ascending offsets");
}

TEST_F(Safetensors, RefusesGapsOverlapsAndTrailingBytes) {
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "expected the next tensor");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "the file at");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                    "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                 12, "expected the next tensor");
}

TEST_F(Safetensors, RefusesLengthsBeyondTheFile) {
  const std::string valid = safetensors_text({{"a", i32({1, 2})}});
  for (size_t length = 1; length < valid.size(); ++length) {
    EXPECT_FALSE(open(valid.substr(0, length)).has_value()) << length;
  }
  std::string huge = valid;
  huge[7] = '\x7f';
  EXPECT_THAT(open(huge).error().message, HasSubstr("header length"));
}

}  // namespace
}  // namespace kipp::gates
