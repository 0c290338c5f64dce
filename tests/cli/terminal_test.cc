// Control characters, and nothing else, are escaped for a terminal.
#include "cli/terminal.h"

#include <gtest/gtest.h>

#include "tokenizer/utf8.h"

namespace kipp::cli {
namespace {

TEST(EscapeControls, TouchesControlCharactersAlone) {
  for (uint32_t point = 0; point < 0x3000; ++point) {
    std::string text = "a";
    append_utf8(point, text);
    text += "b";
    const bool is_control = (point < 0x20 && point != '\n' && point != '\t') || (point >= 0x7F && point < 0xA0);
    EXPECT_EQ(escape_controls(text) != text, is_control) << point;
  }
}

TEST(EscapeControls, LeavesNothingThatATerminalActsOn) {
  EXPECT_EQ(escape_controls("\x1b[2J\x07\r\x7f"), "\\x1b[2J\\x07\\x0d\\x7f");
  EXPECT_EQ(escape_controls("\xc2\x9b"), "\\u009b");
  EXPECT_EQ(escape_controls("Grüße 世界 🙂\n\t"), "Grüße 世界 🙂\n\t");
  EXPECT_EQ(escape_controls("\xc2"), "\xc2");  // half a character is left to the terminal
  EXPECT_EQ(escape_controls(""), "");
}

}  // namespace
}  // namespace kipp::cli
