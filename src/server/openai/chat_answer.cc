// Answers of /v1/chat/completions, whole and streamed. Contract in answers.h.
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "server/openai/answer_parts.h"

namespace kipp::openai {
namespace {

using Kind = OutputEvent::Kind;

Json function_json(std::string name, std::string arguments) {
  return Json::object({{"name", Json::string(std::move(name))}, {"arguments", Json::string(std::move(arguments))}});
}

Json message_json(const Identity& identity, int32_t choice, const ChatMessage& message) {
  Json json = Json::object(
      {{"role", Json::string("assistant")}, {"content", Json::string(message.content.value_or(std::string()))}});
  if (message.reasoning_content) {
    json.set("reasoning_content", Json::string(*message.reasoning_content));
  }
  Json calls = Json::array();
  int32_t call_idx = 0;
  for (const ToolCall& call : message.tool_calls) {
    calls.push_back(Json::object({{"id", Json::string(tool_call_id(identity, choice, call_idx++))},
                                  {"type", Json::string("function")},
                                  {"function", function_json(call.name, call.arguments)}}));
  }
  if (call_idx > 0) {
    json.set("tool_calls", std::move(calls));
  }
  return json;
}

Json finish_json(Finish finish, bool has_calls) {
  return Json::string(std::string(finish_name(finish, has_calls)));
}

}  // namespace

std::string tool_call_id(const Identity& identity, int32_t choice, int32_t call_idx) {
  const size_t dash = identity.id.find('-');
  const size_t begin = dash == std::string::npos ? 0 : dash + 1;
  return fmt::format("call_{}_{}_{}", std::string_view(identity.id).substr(begin), choice, call_idx);
}

Json chat_completion_json(const Identity& identity, std::span<const ChatChoice> choices, const Usage& usage,
                          const Timings* timings) {
  Json list = Json::array();
  int32_t index = 0;
  for (const ChatChoice& choice : choices) {
    list.push_back(Json::object({{"index", Json::number(int64_t{index})},
                                 {"message", message_json(identity, index, choice.message)},
                                 {"logprobs", choice.logprobs ? chat_logprobs_json(*choice.logprobs) : Json()},
                                 {"finish_reason", finish_json(choice.finish, !choice.message.tool_calls.empty())}}));
    ++index;
  }
  Json answer = answer_head(identity, kChatObject, std::move(list));
  answer.set("usage", usage_json(usage));
  if (timings != nullptr) {
    answer.set("timings", timings_json(*timings));
  }
  return answer;
}

Json ChatStream::chunk(Json delta, Json finish_reason, const Usage& usage) {
  Json logprobs = options_->logprobs && !held_.empty() ? chat_logprobs_json(std::exchange(held_, {})) : Json();
  Json choices = Json::array({Json::object({{"index", Json::number(int64_t{choice_})},
                                            {"delta", std::move(delta)},
                                            {"logprobs", std::move(logprobs)},
                                            {"finish_reason", std::move(finish_reason)}})});
  return chunk_head(*options_, kChatChunkObject, std::move(choices), usage);
}

// The first one of a call has its id and name, the others a piece of its arguments.
Json ChatStream::tool_call_delta(const OutputEvent& event) const {
  Json call = Json::object({{"index", Json::number(int64_t{event.call_idx})}});
  if (event.kind == Kind::kToolCallBegin) {
    call.set("id", Json::string(tool_call_id(options_->identity, choice_, event.call_idx)));
    call.set("type", Json::string("function"));
    call.set("function", function_json(event.text, ""));
  } else {
    call.set("function", Json::object({{"arguments", Json::string(event.text)}}));
  }
  return Json::object({{"tool_calls", Json::array({std::move(call)})}});
}

std::string ChatStream::text_event(const char* field, TextFrame& frame, const std::string& text, const Usage& usage) {
  const auto chunk_of = [&](std::string_view with) {
    return chunk(Json::object({{field, Json::string(std::string(with))}}), Json(), usage);
  };
  if (!options_->has_plain_chunks()) return sse_event(chunk_of(text));
  if (!frame.is_made()) frame.make(chunk_of(TextFrame::kText));
  return frame.event(text);
}

std::string ChatStream::begin(const Usage& usage) {
  if (std::exchange(begun_, true)) {
    return {};
  }
  std::vector<TokenLogprob> later = std::exchange(held_, {});  // the role is no token's
  std::string event = sse_event(
      chunk(Json::object({{"role", Json::string("assistant")}, {"content", Json::string("")}}), Json(), usage));
  held_ = std::move(later);
  return event;
}

std::string ChatStream::push(std::span<const OutputEvent> events, std::vector<TokenLogprob> tokens,
                             const Usage& usage) {
  held_.insert(held_.end(), std::make_move_iterator(tokens.begin()), std::make_move_iterator(tokens.end()));
  std::string chunks = begin(usage);
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case Kind::kReasoning: chunks += text_event("reasoning_content", reasoning_, event.text, usage); break;
      case Kind::kContent: chunks += text_event("content", content_, event.text, usage); break;
      case Kind::kToolCallBegin: has_calls_ = true; [[fallthrough]];
      case Kind::kToolCallArguments: chunks += sse_event(chunk(tool_call_delta(event), Json(), usage)); break;
      case Kind::kToolCallEnd: break;
    }
  }
  return chunks;
}

std::string ChatStream::finish(Finish finish, const Usage& usage, const Timings* timings) {
  std::string chunks = begin(usage);
  Json last = chunk(Json::object(), finish_json(finish, has_calls_), usage);
  if (timings != nullptr) {
    last.set("timings", timings_json(*timings));
  }
  return chunks + sse_event(last);
}

}  // namespace kipp::openai
