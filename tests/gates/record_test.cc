// A record says what was run on what, and its verdict is that of its phases.
#include "gates/record.h"

#include <gtest/gtest.h>

#include "gates/reference_twin.h"

namespace kipp::gates {
namespace {

TEST(Record, HoldsProvenanceAndVerdicts) {
  const GateInput input = twin_input();
  PhaseRecord good;
  good.name = "phase1";
  good.details.set("bound", Json::number(5e-5));
  PhaseRecord bad;
  bad.name = "phase2";
  bad.fail("hi", "a reason");
  const Provenance provenance{"1.2.3", "abc", "gcc", "Release", "2026-01-02T03:04:05Z"};
  EXPECT_TRUE(all_passed({good}));
  EXPECT_FALSE(all_passed({good, bad}));
  EXPECT_FALSE(all_passed({}));
  const Json record = make_record(input, {good, bad}, provenance);
  EXPECT_EQ(record.find("verdict")->as_string(), "failed");
  EXPECT_EQ(record.find("engine")->find("commit")->as_string(), "abc");
  EXPECT_EQ(record.find("artifact")->find("header_sha256")->as_string(), input.file.header_sha256());
  EXPECT_TRUE(record.find("artifact")->find("synthetic")->as_bool());
  EXPECT_EQ(record.find("vectors")->find("prompts")->items().size(), 2U);
  EXPECT_FALSE(record.find("machine")->find("processor")->as_string().empty());
  const auto& phases = record.find("phases")->items();
  ASSERT_EQ(phases.size(), 2U);
  EXPECT_EQ(phases[0].find("verdict")->as_string(), "passed");
  EXPECT_EQ(phases[1].find("failures")->items()[0].as_string(), "hi: a reason");
  EXPECT_EQ(write_json(make_record(input, {good}, provenance)).find("\"verdict\":\"failed\""), std::string::npos);
}

}  // namespace
}  // namespace kipp::gates
