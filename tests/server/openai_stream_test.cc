// Streams: the shape of chunks, and that the chunks joined are the whole answer, whatever the model says and however
// its tokens fall.
#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai/answer_fields.h"
#include "server/openai/answers.h"
#include "server/sse.h"
#include "tokenizer/qwen_tokenizer.h"

namespace kipp::openai {
namespace {

using testing::at;
using testing::chunks_of;
using ::testing::ElementsAre;
using testing::event_data;
using Kind = OutputEvent::Kind;

const Identity kIdentity = {
    .id = "chatcmpl-7", .created = 1700000000, .model = "kipp-demo", .system_fingerprint = "fp"};
const Usage kUsage = {.prompt_tokens = 9, .completion_tokens = 2};

void expect_documented(const Json& chunk, const std::vector<Field>& fields) {
  const auto checked = check(chunk, object(fields), Path(), Rules{.num_tokens = kNumTokens});
  EXPECT_TRUE(checked.has_value()) << (checked ? "" : checked.error().message) << write_json(chunk);
}

TEST(OpenAiStream, ChunksOfACompletion) {
  const StreamOptions options = {.identity = kIdentity};
  CompletionStream stream(options, 3);
  EXPECT_EQ(stream.push("Hi", {}, kUsage),
            R"(data: {"id":"chatcmpl-7","object":"text_completion","created":1700000000,"model":"kipp-demo",)"
            R"("system_fingerprint":"fp","choices":[{"text":"Hi","index":3,"logprobs":null,"finish_reason":null}]})"
            "\n\n");
  EXPECT_EQ(stream.push("", {}, kUsage), "");
  const auto last = chunks_of(stream.finish(Finish::kLength, kUsage, nullptr));
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(write_json(at(last[0], "choices", 0)), R"({"text":"","index":3,"logprobs":null,"finish_reason":"length"})");
  expect_documented(last[0], completion_answer_fields());
}

// Every chunk of text is what the JSON value of it is, whatever the text and the names around it are.
TEST(OpenAiStream, ChunksOfTextAreWholeJson) {
  Identity identity = kIdentity;
  identity.model = "a \"\x01\" model\n";  // the mark that stands for the text
  for (const bool include_usage : {false, true}) {
    const StreamOptions options = {.identity = identity, .include_usage = include_usage};
    CompletionStream completion(options, 2);
    ChatStream chat(options, 2);
    static_cast<void>(chat.begin(kUsage));
    for (const std::string text : {"a", "\x01", "\"quoted\" \\ \x1f", "\n\n", "\xc3\xa9\xe2\x80\xa8", "{}"}) {
      const auto of_completion = chunks_of(completion.push(text, {}, kUsage));
      ASSERT_EQ(of_completion.size(), 1U);
      EXPECT_EQ(at(of_completion[0], "choices", 0, "text").as_string(), text);
      const std::vector<OutputEvent> events = {{.kind = Kind::kReasoning, .text = text}, {.text = text}};
      const auto of_chat = chunks_of(chat.push(events, {}, kUsage));
      ASSERT_EQ(of_chat.size(), 2U);
      EXPECT_EQ(at(of_chat[0], "choices", 0, "delta", "reasoning_content").as_string(), text);
      EXPECT_EQ(at(of_chat[1], "choices", 0, "delta", "content").as_string(), text);
      for (const Json* chunk : {&of_completion[0], &of_chat[0], &of_chat[1]}) {
        EXPECT_EQ(at(*chunk, "model").as_string(), identity.model);
        EXPECT_EQ(at(*chunk, "choices", 0, "index").as_int64(), 2);
        EXPECT_EQ(chunk->find("usage") != nullptr, include_usage);
      }
      expect_documented(of_completion[0], completion_answer_fields());
    }
  }
}

TEST(OpenAiStream, TheRoleComesOnceAndFirst) {
  const StreamOptions options = {.identity = kIdentity};
  ChatStream stream(options, 0);
  const std::vector<OutputEvent> events = {{.kind = Kind::kReasoning, .text = "plan"}, {.text = "B"}};
  std::string text = stream.begin(kUsage);
  text += stream.begin(kUsage);
  text += stream.push(events, {}, kUsage);
  text += stream.finish(Finish::kStop, kUsage, nullptr);
  const auto chunks = chunks_of(text);
  ASSERT_EQ(chunks.size(), 4U);
  EXPECT_EQ(write_json(at(chunks[0], "choices", 0)),
            R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})");
  EXPECT_EQ(write_json(at(chunks[1], "choices", 0, "delta")), R"({"reasoning_content":"plan"})");
  EXPECT_EQ(write_json(at(chunks[2], "choices", 0, "delta")), R"({"content":"B"})");
  EXPECT_EQ(write_json(at(chunks[3], "choices", 0)),
            R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"})");
  for (const Json& chunk : chunks) {
    expect_documented(chunk, chat_chunk_fields());
    EXPECT_EQ(at(chunk, "id").as_string(), "chatcmpl-7");
    EXPECT_EQ(at(chunk, "created").as_int64(), 1700000000);
    EXPECT_EQ(at(chunk, "model").as_string(), "kipp-demo");
    EXPECT_EQ(at(chunk, "object").as_string(), "chat.completion.chunk");
    EXPECT_EQ(chunk.find("usage"), nullptr);
  }
  ChatStream silent(options, 0);  // nothing came: role and end all the same
  EXPECT_EQ(chunks_of(silent.finish(Finish::kStop, kUsage, nullptr)).size(), 2U);
}

TEST(OpenAiStream, PiecesOfACall) {
  const StreamOptions options = {.identity = kIdentity};
  ChatStream stream(options, 1);
  const std::vector<OutputEvent> events = {{.kind = Kind::kToolCallBegin, .text = "put", .call_idx = 0},
                                           {.kind = Kind::kToolCallArguments, .text = R"({"a")", .call_idx = 0},
                                           {.kind = Kind::kToolCallArguments, .text = ": 1}", .call_idx = 0},
                                           {.kind = Kind::kToolCallEnd, .call_idx = 0}};
  std::string text = stream.push(events, {}, kUsage);
  text += stream.finish(Finish::kStop, kUsage, nullptr);
  const auto chunks = chunks_of(text);
  ASSERT_EQ(chunks.size(), 5U);
  const auto call = [&](int i) { return write_json(at(chunks[static_cast<size_t>(i)], "choices", 0, "delta")); };
  EXPECT_EQ(call(1), R"({"tool_calls":[{"index":0,"id":"call_7_1_0","type":"function",)"
                     R"("function":{"name":"put","arguments":""}}]})");
  EXPECT_EQ(call(2), R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]})");
  EXPECT_EQ(call(3), R"({"tool_calls":[{"index":0,"function":{"arguments":": 1}"}}]})");
  EXPECT_EQ(at(chunks[4], "choices", 0, "finish_reason").as_string(), "tool_calls");
  std::ranges::for_each(chunks, [](const Json& chunk) { expect_documented(chunk, chat_chunk_fields()); });
}

