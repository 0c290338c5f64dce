// The file of keys: what a line may say, and that no message says a key.
#include "cli/key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "cli/serve_flags.h"

namespace kipp::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(KeyFile, LinesHaveAKeyAndWhatItMay) {
  const auto keys = parse_key_file(
      "# of the team\n\nplain\n  k2\tname=alice   max-requests=4\r\nk3 max-requests=1 name=#b=c\n   # end\nlast");
  ASSERT_TRUE(keys.has_value()) << keys.error().message;
  ASSERT_EQ(keys->size(), 4U);
  EXPECT_EQ((*keys)[0].key, "plain");
  EXPECT_EQ((*keys)[0].name, name_of_key("plain"));
  EXPECT_EQ((*keys)[0].max_requests, 0);
  EXPECT_EQ((*keys)[1].key, "k2");
  EXPECT_EQ((*keys)[1].name, "alice");
  EXPECT_EQ((*keys)[1].max_requests, 4);
  EXPECT_EQ((*keys)[2].name, "#b=c");
  EXPECT_EQ((*keys)[2].max_requests, 1);
  EXPECT_EQ((*keys)[3].key, "last");
}

TEST(KeyFile, NamesTellKeysApartAndDoNotSayThem) {
  EXPECT_EQ(name_of_key("sesame"), name_of_key("sesame"));
  EXPECT_NE(name_of_key("sesame"), name_of_key("sesamf"));
  EXPECT_EQ(name_of_key("abc"), "key-ba7816bf");
}

TEST(KeyFile, WhatIsWrongIsNamedByItsLine) {
  for (const char* line : {"sesame alice", "sesame max-requests=0", "sesame max-requests=-1", "sesame max-requests=x",
                           "sesame max-requests=", "sesame name=", "sesame name", "sesame max-requests=99999999999"}) {
    const auto keys = parse_key_file(std::string("ok\n") + line + "\nok2\n");
    ASSERT_FALSE(keys.has_value()) << line;
    EXPECT_THAT(keys.error().message, HasSubstr("line 2: "));
    EXPECT_THAT(keys.error().message, Not(HasSubstr("sesame")));
  }
}

TEST(KeyFile, TheFlagsLimitIsForKeysWithoutTheirOwn) {
  const std::string path = ::testing::TempDir() + "kipp-keys";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("a max-requests=7\nb\n", file);
  std::fclose(file);
  ServeFlags flags;
  flags.api_keys = {"c"};
  flags.api_key_file = path;
  flags.max_requests_per_key = 2;
  const auto keys = all_keys(flags);
  ASSERT_TRUE(keys.has_value()) << keys.error().message;
  ASSERT_EQ(keys->size(), 3U);
  EXPECT_EQ((*keys)[0].max_requests, 2);
  EXPECT_EQ((*keys)[1].max_requests, 7);
  EXPECT_EQ((*keys)[2].max_requests, 2);
  flags.api_keys = {};
  flags.api_key_file = {};
  EXPECT_THAT(all_keys(flags).error().message, HasSubstr("--max-requests-per-key"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace kipp::cli
