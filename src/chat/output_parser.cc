// The states of an assistant's turn, told apart by token ids. Contract in kipp/chat_output.h.
#include <algorithm>
#include <optional>
#include <utility>

#include "chat/format_tokens.h"
#include "chat/tool_call_parser.h"
#include "kipp/chat_output.h"

namespace kipp {
namespace {

using Kind = OutputEvent::Kind;

}  // namespace

struct OutputParser::Impl {
  enum class State : uint8_t { kReasoning, kContent, kToolCall };

  Impl(const Tokenizer& tokenizer, OutputParserOptions options)
      : decoder(tokenizer),
        think_begin(tokenizer.token_to_id(chat::kThinkBegin)),
        think_end(tokenizer.token_to_id(chat::kThinkEnd)),
        call_begin(options.tool_calls ? tokenizer.token_to_id(chat::kCallBegin) : -1),
        call_end(options.tool_calls ? tokenizer.token_to_id(chat::kCallEnd) : -1),
        state(options.in_reasoning ? State::kReasoning : State::kContent),
        skip_leading_lf(options.in_reasoning) {}

  // Whether an id is a token of the format and not text, in this state.
  bool is_structure(int32_t id) const;
  bool take_structure(int32_t id, std::vector<OutputEvent>& events);
  void take_text(std::string_view text, std::vector<OutputEvent>& events);
  void add_plain(Kind kind, std::string_view text, std::vector<OutputEvent>& events);
  void add_call_progress(const chat::ToolCallParser::Progress& progress, std::vector<OutputEvent>& events);
  void end_call(std::string_view end_token, std::vector<OutputEvent>& events);
  void enter(State next);

  StreamDecoder decoder;
  int32_t think_begin, think_end, call_begin, call_end;  // -1: the tokenizer has none, or it is not asked for
  State state;
  bool skip_leading_lf;   // line feeds that come next are the format's
  bool any_text = false;  // content was seen: <think> is text from now on
  std::string held_lf;    // line feeds that are text only if text follows
  chat::ToolCallParser call;
  std::string call_text;  // of a call whose name is not known yet, letter for letter
  int32_t num_calls = 0;
};

void OutputParser::Impl::enter(State next) {
  state = next;
  held_lf.clear();
  skip_leading_lf = true;
}

bool OutputParser::Impl::is_structure(int32_t id) const {
  if (id < 0) {
    return false;
  }
  switch (state) {
    case State::kReasoning: return id == think_end;
    case State::kContent: return (id == think_begin && !any_text) || id == call_begin;
    case State::kToolCall: return id == call_end;
  }
  return false;
}

// False: the id is text.
bool OutputParser::Impl::take_structure(int32_t id, std::vector<OutputEvent>& events) {
  if (id < 0 || (id != think_begin && id != think_end && id != call_begin && id != call_end)) {
    return false;
  }
  take_text(decoder.finish(),
            events);  // first: what a broken character leaves is content, after which no <think> counts
  if (!is_structure(id)) {
    return false;
  }
  if (id == think_begin) {
    enter(State::kReasoning);
  } else if (id == think_end) {
    enter(State::kContent);
  } else if (id == call_begin) {
    enter(State::kToolCall);
    any_text = true;
    call = {};
    call_text = chat::kCallBegin;
  } else {
    end_call(chat::kCallEnd, events);
  }
  return true;
}

void OutputParser::Impl::take_text(std::string_view text, std::vector<OutputEvent>& events) {
  if (text.empty()) {
    return;
  }
  if (state != State::kToolCall) {
    add_plain(state == State::kReasoning ? Kind::kReasoning : Kind::kContent, text, events);
    return;
  }
  call_text += call.named() ? std::string_view() : text;
  add_call_progress(call.push(text), events);
}

// Trailing line feeds wait: whether they are text is known only by what follows.
void OutputParser::Impl::add_plain(Kind kind, std::string_view text, std::vector<OutputEvent>& events) {
  if (skip_leading_lf) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  }
  if (text.empty()) {
    return;
  }
  skip_leading_lf = false;
  const size_t end = text.find_last_not_of('\n') + 1;
  any_text = any_text || kind == Kind::kContent;
  if (end > 0) {
    events.push_back({.kind = kind, .text = std::exchange(held_lf, {}) + std::string(text.substr(0, end))});
  }
  held_lf += text.substr(end);
}

