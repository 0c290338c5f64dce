// A vector set written and read back, and everything in it broken one at a time.
#include "gates/vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "gates/gate.h"
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

TEST(LoadVectors, WithoutAReferenceOnlyIdsAreRead) {
  const auto alone = [](const ChangeSet& change) {
    return round_trip(
        [&](VectorSet& set) {
          set.prompts[0].final_hidden[0] = std::numeric_limits<float>::infinity();  // not looked at
          if (change) change(set);
        },
        [](Json& manifest) { manifest.set("reference", Json()); });
  };
  const auto set = alone({});
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_FALSE(set->has_reference());
  EXPECT_EQ(set->prompts[0].ids, small_set().prompts[0].ids);
  EXPECT_TRUE(set->prompts[0].final_hidden.empty());
  const auto bound = round_trip({}, [](Json& manifest) {
    manifest.set("reference", Json());
    manifest.set("loss_against_bf16", Json::object({}));
  });
  EXPECT_FALSE(bound.has_value());
  const auto bad = alone([](VectorSet& broken) { broken.prompts[0].ids[0] = 5; });
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error().message, HasSubstr("ids below 5"));
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
        s.reference = Json::object({{"dtype", Json::string("bfloat16")}});
        s.nmse_max = 2e-3;
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
  for (const char* text : {"{", "{\"a\": 1, \"a\": 2}", "{} {}", "\xff"}) {
    const auto set = round_trip({}, {}, [text](const TemporaryFolder& folder) { folder.write("manifest.json", text); });
    expect_refused(set, "manifest.json: JSON, byte ");
  }
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

// What a set with this dtype, scheme, announcement and file is refused for; empty if it is not.
std::string bound_refusal(const char* dtype, const char* scheme, std::optional<double> announced, const char* file) {
  const auto change = [&](VectorSet& set) {
    set.reference = Json::object({{"dtype", Json::string(dtype)}});
    set.quant_scheme = scheme;
    set.nmse_max = announced;
  };
  const auto set = round_trip(change, {}, [file](const TemporaryFolder& folder) {
    if (file != nullptr) {
      folder.write("nmse-max.txt", file);
    }
  });
  return set ? "" : set.error().message;
}

// A file that a BF16 run left in the folder of a later FP32 run would replace three bounds by a loose one.
TEST(LoadVectors, RefusesABoundThatTheManifestDoesNotAnnounce) {
  EXPECT_THAT(bound_refusal("float32", "bf16", {}, "2e-3\n"),
              HasSubstr("announces none, nmse-max.txt beside it holds"));
  EXPECT_THAT(bound_refusal("bfloat16", "bf16", {}, "2e-3\n"), HasSubstr("announces none"));
  EXPECT_THAT(bound_refusal("bfloat16", "bf16", 2e-3, nullptr), HasSubstr("announces 0.002, nmse-max.txt beside it"));
  EXPECT_THAT(bound_refusal("bfloat16", "bf16", 2e-3, "1e-2\n"), HasSubstr("holds 0.01"));
  EXPECT_EQ(bound_refusal("bfloat16", "bf16", 2e-3, "0.002\n"), "");
  expect_refused(round_trip({}, [](Json& m) { m.set("nmse_max", Json::string("2e-3")); }), "a number or null");
}

TEST(LoadVectors, RefusesABoundForAnFp32ReferenceOfUnquantisedWeights) {
  EXPECT_THAT(bound_refusal("float32", "bf16", 2e-3, "2e-3\n"), HasSubstr("expected none for a reference in FP32"));
  EXPECT_EQ(bound_refusal("float32", "q8_0", 2e-3, "2e-3\n"), "");
}

// Manifests from before the field: no file then.
TEST(LoadVectors, AManifestWithoutTheFieldHasNoBound) {
  const auto without = [](Json& manifest) {
    Json old = Json::object();
    for (const auto& [name, value] : manifest.members()) {
      if (name != "nmse_max") {
        old.set(name, value);
      }
    }
    manifest = std::move(old);
  };
  EXPECT_TRUE(round_trip({}, without).has_value());
  expect_refused(round_trip({}, without, [](const TemporaryFolder& folder) { folder.write("nmse-max.txt", "2e-3"); }),
                 "announces none");
}

