// Random texts with tags, calls, stops and limits: whole and streamed answers agree with each other and with what the
// parser says of the tokens at once; alone, and many together in a pool that is too small for all.
#include <gmock/gmock.h>

#include <random>

#include <fmt/format.h>

#include "kipp/chat_output.h"
#include "server/api/api_fixture.h"

namespace kipp::testing {
namespace {

constexpr std::string_view kTools = R"("tools":[{"type":"function","function":{"name":"f"}}])";

class RandomAnswers : public ApiTest {
 protected:
  // So few blocks that requests are preempted when many run.
  RandomAnswers() : ApiTest(24, 8) {}

  size_t below(size_t bound) { return random_() % bound; }

  std::string text() {
    static const std::vector<std::string> kPieces = {"Hello",
                                                     " world",
                                                     "\n",
                                                     "\n\n",
                                                     "Möbel",
                                                     "🫨",
                                                     "日本",
                                                     "<think>",
                                                     "plan",
                                                     "</think>",
                                                     "<tool_call>",
                                                     "</tool_call>",
                                                     "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
                                                     "{\"name\": \"g\", \"arguments\": {}}",
                                                     "<",
                                                     ">",
                                                     "think",
                                                     "tool_call",
                                                     " ",
                                                     "}",
                                                     "\"",
                                                     "1.50",
                                                     "\\u00e9"};
    std::string text = below(3) == 0 ? "<think>\n" : "";
    for (size_t count = below(14); count > 0; --count) text += kPieces[below(kPieces.size())];
    return text;
  }

  // A piece of the text, of whole characters.
  std::string stop_of(const std::string& text) {
    const auto begins = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U; };
    size_t begin = below(text.size());
    while (begin > 0 && !begins(begin)) --begin;
    size_t end = std::min(text.size(), begin + 1 + below(9));
    while (end < text.size() && !begins(end)) ++end;
    return text.substr(begin, end - begin);
  }

  // What an answer must be, by the parser that takes everything at once.
  Said expected(const std::vector<int32_t>& output, const std::string& stop, bool tools, std::string& decoded) const {
    decoded = tokenizer().decode(output, true).value();
    const size_t cut = stop.empty() ? std::string::npos : decoded.find(stop);
    const std::string shown = decoded.substr(0, cut);
    const ChatMessage message = parse_output(output, shown, tokenizer(), {.tool_calls = tools}).value();
    Said said{.content = message.content.value_or(""), .reasoning = message.reasoning_content.value_or("")};
    for (const ToolCall& call : message.tool_calls) {
      said.calls.emplace_back(call.name, call.arguments.empty() ? "{}" : call.arguments);
    }
    return said;
  }

  std::mt19937 random_{20261130};
};

TEST_F(RandomAnswers, WholeStreamedAndParsedAgree) {
  for (int round = 0; round < 100; ++round) {
    const bool tools = below(2) == 0;
    const std::string said = text();
    const std::string stop = said.empty() || below(2) == 0 ? "" : stop_of(said);
    std::string fields(tools ? kTools : R"("n":1)");
    if (!stop.empty()) fields += fmt::format(R"(,"stop":{})", json_text(stop));
    if (below(3) == 0) fields += R"(,"logprobs":true)";
    const std::vector<int32_t> output = ids(said);
    script_chat_ids(fields, {output});
    SCOPED_TRACE(fmt::format("{} says {}", fields, json_text(said)));
    std::string decoded;
    const Said wanted = expected(output, stop, tools, decoded);
    const ApiAnswer answer = chat(fields);
    ASSERT_EQ(answer.status, 200) << write_json(answer.json);
    const Said& got = answer.said();
    EXPECT_EQ(got.content, wanted.content);
    EXPECT_EQ(got.reasoning, wanted.reasoning);
    EXPECT_EQ(got.calls, wanted.calls);
    if (HasFailure()) return;
  }
}

TEST_F(RandomAnswers, ManyTogetherGetWhatTheyGetAlone) {
  std::vector<std::string> bodies;
  std::vector<std::vector<Said>> alone;
  for (int i = 0; i < 24; ++i) {
    const std::string fields =
        fmt::format(R"("messages":[{{"role":"user","content":"{} {}"}}],"n":{},"max_tokens":120,"stream":{},{})",
                    std::string(60 * below(4), 'x'), i, 1 + below(3), below(2) == 0 ? "true" : "false", kTools);
    std::string long_text = text();
    for (size_t count = below(80); count > 0; --count) long_text += " and so on";
    script_chat(fields, {long_text, text(), text() + text()});
    bodies.push_back(chat_body(fields));
    alone.push_back(ask("/v1/chat/completions", bodies.back()).choices);
  }
  std::vector<std::shared_ptr<RecordedExchange>> together;
  together.reserve(bodies.size());
  for (const std::string& body : bodies) together.push_back(send("/v1/chat/completions", body));
  for (size_t i = 0; i < bodies.size(); ++i) {
    if (i % 5 == 4) {
      together[i]->close();  // some leave
    } else {
      EXPECT_EQ(read(*together[i]).choices, alone[i]) << bodies[i];
    }
  }
  expect_idle();
  EXPECT_GT(service_->stats().scheduler.num_preemptions, 0U) << "the pool was meant to be too small";
}

}  // namespace
}  // namespace kipp::testing
