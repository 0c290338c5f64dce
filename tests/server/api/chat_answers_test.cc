// What an assistant's tokens become on the way out: each text is forced, each answer asked for whole and as a stream.
#include <gmock/gmock.h>

#include <fmt/format.h>

#include "server/api/api_fixture.h"
#include "server/sse.h"

namespace kipp::testing {
namespace {

using openai::testing::at;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"put","parameters":{"type":"object"}}}])";

class ChatAnswers : public ApiTest {
 protected:
  // What the client gets of a text that the model says.
  ApiAnswer chat_of(std::string_view fields, const std::string& text) {
    script_chat(fields, {text});
    return chat(fields);
  }
  Said said(std::string_view fields, const std::string& text) { return chat_of(fields, text).said(); }
};

std::string call(std::string_view arguments, std::string_view name = "put") {
  return fmt::format("<tool_call>\n{{\"name\": \"{}\", \"arguments\": {}}}\n</tool_call>", name, arguments);
}

TEST_F(ChatAnswers, ReasoningIsSplitOff) {
  const ApiAnswer answer = chat_of("", "<think>\nplan A\n</think>\n\nB");
  EXPECT_EQ(answer.said().reasoning, "plan A");
  EXPECT_EQ(answer.said().content, "B");
  EXPECT_EQ(answer.said().finish, "stop");
  // <think>, "\n", "plan", " A", "\n", </think>
  EXPECT_EQ(at(*answer.usage, "completion_tokens_details", "reasoning_tokens").as_int64(), 6);
}

TEST_F(ChatAnswers, ReasoningThatTheLimitCutsIsNoContent) {
  const Said cut = said(R"("max_tokens":3)", "<think>\nplan\n</think>\n\nanswer");
  EXPECT_EQ(cut.reasoning, "plan");
  EXPECT_EQ(cut.content, "");
  EXPECT_EQ(cut.finish, "length");
}

TEST_F(ChatAnswers, WithThinkingOffEverythingIsContent) {
  constexpr std::string_view kOff = R"("chat_template_kwargs":{"enable_thinking":false})";
  const ApiAnswer answer = chat_of(kOff, "answer one");
  EXPECT_EQ(answer.said().content, "answer one");
  EXPECT_EQ(answer.said().reasoning, "");
  EXPECT_EQ(at(*answer.usage, "prompt_tokens").as_int64(), 13);
  EXPECT_EQ(at(answer.json, "choices", 0, "message", "reasoning_content").as_string(), "");
}

TEST_F(ChatAnswers, UsageIsCountedOnce) {
  const ApiAnswer answer = chat_of("", "Yes.");
  EXPECT_EQ(at(*answer.usage, "prompt_tokens").as_int64(), 9);
  EXPECT_EQ(at(*answer.usage, "completion_tokens").as_int64(), 2);
  EXPECT_EQ(at(*answer.usage, "total_tokens").as_int64(), 11);
  size_t with_usage = 0;
  for (const Json& event : answer.events) with_usage += event.find_value("usage") != nullptr ? 1U : 0U;
  EXPECT_EQ(with_usage, 1U);
  EXPECT_THAT(at(answer.events.back(), "choices").items(), IsEmpty());
}

TEST_F(ChatAnswers, ACharacterOfSeveralTokensComesOnceAndWhole) {
  const std::string character = "\U0001FAE8";
  ASSERT_THAT(ids(character), SizeIs(3));
  const ApiAnswer answer = chat_of("", character);
  EXPECT_EQ(answer.said().content, character);
  size_t with_content = 0;
  for (const Json& event : answer.events) {
    with_content += at(event, "choices", 0, "delta", "content").as_string().empty() ? 0U : 1U;
  }
  EXPECT_EQ(with_content, 1U);
  // The limit cuts it: what is there is no character, and both forms say so alike.
  EXPECT_EQ(said(R"("max_tokens":2)", character).content, "\uFFFD");
}

TEST_F(ChatAnswers, AStopStringOverTokensIsNeverSent) {
  for (const std::string stop : {"a g", "a gamma", " bet", "ta gam", "mm", "alpha beta gamma", "\u00e9"}) {
    const std::string text = "alpha beta gamma d\u00e9j\u00e0";
    const Said cut = said(fmt::format(R"("stop":[{}])", json_text(stop)), text);
    EXPECT_EQ(cut.content, text.substr(0, text.find(stop))) << stop;
    EXPECT_EQ(cut.finish, "stop");
  }
  // What only begins like one is text after all.
  EXPECT_EQ(said(R"("stop":["a gx","ammaz"])", "alpha beta gamma").content, "alpha beta gamma");
}