TEST(OpenAiStream, UsageComesWhereItWasAskedFor) {
  const auto usage_of = [](bool include, bool continuous, bool is_chat) {
    Generation generation;
    generation.include_usage = include;
    generation.continuous_usage = continuous;
    const StreamOptions options = stream_options(kIdentity, generation);
    ChatStream chat(options, 0);
    CompletionStream completion(options, 0);
    std::string text = is_chat ? chat.begin(kUsage) : completion.push("a", {}, kUsage);
    text += is_chat ? chat.finish(Finish::kStop, kUsage, nullptr) : completion.finish(Finish::kStop, kUsage, nullptr);
    std::vector<std::string> usages;
    for (const Json& chunk : chunks_of(text + stream_usage(options, is_chat, kUsage))) {
      const Json* usage = chunk.find("usage");
      const std::string total = usage != nullptr ? write_json(at(*usage, "total_tokens")) : "";
      usages.push_back(usage == nullptr ? "none" : usage->is_null() ? "null" : total);
      expect_documented(chunk, is_chat ? chat_chunk_fields() : completion_answer_fields());
      EXPECT_EQ(at(chunk, "choices").items().empty(), include && usages.size() == 3);
    }
    return usages;
  };
  for (const bool is_chat : {false, true}) {
    EXPECT_THAT(usage_of(false, false, is_chat), ElementsAre("none", "none"));
    EXPECT_THAT(usage_of(true, false, is_chat), ElementsAre("null", "null", "11"));
    EXPECT_THAT(usage_of(true, true, is_chat), ElementsAre("11", "11", "11"));
    EXPECT_THAT(usage_of(false, true, is_chat), ElementsAre("none", "none"));
  }
}

