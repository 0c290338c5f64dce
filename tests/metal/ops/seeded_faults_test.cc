// Every fault of seeded_faults.txt is noticed by its kernel's check, and as what it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "metal/emulation/signatures/fault.h"
#include "metal/ops/checks.h"

namespace kipp::metal_emulation {
namespace {

std::vector<SeededFault> all_faults() {
  std::ifstream file(KIPP_SOURCE_DIR "/tests/metal/ops/seeded_faults.txt");
  auto faults = read_faults(std::string(std::istreambuf_iterator<char>(file), {}));
  return faults ? *std::move(faults) : std::vector<SeededFault>{};
}

class MetalSeededFaultTest : public testing::TestWithParam<SeededFault> {};

TEST_P(MetalSeededFaultTest, IsNoticed) {
  const SeededFault& fault = GetParam();
  for (const NamedCheck& named : kChecks) {
    if (fault.check != named.name) continue;
    Check check(fault.name + "/");
    named.function(check);
    EXPECT_TRUE(check.has_failed()) << fault.name << " went unnoticed";
    EXPECT_THAT(check.failure(), testing::HasSubstr(fault.finding));
    return;
  }
  FAIL() << "there is no check " << fault.check;
}

INSTANTIATE_TEST_SUITE_P(Faults, MetalSeededFaultTest, testing::ValuesIn(all_faults()),
                         [](const auto& tested) { return tested.param.name; });

TEST(MetalSeededFaultsTest, CoverEveryCheck) {
  const std::vector<SeededFault> faults = all_faults();
  for (const NamedCheck& check : kChecks) {
    const std::string name = check.name;
    if (name == "residual_add" || name == "geometry") continue;  // one line each
    EXPECT_TRUE(std::ranges::any_of(faults, [&](const SeededFault& fault) { return fault.check == name; })) << name;
  }
}

}  // namespace
}  // namespace kipp::metal_emulation
