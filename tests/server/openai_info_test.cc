// Answers about models, the server, tokens and templates.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai/answer_fields.h"
#include "server/openai/answers.h"
#include "server/openai/request_fields.h"
#include "server/sse.h"

namespace kipp::openai {
namespace {

using testing::at;

void expect_documented(const Json& answer, const std::vector<Field>& fields) {
  const auto checked = check(answer, object(fields), Path(), Rules{.num_tokens = kNumTokens});
  EXPECT_TRUE(checked.has_value()) << (checked ? "" : checked.error().message);
}

TEST(OpenAiInfo, Models) {
  const std::vector<ModelCard> cards = {{.id = "kipp-demo", .created = 5, .context = 2048}, {.id = "demo"}};
  const Json models = models_json(cards);
  EXPECT_EQ(
      write_json(models),
      R"({"object":"list","data":[{"id":"kipp-demo","object":"model","created":5,"owned_by":"kipp",)"
      R"("max_model_len":2048},{"id":"demo","object":"model","created":0,"owned_by":"kipp","max_model_len":0}]})");
  expect_documented(models, models_answer_fields());
  expect_documented(model_json(cards[0]), model_answer_fields());
  const ApiError missing = no_such_model("gpt-4o");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.message, "model: \"gpt-4o\" is not served; GET /v1/models lists what is");
}

TEST(OpenAiInfo, PropsShowEveryDefault) {
  Defaults defaults;
  defaults.sampling = {.temperature = 0.6F, .top_k = 20, .top_p = 0.95F};
  defaults.context = 2048;
  Props props;
  props.checkpoint = "kipp-demo";
  props.kernels = {{"matmul", "avx512"}};
  props.gates = {{.gate = "Phase 1", .status = "green", .record = "bench/results/x.json"},
                 {.gate = "Phase 2", .status = "not run"}};
  const Json json = props_json(props, defaults);
  expect_documented(json, props_answer_fields());
  const Json& settings = at(json, "default_generation_settings");
  EXPECT_EQ(at(settings, "temperature").literal(), "0.6");
  EXPECT_EQ(at(settings, "top_k").as_int64(), 20);
  EXPECT_EQ(at(settings, "repetition_penalty").as_int64(), 1);
  EXPECT_TRUE(at(settings, "max_tokens").is_null());
  EXPECT_EQ(at(settings, "completions_max_tokens").as_int64(), 16);
  EXPECT_EQ(at(json, "limits", "context").as_int64(), 2048);
  EXPECT_EQ(at(json, "kernels", "matmul").as_string(), "avx512");
  EXPECT_EQ(at(json, "gates", 0, "status").as_string(), "green");
  EXPECT_TRUE(at(json, "gates", 1, "record").is_null());
  EXPECT_EQ(at(json, "variant").as_string(), "instruct");
  // Every field of SamplingParams that a request can set.
  for (const char* name : {"temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
                           "repetition_penalty", "logit_bias"}) {
    EXPECT_NE(settings.find(name), nullptr) << name;
  }
}

TEST(OpenAiInfo, VersionTokensAndTemplates) {
  const Json version = version_json({.version = "0.1.0", .commit = "abc", .compiler = "GNU"});
  EXPECT_EQ(write_json(version), R"({"version":"0.1.0","commit":"abc","compiler":"GNU"})");
  expect_documented(version, version_answer_fields());
  const Json info = tokenizer_info_json({.eos_token = "<|im_end|>", .pad_token = "<|endoftext|>", .context = 2048});
  EXPECT_EQ(at(info, "eos_token").as_string(), "<|im_end|>");
  expect_documented(info, tokenizer_info_answer_fields());
  const std::vector<int32_t> ids = {9707, 0};
  EXPECT_EQ(write_json(tokenize_json(ids, 2048, nullptr)), R"({"count":2,"max_model_len":2048,"tokens":[9707,0]})");
  const std::vector<std::string> texts = {token_text("Hello"), token_text("\xf0")};
  const Json tokens = tokenize_json(ids, 2048, &texts);
  EXPECT_EQ(write_json(at(tokens, "token_strs")), R"(["Hello","bytes:\\xf0"])");
  expect_documented(tokens, tokenize_answer_fields());
  const Json text = detokenize_json("a\0b");
  expect_documented(text, detokenize_answer_fields());
  EXPECT_EQ(write_json(detokenize_json(std::string("a\0b", 3))), R"({"prompt":"a\u0000b"})");
  const Json prompt = apply_template_json({.text = "<|im_start|>", .ids = {151644}});
  EXPECT_EQ(write_json(prompt), R"({"prompt":"<|im_start|>","tokens":[151644]})");
  expect_documented(prompt, apply_template_answer_fields());
}

}  // namespace
}  // namespace kipp::openai