TEST(OpenAiStream, LogprobsOfSilentTokensComeWithTheNextChunk) {
  const StreamOptions options = {.identity = kIdentity, .logprobs = true};
  ChatStream stream(options, 0);
  const auto token = [](const char* bytes) { return std::vector<TokenLogprob>{{.bytes = bytes, .logprob = -1.0F}}; };
  const std::vector<OutputEvent> content = {{.text = "x"}};
  std::string text = stream.push({}, token("\xf0"), kUsage);
  text += stream.push(content, token("x"), kUsage);
  text += stream.push({}, token("y"), kUsage);
  text += stream.finish(Finish::kStop, kUsage, nullptr);
  std::vector<size_t> numbers;
  for (const Json& chunk : chunks_of(text)) {
    numbers.push_back(at(chunk, "choices", 0, "logprobs", "content").items().size());
  }
  EXPECT_THAT(numbers, ElementsAre(0, 2, 1));
}

TEST(OpenAiStream, ErrorsAndTheEnd) {
  EXPECT_EQ(sse_error(ApiError{.status = 503, .type = "server_error", .code = "shutting_down", .message = "a\nb"}),
            "data: {\"error\":{\"message\":\"a\\nb\",\"type\":\"server_error\",\"param\":null,"
            "\"code\":\"shutting_down\"}}\n\n");
  EXPECT_THAT(event_data(kSseDone), ElementsAre("[DONE]"));
}

TEST(OpenAiStream, TimingsAreInTheLastChunk) {
  const StreamOptions options = {.identity = kIdentity};
  const Timings timings = {.prompt_tokens = 6};
  const auto chat = chunks_of(ChatStream(options, 0).finish(Finish::kStop, kUsage, &timings));
  EXPECT_EQ(at(chat.back(), "timings", "prompt_n").as_int64(), 6);
  EXPECT_EQ(chat.front().find("timings"), nullptr);
  const auto completion = chunks_of(CompletionStream(options, 0).finish(Finish::kStop, kUsage, &timings));
  EXPECT_EQ(at(completion.back(), "timings", "prompt_n").as_int64(), 6);
  expect_documented(chat.back(), chat_chunk_fields());
  expect_documented(completion.back(), completion_answer_fields());
}

