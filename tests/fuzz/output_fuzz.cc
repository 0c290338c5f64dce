// Any tokens as an assistant's output: events in order, calls whole or marked as cut, text neither lost nor made up;
// and any stop strings on any text, however it is cut into pieces.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/stop_matcher.h"
#include "fuzz/require.h"
#include "fuzz/small_vocabulary.h"
#include "kipp/chat_output.h"
#include "tokenizer/utf8.h"

namespace {

using kipp::OutputEvent;
using kipp::Tokenizer;
using kipp::TokenType;
using kipp::fuzzing::require;
using Kind = OutputEvent::Kind;

constexpr int32_t kNumBytes = 256;
constexpr int32_t kNumTags = 4;
constexpr int32_t kNumAdded = 6;

// Ids 256 … 261: the four of the format, one that stands for a piece of JSON, one control token.
const Tokenizer& tokenizer() {
  static const Tokenizer instance = [] {
    kipp::testing::Vocabulary vocabulary = kipp::testing::byte_vocabulary();
    for (const char* text :
         {"<think>", "</think>", "<tool_call>", "</tool_call>", "{\"name\": \"f\", \"arguments\": "}) {
      vocabulary.add(text, TokenType::kUserDefined);
    }
    vocabulary.add("<|im_end|>", TokenType::kControl);
    return Tokenizer::create(vocabulary.source()).value();
  }();
  return instance;
}

// Bytes 0xF8 … 0xFD, which no text has, stand for the added tokens.
std::vector<int32_t> ids_of(std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char byte : bytes) {
    const auto value = static_cast<int32_t>(static_cast<uint8_t>(byte));
    ids.push_back(value >= 0xF8 && value < 0xF8 + kNumAdded ? kNumBytes + value - 0xF8 : value);
  }
  return ids;
}

// What a stream of events must be like, whatever the tokens were.
class EventChecker {
 public:
  void take(const OutputEvent& event) {
    shown_bytes_ += event.text.size();
    switch (event.kind) {
      case Kind::kReasoning: require(!call_ && !any_content_ && !event.text.empty()); break;
      case Kind::kContent:
        require(!call_ && !event.text.empty());
        any_content_ = true;
        break;
      case Kind::kToolCallBegin:
        require(!call_ && event.call_idx == num_calls_);
        call_.emplace();
        any_content_ = true;
        break;
      case Kind::kToolCallArguments:
        require(call_.has_value() && event.call_idx == num_calls_ && !event.text.empty());
        *call_ += event.text;
        break;
      case Kind::kToolCallEnd:
        require(call_.has_value() && event.call_idx == num_calls_);
        require(!event.complete || kipp::parse_json(*call_).has_value());
        call_.reset();
        ++num_calls_;
        break;
    }
  }
  void finish(size_t num_text_bytes) const {
    require(!call_);
    require(shown_bytes_ <= num_text_bytes + 2 * static_cast<size_t>(num_calls_));  // missing arguments read as {}
  }

 private:
  std::optional<std::string> call_;  // the arguments so far
  int32_t num_calls_ = 0;
  bool any_content_ = false;
  size_t shown_bytes_ = 0;
};

bool same(const kipp::ChatMessage& a, const kipp::ChatMessage& b) {
  const auto same_call = [](const kipp::ToolCall& x, const kipp::ToolCall& y) {
    return x.name == y.name && x.arguments == y.arguments;
  };
  return a.content == b.content && a.reasoning_content == b.reasoning_content &&
         std::ranges::equal(a.tool_calls, b.tool_calls, same_call);
}

