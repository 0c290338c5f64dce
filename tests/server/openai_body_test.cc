// Bodies that are no JSON object: the client's fault, whatever the endpoint, with the byte.
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai_cases.h"

namespace kipp::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::verdict;

std::vector<std::string> verdicts(std::string_view body) {
  const Defaults defaults;
  return {verdict(parse_completion_request(body, defaults)), verdict(parse_chat_completion_request(body, defaults)),
          verdict(parse_tokenize_request(body, defaults)), verdict(parse_detokenize_request(body, defaults)),
          verdict(parse_apply_template_request(body, defaults))};
}

struct BadBody {
  std::string_view body;
  std::string_view reason;
};

class OpenAiBody : public ::testing::TestWithParam<BadBody> {};

TEST_P(OpenAiBody, IsRefusedByEveryEndpoint) {
  for (const std::string& verdict : verdicts(GetParam().body)) {
    EXPECT_THAT(verdict, StartsWith("400 invalid_json - | "));
    EXPECT_THAT(verdict, HasSubstr(GetParam().reason));
  }
}

using namespace std::string_view_literals;
INSTANTIATE_TEST_SUITE_P(
    Bad, OpenAiBody,
    ::testing::Values(BadBody{"", "found nothing"}, BadBody{" ", "JSON, byte"}, BadBody{R"({"prompt":"Hi")", "byte 13"},
                      BadBody{R"({"prompt":"A"} x)", "byte 15"}, BadBody{R"({"prompt":NaN})", "byte 10"},
                      BadBody{R"({"prompt":"A","temperature":1e400})", "too large for a double"},
                      BadBody{R"({"prompt":"A","temperature":Infinity})", "byte 28"},
                      BadBody{"[1,2]", "found an array"}, BadBody{"\"text\"", "found a string"},
                      BadBody{"null", "found null"}, BadBody{"7", "found a number"},
                      BadBody{"\xef\xbb\xbf{\"prompt\":\"A\"}", "byte 0: a byte order mark"},
                      BadBody{"{\"prompt\":\"\xff\"}", "byte 11"},       // broken UTF-8
                      BadBody{"{\"prompt\":\"\xc3\"}", "byte"},          // cut UTF-8
                      BadBody{"{\"prompt\":\"\xed\xa0\xbd\"}", "byte"},  // a surrogate in UTF-8
                      BadBody{R"({"prompt":"\ud83d"})", "surrogate"},    // a lone surrogate
                      BadBody{R"({"prompt":"\ude00\ud83d"})", "surrogate"},
                      BadBody{"{\"prompt\":\"a\0b\"}"sv, "NUL byte"}, BadBody{"{\"prompt\":\"A\"}\0"sv, "NUL byte"},
                      BadBody{R"({"prompt":"A","prompt":"B"})", R"(duplicate key "prompt")"},
                      BadBody{R"({"prompt":"A","stop":"a","stop":"b"})", R"(duplicate key "stop")"},
                      BadBody{R"({"prompt":"A","logit_bias":{"7":1,"7":2}})", R"(duplicate key "7")"},
                      BadBody{R"({"messages":[{"role":"user","role":"tool"}]})", R"(duplicate key "role")"},
                      BadBody{R"({"a":[{"b":{"c":{"d":1,"d":1}}}]})", R"(duplicate key "d")"},
                      BadBody{R"({'prompt':'A'})", "byte 1"}, BadBody{R"({"prompt":"A",})", "byte 14"},
                      BadBody{R"({"prompt":+1})", "byte 10"}, BadBody{R"({"prompt":01})", "byte"}));

TEST(OpenAiBody, DepthHasALimit) {
  const std::string deep = R"({"prompt":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  for (const std::string& verdict : verdicts(deep)) {
    EXPECT_THAT(verdict, HasSubstr("nested deeper than 128 levels"));
  }
}

TEST(OpenAiBody, SizeAndNumberOfValuesHaveLimits) {
  Defaults defaults;
  defaults.json = {.max_bytes = 100, .max_values = 20};
  EXPECT_EQ(verdict(parse_completion_request(testing::with_prompt(R"("n":1)"), defaults)), "accepted");
  EXPECT_EQ(verdict(parse_completion_request(R"({"prompt":")" + std::string(100, 'a') + R"("})", defaults)),
            "400 invalid_json - | JSON: 113 bytes, more than the limit of 100");
  EXPECT_THAT(verdict(parse_completion_request(R"({"prompt":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})", defaults)),
              HasSubstr("more than 20 values"));
}

TEST(OpenAiBody, AnErrorIsOpenAisObject) {
  const auto refused = parse_completion_request(R"({"prompt":5})", Defaults());
  ASSERT_FALSE(refused);
  EXPECT_EQ(write_json(error_json(refused.error())),
            R"({"error":{"message":"prompt: expected a string that is not empty or an array of strings or an array of )"
            R"(token ids or an array of arrays of token ids, none of them empty, found 5",)"
            R"("type":"invalid_request_error","param":"prompt","code":"invalid_value"}})");
  EXPECT_EQ(write_json(error_json(ApiError{.message = "x"})),
            R"({"error":{"message":"x","type":"invalid_request_error","param":null,"code":null}})");
}

TEST(OpenAiBody, ErrorCodesBecomeStatuses) {
  const auto status = [](ErrorCode code) { return api_error(Error{code, "m"}).status; };
  EXPECT_EQ(status(ErrorCode::kInvalidArgument), 400);
  EXPECT_EQ(status(ErrorCode::kUnsupported), 400);
  EXPECT_EQ(status(ErrorCode::kCapacity), 400);
  EXPECT_EQ(status(ErrorCode::kNotFound), 404);
  for (const ErrorCode code :
       {ErrorCode::kInvalidArtifact, ErrorCode::kIo, ErrorCode::kNumerical, ErrorCode::kInternal}) {
    EXPECT_EQ(status(code), 500);
    EXPECT_EQ(api_error(Error{code, "m"}).type, "server_error");
  }
  EXPECT_EQ(api_error(Error{ErrorCode::kNumerical, "m"}).code, "numerical");
  EXPECT_EQ(api_error(Error{ErrorCode::kNumerical, "m"}).message, "m");
}

TEST(OpenAiBody, APromptThatDoesNotFitIsToldBothNumbersAndTheExcess) {
  const ApiError error = prompt_too_long(8001, 2048, "prompt");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.param, "prompt");
  EXPECT_EQ(error.message,
            "the prompt has 8001 tokens and the context holds 2048, output included: expected at most 2047; shorten "
            "the prompt by at least 5954 tokens");
  EXPECT_THAT(prompt_too_long(2048, 2048, "messages").message, HasSubstr("by at least 1 token"));
}

}  // namespace
}  // namespace kipp::openai
