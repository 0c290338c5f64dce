// A scanner of one JSON object that knows where its members begin and end; whether all of it is valid JSON is checked
// once, at the end, by the parser of base/json.h.
#include "chat/tool_call_parser.h"

#include <utility>

#include "base/json.h"

namespace kipp::chat {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool is_object(std::string_view text) {
  const auto value = parse_json(text);
  return value && value->is_object();
}

}  // namespace

ToolCallParser::Progress ToolCallParser::push(std::string_view text) {
  Progress progress;
  body_ += text;
  for (const char c : text) {
    take(c, progress);
  }
  return progress;
}

ToolCallParser::Progress ToolCallParser::finish() {
  Progress progress;
  if (named_ && !has_arguments_ && state_ == State::kDone) {  // of a call that was cut nobody knows them
    progress.arguments = "{}";
  }
  complete_ = named_ && state_ == State::kDone && parse_json(body_).has_value();
  return progress;
}

void ToolCallParser::take(char c, Progress& progress) {
  if (state_ == State::kScalar && (is_space(c) || c == ',' || c == '}')) {
    end_value(progress);  // c is what follows it
  }
  switch (state_) {
    case State::kKey:
      raw_ += c;
      if (ends_string(c)) {
        end_key();
      }
      break;
    case State::kString:
      keep(c, progress);
      if (ends_string(c)) {
        end_value(progress);
      }
      break;
    case State::kNested: take_nested(c, progress); break;
    case State::kScalar: keep(c, progress); break;
    case State::kValueStart: begin_value(c, progress); break;
    default: take_between(c);
  }
}

void ToolCallParser::take_between(char c) {
  if (is_space(c)) {
    return;
  }
  const bool key = c == '"' && (state_ == State::kFirstKey || state_ == State::kNextKey);
  const bool close = c == '}' && (state_ == State::kFirstKey || state_ == State::kAfterValue);
  if (key) {
    raw_ = c;
    state_ = State::kKey;
  } else if (close) {
    state_ = State::kDone;
  } else if (c == '{' && state_ == State::kStart) {
    state_ = State::kFirstKey;
  } else if (c == ':' && state_ == State::kColon) {
    state_ = State::kValueStart;
  } else if (c == ',' && state_ == State::kAfterValue) {
    state_ = State::kNextKey;
  } else {
    state_ = State::kBroken;
  }
}

void ToolCallParser::begin_value(char c, Progress& progress) {
  if (is_space(c)) {
    return;
  }
  raw_.clear();
  depth_ = 0;
  streaming_ = c == '{' && member_ == Member::kArguments && !has_arguments_;
  has_arguments_ = has_arguments_ || streaming_;
  if (c == '{' || c == '[') {
    state_ = State::kNested;
    take_nested(c, progress);
  } else if (c == ',' || c == '}') {
    state_ = State::kBroken;
  } else {
    state_ = c == '"' ? State::kString : State::kScalar;
    keep(c, progress);
  }
}

void ToolCallParser::take_nested(char c, Progress& progress) {
  keep(c, progress);
  if (in_string_) {
    in_string_ = !ends_string(c);
  } else if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if ((c == '}' || c == ']') && --depth_ == 0) {
    end_value(progress);
  }
}

bool ToolCallParser::ends_string(char c) {
  const bool ends = c == '"' && !escaped_;
  escaped_ = c == '\\' && !escaped_;
  return ends;
}

void ToolCallParser::keep(char c, Progress& progress) {
  if (!streaming_) {
    raw_ += c;
  } else if (named_) {
    progress.arguments += c;
  } else {
    held_arguments_ += c;
  }
}

void ToolCallParser::end_key() {
  const auto key = parse_json(raw_);
  const std::string name = key ? key->as_string() : std::string();
  member_ = name == "name" ? Member::kName : name == "arguments" ? Member::kArguments : Member::kOther;
  state_ = State::kColon;
}

void ToolCallParser::end_value(Progress& progress) {
  state_ = State::kAfterValue;
  if (streaming_) {
    streaming_ = false;
  } else if (member_ == Member::kName) {
    set_name(progress);
  } else if (member_ == Member::kArguments) {
    set_arguments(progress);
  }
}

void ToolCallParser::set_name(Progress& progress) {
  const auto value = parse_json(raw_);
  if (named_ || !value || !value->is_string() || value->as_string().empty()) {
    state_ = State::kBroken;
    return;
  }
  name_ = value->as_string();
  named_ = true;
  progress.named = true;
  progress.arguments += std::exchange(held_arguments_, {});
}

void ToolCallParser::set_arguments(Progress& progress) {
  const auto value = parse_json(raw_);
  const bool is_text = value && value->is_string() && is_object(value->as_string());
  if (has_arguments_ || !(is_text || (value && value->is_null()))) {
    state_ = State::kBroken;
    return;
  }
  if (is_text) {
    has_arguments_ = true;
    (named_ ? progress.arguments : held_arguments_) += value->as_string();
  }
}

}  // namespace kipp::chat
