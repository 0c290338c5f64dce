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

std::vector<std::string> failures_of(const std::vector<Report>& reports, Unreachable unreachable = {}) {
  PhaseRecord record;
  check_kernels(reports, two_operators(), unreachable, record);
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
  check_kernels(std::vector{first, second}, two_operators(), {}, record);
  EXPECT_EQ(record.details.find("kernels")->find("matmul")->as_int64(), 3);
}

TEST(CheckKernels, ExcusesOnlyWhatIsNamed) {
  const std::vector<Report> reports = {{"abacus", {{"matmul", 3}, {"rope", 1}, {"spare", 0}, {"spare_wide", 0}}}};
  constexpr std::string_view kSpare[] = {"spare"};
  EXPECT_THAT(failures_of(reports, kSpare), ElementsAre(HasSubstr("spare_wide")));
}

TEST(CheckKernels, NoticesAnOperatorWithoutAClass) {
  EXPECT_THAT(failures_of({{"abacus", {{"matmulx", 3}, {"rope", 2}}}}), ElementsAre(HasSubstr("exports matmul")));
  EXPECT_EQ(failures_of({}).size(), 2U);
}

}  // namespace
}  // namespace kipp::gates
