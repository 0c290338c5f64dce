// The OpenAPI document against the parsers: each knows the fields of the other and no more. docs/openapi.json is what
// the library makes; tests/server/test_openapi.py validates that file.
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kipp/version.h"
#include "server/openai/openapi.h"
#include "server/openai_cases.h"
#include "server/sse.h"

namespace kipp::openai {
namespace {

using testing::at;
using testing::verdict;

using Parse = std::function<std::string(const std::string& body)>;

struct Endpoint {
  std::string component;
  std::string good_members;  // what makes a body whole, without the field in question
  std::string required;      // the field of good_members
  Parse parse;
};

std::vector<Endpoint> endpoints() {
  const std::string messages = R"("messages":[{"role":"user","content":"q"}])";
  const auto of = [](auto parse) {
    return [parse](const std::string& body) { return verdict(parse(body, Defaults())); };
  };
  return {{"CompletionRequest", R"("prompt":"a")", "prompt", of(parse_completion_request)},
          {"ChatCompletionRequest", messages, "messages", of(parse_chat_completion_request)},
          {"TokenizeRequest", messages, "messages", of(parse_tokenize_request)},
          {"DetokenizeRequest", R"("tokens":[1])", "tokens", of(parse_detokenize_request)},
          {"ApplyTemplateRequest", messages, "messages", of(parse_apply_template_request)}};
}

const Json& document() {
  static const Json json = openapi_json(Defaults(), "0.0.0");
  return json;
}

const Json& properties_of(const std::string& component) {
  return at(document(), "components", "schemas", component.c_str(), "properties");
}

// What the interface promises, apart from the tables.
const std::set<std::string>& promised(const std::string& component) {
  static const std::set<std::string> common = {"model",
                                               "temperature",
                                               "top_p",
                                               "top_k",
                                               "min_p",
                                               "presence_penalty",
                                               "frequency_penalty",
                                               "repetition_penalty",
                                               "logit_bias",
                                               "seed",
                                               "n",
                                               "max_tokens",
                                               "min_tokens",
                                               "stop",
                                               "stop_token_ids",
                                               "ignore_eos",
                                               "stream",
                                               "stream_options",
                                               "priority",
                                               "cache_salt",
                                               "user",
                                               "metadata",
                                               "logprobs"};
  static const std::set<std::string> chat = {"messages",
                                             "tools",
                                             "chat_template_kwargs",
                                             "enable_thinking",
                                             "add_generation_prompt",
                                             "continue_final_message"};
  static const auto with = [](std::set<std::string> a, const std::set<std::string>& b) {
    a.insert(b.begin(), b.end());
    return a;
  };
  static const std::map<std::string, std::set<std::string>> names = {
      {"CompletionRequest", with(common, {"prompt", "plain", "echo", "best_of", "suffix"})},
      {"ChatCompletionRequest",
       with(with(common, chat),
            {"tool_choice", "parallel_tool_calls", "top_logprobs", "response_format", "max_completion_tokens", "audio",
             "function_call", "functions", "modalities", "moderation", "prediction", "prompt_cache_key",
             "prompt_cache_retention", "reasoning_effort", "safety_identifier", "service_tier", "store", "verbosity",
             "web_search_options"})},
      {"TokenizeRequest", with(chat, {"model", "prompt", "plain", "return_token_strs", "add_special_tokens"})},
      {"DetokenizeRequest", {"model", "tokens", "skip_special_tokens"}},
      {"ApplyTemplateRequest", with(chat, {"model"})}};
  return names.at(component);
}

TEST(OpenApi, HasThePromisedFieldsAndNoOthers) {
  for (const Endpoint& endpoint : endpoints()) {
    std::set<std::string> documented;
    for (const auto& [name, schema] : properties_of(endpoint.component).members()) {
      EXPECT_TRUE(documented.insert(name).second) << name;
      EXPECT_FALSE(at(schema, "description").as_string().empty()) << endpoint.component << "." << name;
    }
    EXPECT_EQ(documented, promised(endpoint.component)) << endpoint.component;
  }
}

TEST(OpenApi, TheParsersKnowThePromisedFieldsAndNoOthers) {
  std::set<std::string> all = {"no_such_field"};
  for (const Endpoint& endpoint : endpoints()) {
    all.insert(promised(endpoint.component).begin(), promised(endpoint.component).end());
  }
  for (const Endpoint& endpoint : endpoints()) {
    for (const std::string& name : all) {
      if (name == endpoint.required) {
        continue;
      }
      const std::string verdict = endpoint.parse("{" + endpoint.good_members + ",\"" + name + "\":null}");
      const bool is_unknown = verdict.starts_with("400 unknown_parameter " + name + " ");
      EXPECT_TRUE(is_unknown || verdict == "accepted") << verdict;  // null says nothing
      EXPECT_EQ(is_unknown, !promised(endpoint.component).contains(name)) << endpoint.component << "." << name;
    }
    EXPECT_EQ(endpoint.parse("{" + endpoint.good_members + "}"), "accepted");
  }
}

// No field takes any value: of a text, a number, an object, an array and a boolean some are refused, by its name.
TEST(OpenApi, EveryFieldHasAType) {
  for (const Endpoint& endpoint : endpoints()) {
    for (const std::string& name : promised(endpoint.component)) {
      const std::string rest = name == endpoint.required ? "" : endpoint.good_members + ",";
      int num_refused = 0;
      for (const char* value : {R"("\u0000 no such text")", "-7.5", R"({"no_such_member":7})", "[[[7]]]", "true"}) {
        const std::string verdict = endpoint.parse("{" + rest + "\"" + name + "\":" + value + "}");
        num_refused += verdict != "accepted" ? 1 : 0;
        EXPECT_TRUE(verdict == "accepted" || verdict.find(" " + name) != std::string::npos) << verdict;
      }
      EXPECT_GE(num_refused, 3) << endpoint.component << "." << name;
    }
  }
}

TEST(OpenApi, DefaultsAreThoseOfTheParser) {
  const Json& properties = properties_of("ChatCompletionRequest");
  std::string fields;
  for (const auto& [name, schema] : properties.members()) {
    if (const Json* standard = schema.find_value("default"); standard != nullptr) {
      fields += ",\"" + name + "\":" + write_json(*standard);
    }
  }
  EXPECT_THAT(fields, ::testing::HasSubstr(R"("n":1)"));
  const auto said = testing::chat_of_body(R"({"messages":[{"role":"user","content":"q"}],"tools":[])" + fields + "}");
  const auto silent = testing::chat_of_body(R"({"messages":[{"role":"user","content":"q"}],"tools":[]})");
  EXPECT_EQ(said.generation.n, silent.generation.n);
  EXPECT_EQ(said.generation.num_logprobs, silent.generation.num_logprobs);
  EXPECT_EQ(said.generation.min_tokens, silent.generation.min_tokens);
  EXPECT_EQ(said.generation.priority, silent.generation.priority);
  EXPECT_EQ(said.generation.sampling.min_p, silent.generation.sampling.min_p);
  EXPECT_EQ(said.generation.sampling.repetition_penalty, silent.generation.sampling.repetition_penalty);
  EXPECT_EQ(said.generation.sampling.presence_penalty, silent.generation.sampling.presence_penalty);
  EXPECT_EQ(said.generation.stream, silent.generation.stream);
  EXPECT_EQ(said.generation.ignore_eos, silent.generation.ignore_eos);
  EXPECT_EQ(said.parallel_tool_calls, silent.parallel_tool_calls);
  EXPECT_EQ(said.tool_calls, silent.tool_calls);
  EXPECT_EQ(said.chat.continue_final_message, silent.chat.continue_final_message);
}

TEST(OpenApi, SchemasSayWhatTheTypesSay) {
  const auto schema = [](const char* name) { return write_json(at(properties_of("CompletionRequest"), name)); };
  EXPECT_THAT(schema("n"), ::testing::HasSubstr(R"({"type":"integer","minimum":1,"maximum":128},{"type":"null"})"));
  EXPECT_THAT(schema("repetition_penalty"), ::testing::HasSubstr(R"("exclusiveMinimum":0)"));
  EXPECT_THAT(schema("seed"), ::testing::HasSubstr(R"("minimum":-9223372036854775808,"maximum":18446744073709551615)"));
  EXPECT_THAT(schema("best_of"), ::testing::HasSubstr(R"("enum":[1,null])"));
  EXPECT_THAT(schema("stop"), ::testing::HasSubstr(R"("maxItems":16)"));
  EXPECT_THAT(schema("stop_token_ids"), ::testing::HasSubstr(R"("maximum":151668)"));
  EXPECT_EQ(write_json(at(document(), "components", "schemas", "CompletionRequest", "required")), R"(["prompt"])");
  EXPECT_FALSE(at(document(), "components", "schemas", "CompletionRequest", "additionalProperties").as_bool());
}

TEST(OpenApi, ALenientServerSaysSo) {
  Defaults defaults;
  defaults.lenient = true;
  const Json lenient = openapi_json(defaults, "0.0.0");
  EXPECT_TRUE(at(lenient, "components", "schemas", "CompletionRequest", "additionalProperties").as_bool());
  EXPECT_FALSE(at(lenient, "components", "schemas", "Completion", "additionalProperties").as_bool());
}

TEST(OpenApi, TheFileInDocsIsThisDocument) {
  std::ifstream file(KIPP_SOURCE_DIR "/docs/openapi.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto json = parse_json(text.str());
  ASSERT_TRUE(json.has_value()) << json.error().message;
  EXPECT_TRUE(write_json(*json) == write_json(openapi_json(Defaults(), kVersion)))
      << "stale: server_openapi_document | python3 -m json.tool --no-ensure-ascii --indent 1 > docs/openapi.json";
}

}  // namespace
}  // namespace kipp::openai
