// Seeded faults: nothing of them in an ordinary build; in a seeded-fault build a wrong name cannot pass for a fault.
#include "base/seeded_fault.h"

#include <gtest/gtest.h>

namespace kipp {
namespace {

#ifdef KIPP_SEEDED_FAULTS

TEST(SeededFaultTest, ANameIsItsFault) {
  EXPECT_EQ(fault_named("block_read_off_by_one"), Fault::kBlockReadOffByOne);
  EXPECT_EQ(fault_named("stop_token_missed"), Fault::kStopTokenMissed);
  EXPECT_EQ(fault_named(nullptr), Fault::kNone);
}

TEST(SeededFaultDeathTest, AnUnknownNameEndsTheProcessWithTheKnownOnes) {
  EXPECT_DEATH(fault_named("no_such_fault"), "no fault \"no_such_fault\"(.|\n)*block_read_off_by_one(.|\n)*stop_token");
  EXPECT_DEATH(fault_named(""), "there is no fault");
}

#else

#define KIPP_IS_NOT_PLANTED(enumerator, name, what) static_assert(!seeded(Fault::enumerator));
KIPP_SEEDED_FAULT_LIST(KIPP_IS_NOT_PLANTED)
#undef KIPP_IS_NOT_PLANTED

TEST(SeededFaultTest, NothingIsPlantedInAnOrdinaryBuild) {
  EXPECT_FALSE(seeded(Fault::kNone));  // not even "no fault" asks the environment
}

#endif

}  // namespace
}  // namespace kipp
