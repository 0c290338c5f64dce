// Choosing an instruction set: by machine, by option, by environment variable; and proof of which one runs.
#include "backend/cpu/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/backend.h"

namespace kipp::cpu {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class IsaTest : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("KIPP_CPU_ISA"); }
  void TearDown() override { ::unsetenv("KIPP_CPU_ISA"); }

  static std::string running(const BackendOptions& options) {
    const auto backend = create_backend("cpu", options);
    return backend ? (*backend)->report().backend : backend.error().message;
  }
};

TEST_F(IsaTest, EveryMachineHasTheBaselineFirst) {
  ASSERT_FALSE(supported_isas().empty());
  EXPECT_EQ(supported_isas().front(), "baseline");
}

TEST_F(IsaTest, AnOptionForcesOne) {
  for (const std::string_view isa : supported_isas()) {
    EXPECT_EQ(running({.num_threads = 1, .isa = std::string(isa)}), "cpu/" + std::string(isa));
  }
}

TEST_F(IsaTest, TheEnvironmentForcesOneUnlessAnOptionDoes) {
  ::setenv("KIPP_CPU_ISA", "baseline", 1);
  EXPECT_EQ(running({.num_threads = 1}), "cpu/baseline");
  const std::string last(supported_isas().back());
  EXPECT_EQ(running({.num_threads = 1, .isa = last}), "cpu/" + last);
}

TEST_F(IsaTest, WithoutAChoiceItIsOneOfTheMachines) {
  const auto chosen = choose_kernels("");
  ASSERT_TRUE(chosen.has_value());
  EXPECT_THAT(supported_isas(), Contains((*chosen)->isa));
}

TEST_F(IsaTest, AnUnknownNameIsRefusedWithThoseThatWouldDo) {
  ::setenv("KIPP_CPU_ISA", "avx3", 1);
  const auto backend = create_backend("cpu", {.num_threads = 1});
  ASSERT_FALSE(backend.has_value());
  EXPECT_EQ(backend.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(backend.error().message, AllOf(HasSubstr("KIPP_CPU_ISA"), HasSubstr("\"avx3\""), HasSubstr("baseline")));
}

TEST_F(IsaTest, TheKernelClassesNameTheArithmetic) {
  const auto classes = [](std::string_view isa) {
    const Kernels& kernels = **choose_kernels(isa);
    return std::vector<std::string>{kernels.matmul[0][0].name, kernels.matmul[1][0].name, kernels.matmul[2][0].name};
  };
  EXPECT_THAT(classes("baseline"), ElementsAre("matmul_bf16_fp32", "matmul_q8_0_int16", "matmul_affine4_gs32_int16"));
  for (const std::string_view isa : supported_isas()) {
    EXPECT_THAT(classes(isa),
                ElementsAre(StartsWith("matmul_bf16"), StartsWith("matmul_q8_0"), StartsWith("matmul_affine4_gs32")));
  }
}

}  // namespace
}  // namespace kipp::cpu