TEST_F(ChatAnswers, AStopStringWithinATagLeavesNothingOfIt) {
  const std::string text = "<think>\nplan\n</think>\n\nanswer";
  EXPECT_EQ(said(R"("stop":["think>"])", text), (Said{.finish = "stop"}));
  EXPECT_EQ(said(R"("stop":["hink>\nplan"])", text), (Said{.finish = "stop"}));
  EXPECT_EQ(said(R"("stop":["/think"])", text), (Said{.reasoning = "plan", .finish = "stop"}));
  EXPECT_EQ(said(R"("stop":["nk>\n\nans"])", text), (Said{.reasoning = "plan", .finish = "stop"}));
  EXPECT_EQ(said(R"("stop":["lan"])", text), (Said{.reasoning = "p", .finish = "stop"}));
  const std::string with_tools = fmt::format(R"({},"stop":["ool_call"])", kTools);
  EXPECT_EQ(said(with_tools, "so: " + call("{}")).content, "so: ");
  // Where the tag is text, so is what is left of it.
  EXPECT_EQ(said(R"("stop":["hink>"])", "so <think>").content, "so <t");
}

TEST_F(ChatAnswers, ArgumentsMayHoldAnything) {
  const std::string arguments =
      R"({"s": "}} ]] \\ \" </tool_call", "o": {"x": {"y": {}}}, "t": "<tool_call> {\"name\": \"x\"}", "e": "\u00e9\n"})";
  const Said forced = said(kTools, call(arguments));
  EXPECT_THAT(forced.calls, ElementsAre(Pair("put", arguments)));
  EXPECT_EQ(forced.content, "");
  EXPECT_EQ(forced.finish, "tool_calls");
}

TEST_F(ChatAnswers, TheTagTypedLetterByLetterEndsNoCall) {
  // The same letters as the special token, of ordinary tokens.
  const std::vector<int32_t> plain =
      tokenizer().encode("</tool_call>", {.special_tokens = SpecialTokens::kPlain}).value();
  ASSERT_GT(plain.size(), 1U);
  std::vector<int32_t> output = ids("<tool_call>\n{\"name\": \"put\", \"arguments\": {\"s\": \"");
  output.insert(output.end(), plain.begin(), plain.end());
  for (const int32_t id : ids("\"}}\n</tool_call>")) output.push_back(id);
  script_chat_ids(kTools, {output});
  EXPECT_THAT(chat(kTools).said().calls, ElementsAre(Pair("put", R"({"s": "</tool_call>"})")));
}

TEST_F(ChatAnswers, ArgumentsKeepTheirLiterals) {
  const std::string numbers = R"({"n": 12345678901234567890, "f": 1.0, "e": 1E+2, "b": false, "z": null})";
  EXPECT_THAT(said(kTools, call(numbers)).calls, ElementsAre(Pair("put", numbers)));
  EXPECT_THAT(said(kTools, call("{}")).calls, ElementsAre(Pair("put", "{}")));
  EXPECT_THAT(said(kTools, "<tool_call>\n{\"name\": \"put\"}\n</tool_call>").calls, ElementsAre(Pair("put", "{}")));
}

TEST_F(ChatAnswers, ParallelCallsHaveTheirOwnIdsAndTextsBetweenThemStay) {
  const ApiAnswer answer =
      chat_of(kTools, "<think>\nboth\n</think>\n\nAt once.\n" + call(R"({"a": 1})") + "\n" + call(R"({"b": 2})"));
  EXPECT_EQ(answer.said().reasoning, "both");
  EXPECT_EQ(answer.said().content, "At once.");
  EXPECT_THAT(answer.said().calls, ElementsAre(Pair("put", R"({"a": 1})"), Pair("put", R"({"b": 2})")));
  EXPECT_THAT(answer.said().call_ids, SizeIs(2));
  EXPECT_NE(answer.said().call_ids[0], answer.said().call_ids[1]);
  EXPECT_EQ(answer.said().finish, "tool_calls");
}

TEST_F(ChatAnswers, WithoutParallelCallsTheFirstEndsTheAnswer) {
  const std::string fields = fmt::format(R"({},"parallel_tool_calls":false)", kTools);
  const Said first = said(fields, call("{}") + "\n" + call(R"({"b": 2})"));
  EXPECT_THAT(first.calls, ElementsAre(Pair("put", "{}")));
  EXPECT_EQ(first.finish, "tool_calls");
}

