// POST /tokenize, /detokenize and /apply-template.
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai_cases.h"

namespace kipp::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::verdict;

std::string tokenize_verdict(std::string_view body) {
  return verdict(parse_tokenize_request(body, Defaults()));
}

std::string detokenize_verdict(std::string_view body) {
  return verdict(parse_detokenize_request(body, Defaults()));
}

std::string apply_verdict(std::string_view body, const Defaults& defaults = {}) {
  return verdict(parse_apply_template_request(body, defaults));
}

TEST(OpenAiTokenizeRequest, ATextOrAChat) {
  const TokenizeRequest text =
      parse_tokenize_request(R"({"prompt":"a","plain":true,"return_token_strs":true,"model":"m"})", Defaults()).value();
  EXPECT_EQ(text.prompt, "a");
  EXPECT_TRUE(text.plain && text.return_token_strs && !text.chat);
  EXPECT_EQ(text.model, "m");
  EXPECT_EQ(parse_tokenize_request(R"({"prompt":""})", Defaults()).value().prompt, "");  // no tokens are an answer
  const TokenizeRequest chat =
      parse_tokenize_request(R"({"messages":[{"role":"user","content":"q"}],"add_generation_prompt":false,
                                "chat_template_kwargs":{"enable_thinking":false},"add_special_tokens":true})",
                             Defaults())
          .value();
  ASSERT_TRUE(chat.chat.has_value());
  EXPECT_EQ(chat.chat->messages.size(), 1U);
  EXPECT_FALSE(chat.chat->add_generation_prompt || chat.prompt);
  EXPECT_EQ(chat.chat->enable_thinking, false);
}

TEST(OpenAiTokenizeRequest, Refusals) {
  EXPECT_EQ(tokenize_verdict("{}"),
            "400 missing_required_parameter prompt | prompt: expected a \"prompt\" or \"messages\", found neither");
  EXPECT_EQ(tokenize_verdict(R"({"prompt":"a","messages":[{"role":"user","content":"q"}]})"),
            "400 invalid_value prompt | prompt: expected one of \"prompt\" and \"messages\", found both");
  EXPECT_THAT(tokenize_verdict(R"({"prompt":["a"]})"), StartsWith("400 invalid_value prompt | "));
  EXPECT_THAT(tokenize_verdict(R"({"content":"a"})"), StartsWith("400 unknown_parameter content | "));
  EXPECT_THAT(tokenize_verdict(R"({"messages":[]})"), StartsWith("400 invalid_value messages | "));
  EXPECT_THAT(tokenize_verdict(R"({"messages":[{"role":"user","content":"q"}],"plain":true})"),
              StartsWith("400 invalid_value plain | "));
  for (const char* field : {R"("tools":[])", R"("chat_template_kwargs":{})", R"("enable_thinking":true)",
                            R"("add_generation_prompt":true)", R"("continue_final_message":true)"}) {
    EXPECT_THAT(tokenize_verdict(std::string(R"({"prompt":"a",)") + field + "}"),
                ::testing::HasSubstr("expected beside \"messages\" alone"))
        << field;
  }
}

TEST(OpenAiDetokenizeRequest, IdsThatHaveAToken) {
  const auto request =
      parse_detokenize_request(R"({"tokens":[1,0,151668],"skip_special_tokens":true})", Defaults()).value();
  EXPECT_THAT(request.tokens, ElementsAre(1, 0, 151668));
  EXPECT_TRUE(request.skip_special_tokens);
  EXPECT_THAT(parse_detokenize_request(R"({"tokens":[]})", Defaults()).value().tokens, IsEmpty());
  for (const char* id : {"151800", "-5", "999999", "151669", "4294967296", "1.0", "\"1\"", "null"}) {
    EXPECT_THAT(detokenize_verdict(std::string(R"({"tokens":[0,)") + id + "]}"),
                StartsWith("400 invalid_value tokens[1] | tokens[1]: expected a token id from 0 to 151668, found "));
  }
  EXPECT_THAT(detokenize_verdict("{}"), StartsWith("400 missing_required_parameter tokens | "));
  EXPECT_THAT(detokenize_verdict(R"({"tokens":7})"), StartsWith("400 invalid_value tokens | "));
}

TEST(OpenAiApplyTemplateRequest, AChat) {
  const auto request = parse_apply_template_request(
                           R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
                               "continue_final_message":true,"model":"m"})",
                           Defaults())
                           .value();
  EXPECT_EQ(request.chat.messages.size(), 2U);
  EXPECT_TRUE(request.chat.continue_final_message);
  EXPECT_EQ(request.model, "m");
  EXPECT_THAT(apply_verdict("{}"), StartsWith("400 missing_required_parameter messages | "));
  EXPECT_THAT(apply_verdict(R"({"messages":[{"role":"user","content":"q"}],"temperature":1})"),
              StartsWith("400 unknown_parameter temperature | "));
  Defaults base;
  base.variant = Variant::kBase;
  EXPECT_THAT(apply_verdict(R"({"messages":[{"role":"user","content":"q"}]})", base),
              StartsWith("400 unsupported messages | "));
}

}  // namespace
}  // namespace kipp::openai