// Tokens that spell the first `limit` bytes of the text of ids, with the added tokens that are whole before the limit
// and the bytes of everything else. with_part: also of a tag of the format that the limit cuts.
std::vector<int32_t> respelled(const std::vector<int32_t>& ids, size_t limit, bool with_part) {
  std::vector<int32_t> result;
  const auto spell = [&](std::string_view text) {
    for (const char byte : text) {
      result.push_back(static_cast<int32_t>(static_cast<uint8_t>(byte)));
    }
  };
  kipp::StreamDecoder decoder(tokenizer());
  for (const int32_t id : ids) {
    const std::string piece = decoder.push(id).value();
    if (piece.size() > limit) {
      const bool is_tag = id >= kNumBytes && id < kNumBytes + kNumTags;
      const size_t before = is_tag ? piece.size() - tokenizer().token_bytes(id).value().size() : limit;
      spell(std::string_view(piece).substr(0, with_part ? limit : std::min(limit, before)));
      return result;
    }
    limit -= piece.size();
    const bool added = id >= kNumBytes && !piece.empty();
    spell(std::string_view(piece).substr(0, piece.size() - (added ? tokenizer().token_bytes(id).value().size() : 0)));
    if (added) {
      result.push_back(id);
    }
  }
  spell(std::string_view(decoder.finish()).substr(0, limit));
  return result;
}

// A message cut by a stop string is that of the cut text, wherever in a character's tokens the cut was; of a tag that
// is cut the part may be missing.
void check_cut(const std::vector<int32_t>& ids, std::string_view text, kipp::OutputParserOptions options) {
  const std::string_view cut = text.substr(0, kipp::valid_utf8_prefix(text.substr(0, text.size() / 2)));
  const std::vector<int32_t> shown = respelled(ids, cut.size(), true);
  require(tokenizer().decode(shown, true).value() == cut);
  const kipp::ChatMessage message = kipp::parse_output(ids, cut, tokenizer(), options).value();
  const std::vector<int32_t> less = respelled(ids, cut.size(), false);
  const std::string less_text = tokenizer().decode(less, true).value();
  require(same(message, kipp::parse_output(shown, cut, tokenizer(), options).value()) ||
          same(message, kipp::parse_output(less, less_text, tokenizer(), options).value()));
}

void fuzz_output(std::string_view bytes, kipp::OutputParserOptions options) {
  const std::vector<int32_t> ids = ids_of(bytes);
  const std::string text = tokenizer().decode(ids, true).value();
  kipp::OutputParser parser(tokenizer(), options);
  EventChecker checker;
  kipp::ChatMessage message;
  const auto take = [&](const std::vector<OutputEvent>& events) {
    for (const OutputEvent& event : events) {
      checker.take(event);
      append_event(event, message);
    }
  };
  for (const int32_t id : ids) {
    take(parser.push(id).value());
  }
  take(parser.finish());
  checker.finish(text.size());
  const kipp::ChatMessage whole = kipp::parse_output(ids, text, tokenizer(), options).value();
  require(same(whole, message));
  check_cut(ids, text, options);
}

// The stop strings, then a NUL byte, then the text; the result for single bytes and for the whole is the same.
void fuzz_stop(std::string_view bytes) {
  std::vector<std::string> stop;
  while (!bytes.empty() && bytes.front() != '\0') {
    const size_t end = bytes.find_first_of(std::string_view("\n\0", 2));
    stop.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + (bytes[end] == '\n' ? 1 : 0));
  }
  if (bytes.empty() || !kipp::validate_stop_strings(stop)) {
    return;
  }
  require(std::ranges::all_of(
      stop, [](const std::string& pattern) { return kipp::valid_utf8_prefix(pattern) == pattern.size(); }));
  bytes.remove_prefix(1);
  kipp::StopMatcher at_once(stop);
  std::string whole = at_once.push(bytes);
  whole += at_once.finish();
  kipp::StopMatcher one_by_one(stop);
  std::string joined;
  for (const char byte : bytes) {
    joined += one_by_one.push(std::string_view(&byte, 1));
  }
  joined += one_by_one.finish();
  require(joined == whole && one_by_one.matched() == at_once.matched());
  require(bytes.starts_with(whole));
  for (const std::string& pattern : stop) {
    require(whole.find(pattern) == std::string::npos);
  }
  require(at_once.matched() ? bytes.substr(whole.size()).starts_with(stop[*at_once.matched()]) : whole == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) {
    return 0;
  }
  if (bytes[0] == 'S') {
    fuzz_stop(bytes.substr(1));
  } else {
    fuzz_output(bytes.substr(1), {.in_reasoning = (bytes[0] & 1) != 0, .tool_calls = (bytes[0] & 2) == 0});
  }
  return 0;
}
