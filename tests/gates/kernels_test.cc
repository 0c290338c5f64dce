// A gate fails for a kernel class that the backend has and that never ran.
#include "gates/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kipp::gates {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

OperatorTable two_operators() {
  OperatorTable operators = {};
  operators.backend = "abacus";
  operators.matmul = [](const MatmulArgs&) {};
  operators.rope = [](const RopeArgs&) {};
  return operators;
}

std::vector<std::string> failures_of(const std::vector<Report>& reports, Unreachable unreachable = {},
                                     QuantScheme scheme = QuantScheme::kBf16) {
  PhaseRecord record;
  check_kernels(reports, two_operators(), scheme, unreachable, record);
  return record.failures;
}

TEST(CheckKernels, PassesIfEveryClassRan) {
  EXPECT_THAT(failures_of({{"abacus", {{"matmul_wide", 3}, {"matmul_tall", 1}, {"rope", 2}}}}), IsEmpty());
}

// Another class of the same operator does not stand in for it.
TEST(CheckKernels, NoticesAClassThatNeverRan) {
  EXPECT_THAT(failures_of({{"abacus", {{"matmul_wide", 3}, {"matmul_tall", 0}, {"rope", 2}}}}),
              ElementsAre(HasSubstr("matmul_tall, which never ran")));
}

TEST(CheckKernels, AddsUpTheModelsOfAGate) {
  const Report first{"abacus", {{"matmul", 3}, {"rope", 0}}};
  const Report second{"abacus", {{"matmul", 0}, {"rope", 1}}};
  EXPECT_THAT(failures_of({first, second}), IsEmpty());
  PhaseRecord record;
  check_kernels(std::vector{first, second}, two_operators(), QuantScheme::kBf16, {}, record);
  EXPECT_EQ(record.details.find("kernels")->find("matmul")->as_int64(), 3);
}

TEST(CheckKernels, ExcusesOnlyWhatIsNamed) {
  const std::vector<Report> reports = {{"abacus", {{"matmul", 3}, {"rope", 1}, {"spare", 0}, {"spare_wide", 0}}}};
  constexpr std::string_view kSpare[] = {"spare"};
  EXPECT_THAT(failures_of(reports, kSpare), ElementsAre(HasSubstr("spare_wide")));
}

TEST(CheckKernels, ExpectsTheClassesOfTheArtifactsSchemeOnly) {
  const auto failures = [](QuantScheme scheme, uint64_t bf16, uint64_t q8_0, uint64_t affine4) {
    return failures_of(
        {{"abacus",
          {{"matmul_bf16", bf16}, {"matmul_q8_0_tall", q8_0}, {"matmul_affine4_gs32", affine4}, {"rope", 1}}}},
        {}, scheme);
  };
  EXPECT_THAT(failures(QuantScheme::kBf16, 8, 0, 0), IsEmpty());
  EXPECT_THAT(failures(QuantScheme::kQ8_0, 1, 7, 0), IsEmpty());
  EXPECT_THAT(failures(QuantScheme::kAffine4Gs32, 1, 0, 7), IsEmpty());
  EXPECT_THAT(failures(QuantScheme::kQ8_0, 8, 0, 0), ElementsAre(HasSubstr("matmul_q8_0_tall, which never ran")));
  EXPECT_THAT(failures(QuantScheme::kQ8_0, 0, 8, 0), ElementsAre(HasSubstr("matmul_bf16, which never ran")));
  EXPECT_THAT(failures(QuantScheme::kBf16, 8, 0, 1),
              ElementsAre(HasSubstr("ran the kernel class matmul_affine4_gs32, but the artifact's scheme is bf16")));
}

TEST(CheckKernels, KnowsASchemeByItsWholeNameAndNotByThePoolsType) {
  EXPECT_FALSE(is_reachable("matmul_q8_0", QuantScheme::kBf16));
  EXPECT_FALSE(is_reachable("fused_q8_0_swiglu", QuantScheme::kAffine4Gs32));
  EXPECT_TRUE(is_reachable("matmul_q8_0", QuantScheme::kQ8_0));
  EXPECT_TRUE(is_reachable("matmul_q8_01", QuantScheme::kBf16));
  EXPECT_TRUE(is_reachable("matmulq8_0", QuantScheme::kBf16));
  EXPECT_TRUE(is_reachable("attention_q8_0", QuantScheme::kBf16));
  EXPECT_TRUE(is_reachable("kv_write_q8_0", QuantScheme::kBf16));
}

TEST(CheckKernels, NoticesAnOperatorWithoutAClass) {
  EXPECT_THAT(failures_of({{"abacus", {{"matmulx", 3}, {"rope", 2}}}}), ElementsAre(HasSubstr("exports matmul")));
  EXPECT_EQ(failures_of({}).size(), 2U);
}

}  // namespace
}  // namespace kipp::gates
