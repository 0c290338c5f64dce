// Every flag of `kipp serve` has a variable and a key in the file; which one wins; and what is said of a wrong one.
#include "cli/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/serve_flags.h"

namespace kipp::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Variables that are gone at the end.
class Variables {
 public:
  ~Variables() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

 private:
  std::vector<std::string> names_;
};

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() { reset(); }
  ~SettingsTest() override { std::remove(path_.c_str()); }

  void reset() {
    app_ = std::make_unique<CLI::App>("test", "kipp");
    flags_ = ServeFlags();
    command_ = app_->add_subcommand("serve", "");
    add_serve_flags(*command_, flags_);
  }
  // As `kipp serve` does: empty if all went well, else the message.
  std::string parse(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "serve");
    std::ranges::reverse(arguments);
    try {
      app_->parse(std::move(arguments));
      apply_settings(*command_);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return {};
  }
  std::string parse_file(const std::string& text, std::vector<std::string> arguments = {}) {
    std::ofstream(path_) << text;
    arguments.insert(arguments.end(), {"--config", path_});
    return parse(std::move(arguments));
  }
  std::vector<CLI::Option*> options() {
    return command_->get_options([this](const CLI::Option* option) { return option != command_->get_help_ptr(); });
  }

  std::string path_ = ::testing::TempDir() + "kipp-settings.toml";
  Variables variables_;
  std::unique_ptr<CLI::App> app_;
  CLI::App* command_ = nullptr;
  ServeFlags flags_;
};

// A value that the flag takes and that is not its default.
std::string value_for(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() == 0) return "true";
  if (type == "N") return "7";
  const size_t bar = type.rfind('|');
  return bar == std::string::npos ? "text" : type.substr(bar + 1);
}

// A choice's result is the number that it stands for.
void expect_result(const CLI::Option& option, const std::string& value) {
  const bool is_choice = option.get_type_name().find('|') != std::string::npos;
  EXPECT_THAT(option.results(), ElementsAre(is_choice ? ::testing::Matcher<std::string>(::testing::Ne("0"))
                                                      : ::testing::Matcher<std::string>(value)))
      << option.get_name();
}

std::vector<std::string> names_of(const std::vector<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_lnames().front());
  return names;
}

TEST_F(SettingsTest, EveryFlagHasAVariable) {
  const std::vector<std::string> names = names_of(options());
  EXPECT_GT(names.size(), 30U);
  for (const std::string& name : names) {
    if (name == "config") continue;
    reset();
    const CLI::Option& option = *command_->get_option("--" + name);
    const std::string variable = option.get_envname();
    EXPECT_EQ(variable, variable_of_flag("--" + name));
    Variables variables;
    variables.set(variable, value_for(option));
    EXPECT_EQ(parse({}), "") << name;
    EXPECT_EQ(option.count(), 1U) << name;
    expect_result(option, value_for(option));
    for (const CLI::Option* other : options()) {
      EXPECT_EQ(other->count(), other == &option ? 1U : 0U) << other->get_name() << " by " << variable;
    }
  }
}

TEST_F(SettingsTest, EveryFlagHasAKey) {
  for (const std::string& name : names_of(options())) {
    if (name == "config") continue;
    reset();
    const CLI::Option& option = *command_->get_option("--" + name);
    const std::string value = value_for(option);
    const bool is_bare = value == "true" || value == "7";
    EXPECT_EQ(parse_file(fmt::format("{} = {}{}{}\n", name, is_bare ? "" : "\"", value, is_bare ? "" : "\"")), "");
    expect_result(option, value);
  }
}

TEST_F(SettingsTest, ChoicesAreKnownByTheirNames) {
  variables_.set("KIPP_LOG_LEVEL", "error");
  EXPECT_EQ(parse_file("log-format = \"json\"\nprecision = \"high\"\n"), "");
  EXPECT_EQ(flags_.log_level, log::Level::kError);
  EXPECT_EQ(flags_.log_format, log::Format::kJson);
  EXPECT_EQ(flags_.model.precision, Precision::kHigh);
}

TEST_F(SettingsTest, AFlagWinsOverAVariableAndThatOverTheFile) {
  variables_.set("KIPP_PORT", "2");
  variables_.set("KIPP_MAX_WAITING", "20");
  const std::string file = "port = 3\nmax-waiting = 30\ndrain-seconds = 300\nname = ['file']\n";
  EXPECT_EQ(parse_file(file, {"--port", "1"}), "");
  EXPECT_EQ(flags_.port, 1);
  EXPECT_EQ(flags_.max_waiting, 20);
  EXPECT_EQ(flags_.drain_seconds, 300);
  EXPECT_EQ(flags_.max_sequences, 64) << "named nowhere";
  EXPECT_THAT(flags_.names, ElementsAre("file"));
}