// Answers of random pieces: texts, halves of characters, think and call tokens, calls that are none.
std::vector<int32_t> random_answer(std::mt19937& random) {
  const Tokenizer& tokenizer = kipp::testing::qwen_tokenizer();
  constexpr std::array kPieces = {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": null}}\n</tool_call>",
                                  "Hello",
                                  "\n\n",
                                  " 🫨",
                                  "é\u0301",
                                  "<think>",
                                  "</think>",
                                  "\n",
                                  "<tool_call>",
                                  "</tool_call>",
                                  "{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.50, \"}}\"]}}",
                                  "{\"name\": \"g\", \"arguments\": {}}",
                                  "{\"name\": \"h\"}",
                                  "{}",
                                  "\"",
                                  "\\u0041",
                                  "<|im_start|>"};
  std::vector<int32_t> ids;
  const auto count = std::uniform_int_distribution<int>(0, 14)(random);
  for (int i = 0; i < count; ++i) {
    const auto piece = std::uniform_int_distribution<size_t>(0, kPieces.size())(random);
    if (piece == kPieces.size()) {
      ids.push_back(std::uniform_int_distribution<int32_t>(0, kNumTokens - 1)(random));
      continue;
    }
    const auto encoded = tokenizer.encode(kPieces[piece]).value();
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  ids.resize(std::uniform_int_distribution<size_t>(ids.size() / 2, ids.size())(random));  // often cut
  return ids;
}

// The message that a client puts together from deltas.
Json join_deltas(const std::vector<Json>& chunks) {
  Json message = Json::object();
  std::vector<std::array<std::string, 3>> calls;  // id, name, arguments
  std::string content;
  std::string reasoning;
  bool has_reasoning = false;
  for (const Json& chunk : chunks) {
    const Json& delta = at(chunk, "choices", 0, "delta");
    content += at(delta, "content").as_string();
    has_reasoning = has_reasoning || delta.find("reasoning_content") != nullptr;
    reasoning += at(delta, "reasoning_content").as_string();
    for (const Json& call : at(delta, "tool_calls").items()) {
      calls.resize(std::max(calls.size(), static_cast<size_t>(at(call, "index").as_int64().value()) + 1));
      auto& [id, name, arguments] = calls[static_cast<size_t>(at(call, "index").as_int64().value())];
      id += at(call, "id").as_string();
      name += at(call, "function", "name").as_string();
      arguments += at(call, "function", "arguments").as_string();
    }
  }
  message.set("role", at(chunks.at(0), "choices", 0, "delta", "role"));
  message.set("content", Json::string(content));
  if (has_reasoning) {
    message.set("reasoning_content", Json::string(reasoning));
  }
  Json list = Json::array();
  for (const auto& [id, name, arguments] : calls) {
    list.push_back(Json::object(
        {{"id", Json::string(id)},
         {"type", Json::string("function")},
         {"function", Json::object({{"name", Json::string(name)}, {"arguments", Json::string(arguments)}})}}));
  }
  if (!calls.empty()) {
    message.set("tool_calls", std::move(list));
  }
  return message;
}

TEST(OpenAiStream, JoinedDeltasAreTheWholeAnswer) {
  const Tokenizer& tokenizer = kipp::testing::qwen_tokenizer();
  const StreamOptions options = {.identity = kIdentity, .logprobs = true};
  std::mt19937 random(6);
  size_t num_calls = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<int32_t> ids = random_answer(random);
    OutputParser parser(tokenizer, {.in_reasoning = round % 2 == 0});
    ChatStream stream(options, 0);
    ChatChoice whole = {.message = {.role = Role::kAssistant}, .logprobs = std::vector<TokenLogprob>()};
    std::string text;
    const auto take = [&](const std::vector<OutputEvent>& events, std::vector<TokenLogprob> tokens) {
      std::ranges::for_each(events, [&](const OutputEvent& event) { append_event(event, whole.message); });
      whole.logprobs->insert(whole.logprobs->end(), tokens.begin(), tokens.end());
      text += stream.push(events, std::move(tokens), kUsage);
    };
    for (const int32_t id : ids) {
      take(parser.push(id).value(), {token_logprob({.id = id, .logprob = -1.0F}, tokenizer).value()});
    }
    take(parser.finish(), {});
    text += stream.finish(Finish::kStop, kUsage, nullptr);

    const Json answer = chat_completion_json(kIdentity, std::vector{whole}, kUsage, nullptr);
    const std::vector<Json> chunks = chunks_of(text);
    ASSERT_EQ(write_json(join_deltas(chunks)), write_json(at(answer, "choices", 0, "message"))) << round;
    ASSERT_EQ(at(chunks.back(), "choices", 0, "finish_reason").as_string(),
              at(answer, "choices", 0, "finish_reason").as_string());
    Json joined = Json::array();
    for (const Json& chunk : chunks) {
      std::ranges::for_each(at(chunk, "choices", 0, "logprobs", "content").items(),
                            [&](const Json& entry) { joined.push_back(entry); });
    }
    ASSERT_EQ(write_json(joined), write_json(at(answer, "choices", 0, "logprobs", "content")));
    num_calls += whole.message.tool_calls.size();
    if (round % 50 == 0) {
      expect_documented(answer, chat_answer_fields());
      std::ranges::for_each(chunks, [](const Json& chunk) { expect_documented(chunk, chat_chunk_fields()); });
    }
  }
  EXPECT_GT(num_calls, 100U);
}