TEST_F(ChatAnswers, WithToolChoiceNoneACallIsText) {
  const std::string fields = fmt::format(R"({},"tool_choice":"none")", kTools);
  const std::string text = call(R"({"a": 1})");
  EXPECT_EQ(said(fields, text), (Said{.content = text, .finish = "stop"}));
  EXPECT_EQ(said("", text), (Said{.content = text, .finish = "stop"})) << "no tools, no calls";
}

TEST_F(ChatAnswers, ACallThatTheLimitCutsHasLength) {
  const std::string text = call(R"({"city": "Paris"})");
  const size_t whole = ids(text).size();
  for (size_t most = 1; most < whole; ++most) {
    const Said cut = said(fmt::format(R"({},"max_tokens":{})", kTools, most), text);
    EXPECT_EQ(cut.finish, "length") << most;
    for (const auto& [name, arguments] : cut.calls) {
      EXPECT_EQ(name, "put");
      EXPECT_EQ(std::string(R"({"city": "Paris"})").substr(0, arguments.size()), arguments);
    }
  }
}

TEST_F(ChatAnswers, LogProbabilitiesCoverEveryTokenAlsoOfCalls) {
  const std::string text = "<think>\nhm\n</think>\n\nNow.\n" + call(R"({"a": [1, 2]})");
  const std::string fields = fmt::format(R"({},"logprobs":true,"top_logprobs":2)", kTools);
  const ApiAnswer answer = chat_of(fields, text);
  std::string joined;
  for (const std::string& token : answer.said().tokens) joined += token;
  EXPECT_EQ(joined, text);
  EXPECT_THAT(answer.said().tokens, SizeIs(ids(text).size()));
  for (const Json& token : at(answer.json, "choices", 0, "logprobs", "content").items()) {
    EXPECT_THAT(at(token, "top_logprobs").items(), SizeIs(2));
  }
}

TEST_F(ChatAnswers, ChoicesAreToldApart) {
  constexpr std::string_view kThree = R"("n":3)";
  script_chat(kThree, {"one", "<think>\ntwo\n</think>\n\n2", "three"});
  const ApiAnswer answer = chat(kThree);
  ASSERT_THAT(answer.choices, SizeIs(3));
  EXPECT_EQ(answer.choices[0].content, "one");
  EXPECT_EQ(answer.choices[1].reasoning, "two");
  EXPECT_EQ(answer.choices[1].content, "2");
  EXPECT_EQ(answer.choices[2].content, "three");
  EXPECT_EQ(at(*answer.usage, "prompt_tokens").as_int64(), 9) << "each prompt once";
}

TEST_F(ChatAnswers, MaxCompletionTokensCounts) {
  script_chat("", {"one two three four five six"});
  for (const auto& [fields, tokens] :
       std::vector<std::pair<std::string_view, int64_t>>{{R"("max_tokens":3,"max_completion_tokens":2)", 2},
                                                         {R"("max_completion_tokens":3)", 3},
                                                         {R"("max_tokens":4)", 4}}) {
    const ApiAnswer answer = chat(fields);
    EXPECT_EQ(at(*answer.usage, "completion_tokens").as_int64(), tokens) << fields;
    EXPECT_EQ(answer.said().finish, "length");
  }
}

TEST_F(ChatAnswers, AnAnswerGoesBackIntoTheHistoryUnchanged) {
  const std::string arguments = R"({"city": "Zürich", "k": [1, 2]})";
  script_chat(kTools, {"<think>\nplan\n</think>\n\nA" + std::string("\n") + call(arguments)});
  const ApiAnswer answer = ask("/v1/chat/completions", chat_body(kTools));
  Json message = at(answer.json, "choices", 0, "message");
  const std::string history =
      fmt::format(R"("messages":[{{"role":"user","content":"Hi"}},{},{{"role":"tool","content":"wet"}}],{})",
                  write_json(message), kTools);
  const std::string prompt = tokenizer().decode(chat_prompt(history)).value();
  EXPECT_THAT(prompt, ::testing::HasSubstr("\"arguments\": " + arguments));
  // A null or absent content beside calls reads like an empty one.
  std::vector<std::string> prompts;
  for (const char* content : {R"("content":null,)", R"("content":"",)", ""}) {
    const std::string calls = fmt::format(
        R"("messages":[{{"role":"user","content":"rain?"}},{{"role":"assistant",{}"tool_calls":[{{"id":"1",)"
        R"("type":"function","function":{{"name":"put","arguments":"{{}}"}}}}]}},{{"role":"tool","content":"wet"}}])",
        content);
    prompts.push_back(tokenizer().decode(chat_prompt(calls)).value());
  }
  EXPECT_EQ(prompts[0], prompts[1]);
  EXPECT_EQ(prompts[2], prompts[1]);
}

}  // namespace
}  // namespace kipp::testing