// The manifest's loss_against_bf16 of a set with this scheme.
Result<VectorSet> with_loss(const char* scheme, Json loss) {
  return round_trip([scheme](VectorSet& set) { set.quant_scheme = scheme; },
                    [&](Json& manifest) { manifest.set("loss_against_bf16", loss); });
}

Json loss_json(const char* nmse, const char* worst_nmse, const char* argmax_equal, const char* positions) {
  return Json::object({{"nmse", Json::number_literal(nmse)},
                       {"worst_nmse", Json::number_literal(worst_nmse)},
                       {"argmax_equal", Json::number_literal(argmax_equal)},
                       {"positions", Json::number_literal(positions)}});
}

TEST(LoadVectors, KeepsTheLossOfQuantisedWeights) {
  const auto set = with_loss("affine4_gs32", loss_json("0.01", "0.05", "3", "4"));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_EQ(set->loss_against_bf16.find("nmse")->as_double(), 0.01);
  EXPECT_TRUE(with_loss("q8_0", Json())->loss_against_bf16.is_null());
  EXPECT_TRUE(with_loss("bf16", Json())->loss_against_bf16.is_null());
}

TEST(LoadVectors, RefusesALossThatMakesNoSense) {
  expect_refused(with_loss("bf16", loss_json("0.01", "0.05", "3", "4")), "expected none of vectors of BF16 weights");
  expect_refused(with_loss("q8_0", Json::number(0.5)), "loss_against_bf16.nmse: expected a number");
  expect_refused(with_loss("q8_0", loss_json("-1", "0.05", "3", "4")), "loss_against_bf16.nmse: expected a number");
  expect_refused(with_loss("q8_0", loss_json("0.01", "-0.5", "3", "4")), "loss_against_bf16.worst_nmse");
  expect_refused(with_loss("q8_0", loss_json("0.01", "0.05", "5", "4")), "the first not above the second");
  expect_refused(with_loss("q8_0", loss_json("0.01", "0.05", "3.5", "4")), "argmax_equal and positions");
}

// The manifest's kv_rounding of a set whose reference has this dtype.
Result<VectorSet> with_kv_rounding(const char* dtype, const char* worst_prompt) {
  Json rounding = loss_json("4e-5", "3e-4", "4", "4");
  if (worst_prompt != nullptr) {
    rounding.set("worst_prompt_nmse", Json::number_literal(worst_prompt));
  }
  return round_trip([dtype](VectorSet& set) { set.reference = Json::object({{"dtype", Json::string(dtype)}}); },
                    [&](Json& manifest) { manifest.set("kv_rounding", rounding); });
}

TEST(LoadVectors, RoundingThatCostsTheReferenceMuchWidensTheBoundOfPhase1) {
  const auto set = with_kv_rounding("float32", "8e-5");
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_DOUBLE_EQ(phase1_bound(*set), 1.5 * 8e-5);
  EXPECT_DOUBLE_EQ(phase1_row_bound(*set), 5e-4);  // 1.5 times its worst row is less
  const auto little = with_kv_rounding("float32", "3e-5");
  ASSERT_TRUE(little.has_value()) << little.error().message;
  EXPECT_DOUBLE_EQ(phase1_bound(*little), 5e-5);
}

TEST(LoadVectors, RefusesRoundingThatMakesNoSense) {
  expect_refused(with_kv_rounding("bfloat16", "8e-5"), "kv_rounding: expected none but of a reference in float32");
  expect_refused(with_kv_rounding("float32", "6e-4"), "kv_rounding.worst_prompt_nmse: expected at most 0.0005");
  expect_refused(with_kv_rounding("float32", "-1"), "kv_rounding.worst_prompt_nmse: expected a number");
  expect_refused(with_kv_rounding("float32", nullptr), "kv_rounding.worst_prompt_nmse: expected a number");
}

TEST(LoadVectors, RefusesABrokenBound) {
  const auto bf16 = [](VectorSet& set) {
    set.reference = Json::object({{"dtype", Json::string("bfloat16")}});
    set.nmse_max = 1e-3;
  };
  for (const char* text : {"", "abc\n", "1e-3 2\n", "-1\n", "2\n", "nan\n"}) {
    const auto set =
        round_trip(bf16, {}, [text](const TemporaryFolder& folder) { folder.write("nmse-max.txt", text); });
    expect_refused(set, "nmse-max.txt: ");
  }
}

}  // namespace
}  // namespace kipp::gates