void OutputParser::Impl::add_call_progress(const chat::ToolCallParser::Progress& progress,
                                           std::vector<OutputEvent>& events) {
  if (progress.named) {
    events.push_back({.kind = Kind::kToolCallBegin, .text = call.name(), .call_idx = num_calls});
  }
  if (!progress.arguments.empty()) {
    events.push_back({.kind = Kind::kToolCallArguments, .text = progress.arguments, .call_idx = num_calls});
  }
}

void OutputParser::Impl::end_call(std::string_view end_token, std::vector<OutputEvent>& events) {
  add_call_progress(call.finish(), events);
  const bool named = call.named();
  enter(State::kContent);
  if (named) {
    events.push_back({.kind = Kind::kToolCallEnd, .call_idx = num_calls++, .complete = call.complete()});
    return;
  }
  skip_leading_lf = false;
  add_plain(Kind::kContent, call_text + std::string(end_token), events);
}

OutputParser::OutputParser(const Tokenizer& tokenizer, OutputParserOptions options)
    : impl_(std::make_unique<Impl>(tokenizer, options)) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

Result<std::vector<OutputEvent>> OutputParser::push(int32_t id) {
  std::vector<OutputEvent> events;
  if (!impl_->take_structure(id, events)) {
    KIPP_ASSIGN(const std::string text, impl_->decoder.push(id));
    impl_->take_text(text, events);
  }
  return events;
}

std::vector<OutputEvent> OutputParser::push_text(std::string_view text, int32_t id) {
  std::vector<OutputEvent> events;
  // What a broken character leaves is not part of the token.
  const std::string_view before = text.substr(0, impl_->decoder.finish().size());
  impl_->take_text(before, events);
  if (!impl_->is_structure(id)) {
    impl_->take_text(text.substr(before.size()), events);
  }
  return events;
}

std::vector<OutputEvent> OutputParser::finish() {
  std::vector<OutputEvent> events;
  impl_->take_text(impl_->decoder.finish(), events);
  if (impl_->state == Impl::State::kToolCall) {
    impl_->end_call({}, events);
  }
  if (impl_->state == Impl::State::kContent && !impl_->held_lf.empty()) {
    events.push_back({.kind = Kind::kContent, .text = std::exchange(impl_->held_lf, {})});
  }
  return events;
}

bool ends_in_reasoning(std::span<const int32_t> prompt, const Tokenizer& tokenizer) {
  const int32_t begin = tokenizer.token_to_id(chat::kThinkBegin);
  const int32_t end = tokenizer.token_to_id(chat::kThinkEnd);
  const auto last = std::find_if(prompt.rbegin(), prompt.rend(), [&](int32_t id) { return id == begin || id == end; });
  return begin >= 0 && last != prompt.rend() && *last == begin;
}

Result<ChatMessage> parse_output(std::span<const int32_t> ids, std::string_view text, const Tokenizer& tokenizer,
                                 OutputParserOptions options) {
  ChatMessage message;
  message.role = Role::kAssistant;
  const auto append = [&](const std::vector<OutputEvent>& events) {
    for (const OutputEvent& event : events) {
      append_event(event, message);
    }
  };
  OutputParser parser(tokenizer, options);
  StreamDecoder decoder(tokenizer);
  size_t whole = 0;  // tokens
  for (; whole < ids.size(); ++whole) {
    KIPP_ASSIGN(const std::string piece, decoder.push(ids[whole]));
    if (piece.size() > text.size()) {
      break;
    }
    text.remove_prefix(piece.size());
    KIPP_ASSIGN(const std::vector<OutputEvent> events, parser.push(ids[whole]));
    append(events);
  }
  if (whole < ids.size()) {
    append(parser.push_text(text, ids[whole]));
  } else if (decoder.finish().size() > text.size()) {
    append(parser.push_text(text));
  }
  append(parser.finish());
  return message;
}

void append_event(const OutputEvent& event, ChatMessage& message) {
  const auto append = [&](std::optional<std::string>& text) { text = text.value_or("") + event.text; };
  switch (event.kind) {
    case Kind::kReasoning: append(message.reasoning_content); break;
    case Kind::kContent: append(message.content); break;
    case Kind::kToolCallBegin: message.tool_calls.push_back({.name = event.text, .arguments_are_text = true}); break;
    case Kind::kToolCallArguments:
      if (!message.tool_calls.empty()) {
        message.tool_calls.back().arguments += event.text;
      }
      break;
    case Kind::kToolCallEnd: break;
  }
}

}  // namespace kipp
