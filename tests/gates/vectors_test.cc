// A vector set written and read back, and everything in it broken one at a time.
#include "gates/vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "gates/vector_writer.h"

namespace kipp::gates {
namespace {

using ::testing::HasSubstr;

constexpr Dimensions kDimensions = {.num_layers = 1,
                                    .hidden = 2,
                                    .ffn = 4,
                                    .num_query_heads = 1,
                                    .vocab = 5,
                                    .context = 64,
                                    .rope_theta = 1e6F,
                                    .tied_head = true};

VectorSet small_set() {
  PromptVectors prompt;
  prompt.name = "first";
  prompt.text = "text";
  prompt.ids = {1, 4, 2};
  prompt.final_hidden = {1, 2, 3, 4, 5, 6};
  prompt.logit_positions = {2};
  prompt.logits = {1, 2, 3, 4, 5};
  prompt.tap_positions = {0, 2};
  prompt.taps = {1, 2, 3, 4, 5, 6, 7, 8};
  prompt.greedy = {0, 1, 2, 3, 4, 0, 1, 2};
  VectorSet set;
  set.checkpoint_id = "kipp-demo";
  set.repository = "kipp/demo";
  set.revision = "r";
  set.quant_scheme = "bf16";
  set.reference = Json::object({{"dtype", Json::string("float32")}});
  set.prompts = {prompt};
  return set;
}

using ChangeSet = std::function<void(VectorSet&)>;
using ChangeManifest = std::function<void(Json&)>;

Result<VectorSet> round_trip(const ChangeSet& change, const ChangeManifest& change_manifest = {},
                             const std::function<void(const TemporaryFolder&)>& after = {}) {
  TemporaryFolder folder;
  VectorSet set = small_set();
  if (change) {
    change(set);
  }
  Json manifest = write_vector_files(folder, set, kDimensions);
  if (change_manifest) {
    change_manifest(manifest);
  }
  folder.write("manifest.json", write_json(manifest));
  if (after) {
    after(folder);
  }
  return load_vectors(folder.path(), kDimensions);
}

void expect_refused(const Result<VectorSet>& found, const char* reason) {
  ASSERT_FALSE(found.has_value()) << reason;
  EXPECT_THAT(found.error().message, HasSubstr(reason));
}

TEST(LoadVectors, ReadsWhatWasWritten) {
  const auto set = round_trip({});
  ASSERT_TRUE(set.has_value()) << set.error().message;
  const PromptVectors expected = small_set().prompts[0];
  ASSERT_EQ(set->prompts.size(), 1U);
  EXPECT_EQ(set->prompts[0].text, expected.text);
  EXPECT_EQ(set->prompts[0].ids, expected.ids);
  EXPECT_EQ(set->prompts[0].final_hidden, expected.final_hidden);
  EXPECT_EQ(set->prompts[0].logits, expected.logits);
  EXPECT_EQ(set->prompts[0].taps, expected.taps);
  EXPECT_EQ(set->prompts[0].greedy, expected.greedy);
  EXPECT_FALSE(set->nmse_max.has_value());
  EXPECT_FALSE(set->header_sha256.has_value());
}

TEST(LoadVectors, AcceptsWhatIsOptional) {
  const auto set = round_trip(
      [](VectorSet& s) {
        s.header_sha256 = "abc";
        PromptVectors& prompt = s.prompts[0];
        prompt.text.reset();
        prompt.greedy.clear();
        prompt.logit_positions.clear();
        prompt.logits.clear();
      },
      {}, [](const TemporaryFolder& folder) { folder.write("nmse-max.txt", "2e-3\n"); });
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_EQ(set->nmse_max, 2e-3);
  EXPECT_EQ(set->header_sha256, "abc");
}

TEST(LoadVectors, RefusesContentsThatDoNotFit) {
  const auto first = [](auto change) { return [change](VectorSet& set) { change(set.prompts[0]); }; };
  expect_refused(round_trip(first([](PromptVectors& p) { p.ids[1] = 5; })), "ids below 5, found 5");
  expect_refused(round_trip(first([](PromptVectors& p) { p.greedy[0] = -1; })), "greedy");
  expect_refused(round_trip(first([](PromptVectors& p) { p.greedy.pop_back(); })), "greedy");
  expect_refused(round_trip(first([](PromptVectors& p) { p.logit_positions[0] = 3; })), "logit_positions");
  expect_refused(round_trip(first([](PromptVectors& p) { p.tap_positions = {2, 2}; })), "tap_positions");
  expect_refused(
      round_trip(first([](PromptVectors& p) { p.final_hidden[3] = std::numeric_limits<float>::quiet_NaN(); })),
      "final_hidden");
  expect_refused(round_trip(first([](PromptVectors& p) {
                   p.ids.clear();
                   p.final_hidden.clear();
                   p.logit_positions.clear();
                   p.logits.clear();
                   p.tap_positions.clear();
                   p.taps.clear();
                 })),
                 "at least one token");
}

TEST(LoadVectors, RefusesABrokenManifest) {
  expect_refused(round_trip({}, [](Json& m) { m.set("format_version", Json::number(int64_t{2})); }), "format_version");
  expect_refused(round_trip({}, [](Json& m) { m.set("revision", Json()); }), "revision");
  expect_refused(round_trip({}, [](Json& m) { m.set("prompts", Json::array()); }), "prompts");
  expect_refused(round_trip({}, [](Json& m) { m.set("reference", Json::string("x")); }), "reference");
  expect_refused(round_trip({}, [](Json& m) { m.set("header_sha256", Json::boolean(true)); }), "header_sha256");
}

TEST(LoadVectors, RefusesFilesThatAreNotTheManifests) {
  expect_refused(round_trip({}, {},
                            [](const TemporaryFolder& folder) {
                              const VectorSet other = [] {
                                VectorSet set = small_set();
                                set.prompts[0].final_hidden[0] = 1.5F;  // one value in a file that is valid in itself
                                return set;
                              }();
                              write_vector_files(folder, other, kDimensions);
                            }),
                 "sha256");
  expect_refused(
      round_trip({}, {},
                 [](const TemporaryFolder& folder) { std::filesystem::remove(folder.path() / "first.safetensors"); }),
      "first.safetensors");
  const auto with_entry = [](const char* field, Json value) {
    return [field, value](Json& manifest) {
      Json entry = manifest.find("prompts")->items()[0];
      entry.set(field, value);
      manifest.set("prompts", Json::array({entry}));
    };
  };
  expect_refused(round_trip({}, with_entry("file", Json::string("../first.safetensors"))), "in the manifest's folder");
  expect_refused(round_trip({}, with_entry("num_tokens", Json::number(int64_t{4}))), "num_tokens of first");
}

TEST(LoadVectors, RefusesABrokenBound) {
  for (const char* text : {"", "abc\n", "1e-3 2\n", "-1\n", "2\n", "nan\n"}) {
    const auto set = round_trip({}, {}, [text](const TemporaryFolder& folder) { folder.write("nmse-max.txt", text); });
    EXPECT_FALSE(set.has_value()) << text;
  }
}

}  // namespace
}  // namespace kipp::gates
