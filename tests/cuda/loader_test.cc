// The CUDA backend's shared object by its name: it loads, and where there is no GPU it says what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/backend.h"

namespace kipp {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

class CudaLoaderTest : public testing::Test {
 protected:
  void SetUp() override { setenv("KIPP_BACKENDS", KIPP_BACKENDS_FOLDER, 1); }
};

TEST_F(CudaLoaderTest, ItIsAvailableWhereItsObjectIs) {
  EXPECT_THAT(available_backends(), Contains("cuda"));
}

TEST_F(CudaLoaderTest, WithoutAGpuItSaysWhatIsMissing) {
  const auto backend = create_backend("cuda", {});
  if (backend) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(backend.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(backend.error().message, AllOf(HasSubstr("no GPU"), HasSubstr("driver")));
}

TEST_F(CudaLoaderTest, ADeviceThatIsNotThereIsRefused) {
  for (const int32_t device : {-1, 1000}) EXPECT_FALSE(create_backend("cuda", {.device = device}));
}

TEST_F(CudaLoaderTest, KAndVInFp32AreRefusedBeforeAGpuIsLookedFor) {
  const auto backend = create_backend("cuda", {.round_kv = false});
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(backend.error().message, HasSubstr("round_kv"));
}

}  // namespace
}  // namespace kipp
