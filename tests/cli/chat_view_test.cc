// What an answer looks like with and without colours.
#include "cli/chat_view.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

namespace kipp::cli {
namespace {

using Kind = OutputEvent::Kind;

std::string shown(const std::vector<OutputEvent>& events, bool colours, bool is_terminal = true) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  Output output(ends[1]);
  ChatView view(output, colours, is_terminal);
  for (const OutputEvent& event : events) {
    EXPECT_TRUE(view.show(event).has_value());
  }
  EXPECT_TRUE(view.end().has_value());
  ::close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t count = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  return text.substr(0, count > 0 ? static_cast<size_t>(count) : 0);
}

const std::vector<OutputEvent> kThought = {{.kind = Kind::kReasoning, .text = "hm"},
                                           {.kind = Kind::kReasoning, .text = "m"},
                                           {.kind = Kind::kContent, .text = "Yes"},
                                           {.kind = Kind::kContent, .text = "."}};
const std::vector<OutputEvent> kCall = {{.kind = Kind::kToolCallBegin, .text = "weather"},
                                        {.kind = Kind::kToolCallArguments, .text = "{\"city\": "},
                                        {.kind = Kind::kToolCallArguments, .text = "\"Paris\"}"},
                                        {.kind = Kind::kToolCallEnd}};

TEST(ChatView, MarksReasoning) {
  EXPECT_EQ(shown(kThought, false), "<think>\nhmm\n</think>\n\nYes.\n");
  EXPECT_EQ(shown(kThought, true), "\x1b[2mhmm\x1b[0m\n\nYes.\n");
}

TEST(ChatView, ClosesReasoningThatWasCut) {
  EXPECT_EQ(shown({kThought[0]}, false), "<think>\nhm\n</think>\n");
  EXPECT_EQ(shown({kThought[0]}, true), "\x1b[2mhm\x1b[0m\n");
}

TEST(ChatView, ShowsCallsOnLinesOfTheirOwn) {
  EXPECT_EQ(shown(kCall, false), "[tool call] weather {\"city\": \"Paris\"}\n");
  std::vector<OutputEvent> events = {kThought[0], kThought[2]};
  events.insert(events.end(), kCall.begin(), kCall.end());
  events.insert(events.end(), kCall.begin(), kCall.end() - 2);
  events.push_back({.kind = Kind::kToolCallEnd, .complete = false});
  events.push_back({.kind = Kind::kContent, .text = "Done."});
  EXPECT_EQ(shown(events, false),
            "<think>\nhm\n</think>\n\nYes\n[tool call] weather {\"city\": \"Paris\"}\n"
            "[tool call] weather {\"city\":  (cut off)\nDone.\n");
  EXPECT_EQ(shown(kCall, true), "\x1b[36m[tool call] weather {\"city\": \"Paris\"}\x1b[0m\n");
}

TEST(ChatView, ControlCharactersActOnNoTerminalAndReachEverythingElse) {
  const std::string text =
      "a\x1b]52;c;aGk=\x07\xc2\x9b"
      "2J\té\n";
  const std::vector<OutputEvent> events = {{.kind = Kind::kReasoning, .text = text},
                                           {.kind = Kind::kContent, .text = text},
                                           {.kind = Kind::kToolCallBegin, .text = "f\x1b"},
                                           {.kind = Kind::kToolCallArguments, .text = text},
                                           {.kind = Kind::kToolCallEnd}};
  const std::string escaped = "a\\x1b]52;c;aGk=\\x07\\u009b2J\té\n";
  EXPECT_EQ(shown(events, false),
            "<think>\n" + escaped + "\n</think>\n\n" + escaped + "\n[tool call] f\\x1b " + escaped + "\n");
  EXPECT_EQ(shown(events, false, false),
            "<think>\n" + text + "\n</think>\n\n" + text + "\n[tool call] f\x1b " + text + "\n");
}

TEST(ChatView, EndsWithoutColoursWhereverItIsCut) {
  for (size_t length = 1; length <= kCall.size(); ++length) {
    const std::string text = shown({kCall.begin(), kCall.begin() + static_cast<ptrdiff_t>(length)}, true);
    EXPECT_TRUE(text.ends_with("\x1b[0m\n")) << length;
  }
}

TEST(ChatView, SaysWhetherAnAnswerIsOpen) {
  Output output(-1);
  ChatView view(output, false, false);
  EXPECT_FALSE(view.shows_answer());
  EXPECT_FALSE(view.show(kThought[2]).has_value());
  EXPECT_TRUE(view.shows_answer());
}

TEST(ChatView, AnEmptyAnswerIsAnEmptyLine) {
  EXPECT_EQ(shown({}, true), "\n");
}

}  // namespace
}  // namespace kipp::cli
