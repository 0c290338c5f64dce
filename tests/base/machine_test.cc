// Limits of control groups, read from small made-up file trees.
#include "base/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace kipp {
namespace {

namespace fs = std::filesystem;

class MachineTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("kipp-machine-" + std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(MachineTest, NoFilesMeanNoLimit) {
  EXPECT_FALSE(cgroup_processor_quota(root_));
  EXPECT_FALSE(cgroup_memory_left(root_));
}

TEST_F(MachineTest, VersionTwoTakesTheTightestOfTheGroupAndItsParents) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_FALSE(cgroup_processor_quota(root_));
  write("sys/fs/cgroup/outer/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_processor_quota(root_), 2.5);
  write("sys/fs/cgroup/outer/inner/cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_processor_quota(root_), 1.5);

  write("sys/fs/cgroup/outer/memory.max", "max\n");
  write("sys/fs/cgroup/outer/memory.current", "700\n");
  EXPECT_FALSE(cgroup_memory_left(root_));
  write("sys/fs/cgroup/outer/memory.max", "1000\n");
  EXPECT_EQ(cgroup_memory_left(root_), 300U);
  write("sys/fs/cgroup/outer/memory.stat", "anon 400\ninactive_file 100\nactive_file 50\n");
  EXPECT_EQ(cgroup_memory_left(root_), 450U);  // page cache gives way
  write("sys/fs/cgroup/outer/memory.current", "2000\n");
  EXPECT_EQ(cgroup_memory_left(root_), 0U);
}

TEST_F(MachineTest, InAContainerTheMountHoldsTheGroupsOwnFiles) {
  write("proc/self/cgroup", "0::/../../elsewhere\n");
  write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_processor_quota(root_), 4.0);
}

TEST_F(MachineTest, VersionOneIsReadByController) {
  write("proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(cgroup_processor_quota(root_));
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cgroup_processor_quota(root_), 3.0);
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(cgroup_memory_left(root_), 4000U);
}

TEST(AvailableTest, IsAtLeastSomething) {
  EXPECT_GE(available_processors(), 1);
  EXPECT_GT(available_memory_bytes(), uint64_t{1} << 20U);
}

}  // namespace
}  // namespace kipp