// The same for completions, with the offsets of a stream that goes on.
TEST(OpenAiStream, JoinedTextsAreTheWholeAnswer) {
  const Tokenizer& tokenizer = kipp::testing::qwen_tokenizer();
  const StreamOptions options = {.identity = kIdentity, .logprobs = true};
  std::mt19937 random(7);
  for (int round = 0; round < 1000; ++round) {
    StreamDecoder decoder(tokenizer);
    CompletionStream stream(options, 0);
    CompletionChoice whole = {.logprobs = std::vector<TokenLogprob>()};
    std::string text;
    const auto take = [&](const std::string& piece, std::vector<TokenLogprob> tokens) {
      whole.text += piece;
      whole.logprobs->insert(whole.logprobs->end(), tokens.begin(), tokens.end());
      text += stream.push(piece, std::move(tokens), kUsage);
    };
    for (const int32_t id : random_answer(random)) {
      take(decoder.push(id).value(), {token_logprob({.id = id, .logprob = -1.0F}, tokenizer).value()});
    }
    take(decoder.finish(), {});
    text += stream.finish(Finish::kStop, kUsage, nullptr);

    const Json answer = completion_json(kIdentity, std::vector{whole}, kUsage, nullptr);
    std::string joined;
    Json offsets = Json::array();
    for (const Json& chunk : chunks_of(text)) {
      joined += at(chunk, "choices", 0, "text").as_string();
      std::ranges::for_each(at(chunk, "choices", 0, "logprobs", "text_offset").items(),
                            [&](const Json& offset) { offsets.push_back(offset); });
    }
    ASSERT_EQ(joined, at(answer, "choices", 0, "text").as_string()) << round;
    ASSERT_EQ(write_json(offsets), write_json(at(answer, "choices", 0, "logprobs", "text_offset")));
  }
}

// Where every token is whole characters, each offset is where its text stands.
TEST(OpenAiStream, OffsetsPointAtTheTokensText) {
  const Tokenizer& tokenizer = kipp::testing::qwen_tokenizer();
  const std::string text = "Grüße, 世界! Omega and more.";
  std::vector<TokenLogprob> tokens;
  const std::vector<int32_t> ids = tokenizer.encode(text).value();
  for (const int32_t id : ids) {
    tokens.push_back(token_logprob({.id = id}, tokenizer).value());
  }
  TextOffset offset;
  const Json logprobs = completion_logprobs_json(tokens, offset);
  for (size_t i = 0; i < tokens.size(); ++i) {
    size_t byte = 0;  // of the character at the offset
    for (int64_t left = at(logprobs, "text_offset", i).as_int64().value(); left > 0; --left) {
      byte += static_cast<size_t>(read_utf8(std::string_view(text).substr(byte)).length);
    }
    EXPECT_EQ(text.substr(byte, tokens[i].bytes.size()), tokens[i].bytes);
  }
}

}  // namespace
}  // namespace kipp::openai