TEST_F(SettingsTest, ListsAreReplacedAndNotAddedTo) {
  variables_.set("KIPP_API_KEY", "v1,v2");
  EXPECT_EQ(parse_file("api-key = [\"f1\"]\nname = [\"a, b # c\", \"d\"]\ncors-origin = \"*\"\n"), "");
  EXPECT_THAT(flags_.api_keys, ElementsAre("v1", "v2"));
  EXPECT_THAT(flags_.names, ElementsAre("a, b # c", "d"));
  EXPECT_THAT(flags_.cors_origins, ElementsAre("*"));
  reset();
  EXPECT_EQ(parse({"--api-key", "a,b"}), "");
  EXPECT_THAT(flags_.api_keys, ElementsAre("a,b")) << "a flag's text is one value";
}

TEST_F(SettingsTest, SwitchesMayBeOffAndVariablesEmpty) {
  variables_.set("KIPP_LENIENT", "off");
  variables_.set("KIPP_LOG_PROMPTS", "1");
  variables_.set("KIPP_PORT", "");
  EXPECT_EQ(parse_file("lenient = true\nno-prefix-cache = false\nport = 9\n"), "");
  EXPECT_FALSE(flags_.lenient) << "the variable says no";
  EXPECT_TRUE(flags_.log_prompts);
  EXPECT_FALSE(flags_.no_prefix_cache);
  EXPECT_EQ(flags_.port, 9) << "an empty variable is none";
}

TEST_F(SettingsTest, TheFileMayBeNamedByAVariable) {
  std::ofstream(path_) << "port = 77\n";
  variables_.set("KIPP_CONFIG", path_);
  EXPECT_EQ(parse({}), "");
  EXPECT_EQ(flags_.port, 77);
}

TEST_F(SettingsTest, WhatIsWrongIsSaidWithItsPlace) {
  const auto in_file = [&](const std::string& text) {
    reset();
    return parse_file(text);
  };
  EXPECT_THAT(in_file("port = 1\nmax-sequence = 2\n"),
              AllOf(HasSubstr("line 2"), HasSubstr("unknown key max-sequence"), HasSubstr("max-sequences")));
  EXPECT_THAT(in_file("\n\nport = \"many\"\n"), AllOf(HasSubstr("line 3"), HasSubstr("--port"), HasSubstr("many")));
  EXPECT_THAT(in_file("port = 65536\n"), AllOf(HasSubstr("line 1"), HasSubstr("65535")));
  EXPECT_THAT(in_file("port = [1, 2]\n"), AllOf(HasSubstr("line 1"), HasSubstr("port: expected one")));
  EXPECT_THAT(in_file("port = true\n"), HasSubstr("port: expected one"));
  EXPECT_THAT(in_file("lenient = 1\n"), HasSubstr("lenient: expected true or false"));
  EXPECT_THAT(in_file("name = false\n"), HasSubstr("name: expected strings"));
  EXPECT_THAT(in_file("name = [[\"a\"]]\n"), AllOf(HasSubstr("line 1"), HasSubstr("name: expected")));
  EXPECT_THAT(in_file("[serve]\nport = 1\n"), AllOf(HasSubstr("line 1"), HasSubstr("serve: expected")));
  EXPECT_THAT(in_file("port 8000\n"), AllOf(HasSubstr("line 1"), HasSubstr("not TOML")));
  EXPECT_THAT(in_file("port = 1\nport = 2\n"), AllOf(HasSubstr("line 2"), HasSubstr("not TOML")));
  EXPECT_THAT(in_file("config = \"other\"\n"), HasSubstr("unknown key config"));
  EXPECT_THAT(in_file("help = true\n"), HasSubstr("unknown key help"));
  EXPECT_THAT(in_file("log-level = \"loud\"\n"), AllOf(HasSubstr("line 1"), HasSubstr("--log-level")));
  reset();
  EXPECT_THAT(parse({"--config", path_ + ".none"}), HasSubstr(path_ + ".none"));
  reset();
  variables_.set("KIPP_MAX_SEQUENCES", "many");
  EXPECT_THAT(parse({}), AllOf(HasSubstr("KIPP_MAX_SEQUENCES"), HasSubstr("many")));
  reset();
  EXPECT_EQ(parse({"--max-sequences", "3"}), "") << "the flag was given: nobody asks the variable";
  reset();
  variables_.set("KIPP_MAX_SEQUENCES", "3");
  variables_.set("KIPP_LENIENT", "maybe");
  EXPECT_THAT(parse({}), AllOf(HasSubstr("KIPP_LENIENT"), HasSubstr("maybe")));
}

}  // namespace
}  // namespace kipp::cli
