// The inside of <tool_call>…</tool_call>, piece by piece: {"name": "…", "arguments": {…}}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kipp::chat {

// Members may come in any order; others than these two are skipped. Arguments that are an object are passed on as they
// are written, while they arrive; a JSON string that holds an object is that object; absent or null ones are {}.
class ToolCallParser {
 public:
  // What a piece of text brought. Either may be empty.
  struct Progress {
    bool named = false;     // the name became known: name()
    std::string arguments;  // the next piece of the arguments; none before the name is known
  };
  Progress push(std::string_view text);
  // The end of the call. Afterwards complete() is final.
  Progress finish();

  bool named() const { return named_; }
  const std::string& name() const { return name_; }
  // After finish(): the call had a name, and its JSON is valid.
  bool complete() const { return complete_; }

 private:
  enum class State : uint8_t {
    kStart,       // before {
    kFirstKey,    // after {: a key or }
    kNextKey,     // after a comma
    kKey,         // inside a key's string
    kColon,       // after a key
    kValueStart,  // after a colon
    kString,      // inside a value: a string,
    kNested,      // an object or array,
    kScalar,      // or anything else
    kAfterValue,  // a comma or }
    kDone,        // after }
    kBroken
  };
  enum class Member : uint8_t { kName, kArguments, kOther };

  void take(char c, Progress& progress);
  void take_between(char c);  // states outside of keys and values
  void begin_value(char c, Progress& progress);
  void take_nested(char c, Progress& progress);
  bool ends_string(char c);               // c closes the string that is being read
  void keep(char c, Progress& progress);  // c belongs to the value
  void end_key();
  void end_value(Progress& progress);
  void set_name(Progress& progress);
  void set_arguments(Progress& progress);

  State state_ = State::kStart;
  Member member_ = Member::kOther;
  std::string raw_;         // the key or value being read, as written
  int32_t depth_ = 0;       // open brackets of a nested value
  bool in_string_ = false;  // of a nested value
  bool escaped_ = false;    // the last character of a string was a backslash that escapes the next one
  bool streaming_ = false;  // the value is the arguments' object and goes out as it comes
  bool has_arguments_ = false;
  bool named_ = false;
  bool complete_ = false;
  std::string name_;
  std::string held_arguments_;  // arguments that came before the name
  std::string body_;            // everything, to be checked as JSON at the end
};

}  // namespace kipp::chat
