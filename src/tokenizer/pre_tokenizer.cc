// The pattern as a scanner, one function per alternative or pair of them. Each reads a word at most twice.
#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/char_class.h"
#include "tokenizer/utf8.h"

namespace kipp {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, const uint8_t* classes) : text_(text), classes_(classes) {}

  struct Char {
    uint32_t value;
    uint32_t length;  // 0 at the end of the text
    uint8_t flags;
  };

  Char at(size_t position) const {
    if (position >= text_.size()) {
      return {0, 0, 0};
    }
    const CodePoint c = decode_valid_utf8(text_.data() + position);
    return {c.value, c.length, classes_[c.value]};
  }

  // End of the run of characters from `position` whose flags satisfy the predicate.
  template <typename Predicate>
  size_t run_end(size_t position, Predicate belongs) const {
    while (true) {
      const Char c = at(position);
      if (c.length == 0 || !belongs(c.flags)) {
        return position;
      }
      position += c.length;
    }
  }

  size_t contraction_end(size_t start) const;
  size_t symbols_end(size_t start) const;
  size_t spaces_end(size_t start) const;

 private:
  std::string_view text_;
  const uint8_t* classes_;
};

bool is_letter(uint8_t flags) {
  return (flags & kLetter) != 0;
}
bool is_space(uint8_t flags) {
  return (flags & kSpace) != 0;
}
bool is_newline(uint8_t flags) {
  return (flags & kNewline) != 0;
}
bool is_symbol(uint8_t flags) {
  return (flags & (kLetter | kNumber | kSpace)) == 0;
}

char32_t fold(uint32_t c) {
  if (c == 0x17F) {
    return U's';  // the long s, the only other character that folds to a letter of a contraction
  }
  return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) with the apostrophe at `start`; `start` if there is none.
size_t Scanner::contraction_end(size_t start) const {
  const Char first = at(start + 1);
  const size_t after_first = start + 1 + first.length;
  switch (fold(first.value)) {
    case U's':
    case U't':
    case U'm':
    case U'd': return after_first;
    case U'r':
    case U'v': return fold(at(after_first).value) == U'e' ? after_first + 1 : start;
    case U'l': return fold(at(after_first).value) == U'l' ? after_first + 1 : start;
    default: return start;
  }
}

// [^\s\p{L}\p{N}]+[\r\n]*
size_t Scanner::symbols_end(size_t start) const {
  return run_end(run_end(start, is_symbol), is_newline);
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t Scanner::spaces_end(size_t start) const {
  size_t end = start;
  size_t last = start;         // where the last white space begins
  size_t newline_end = start;  // after the last newline of the run
  while (true) {
    const Char c = at(end);
    if (c.length == 0 || !is_space(c.flags)) {
      break;
    }
    last = end;
    end += c.length;
    if (is_newline(c.flags)) {
      newline_end = end;
    }
  }
  if (newline_end > start) {
    return newline_end;
  }
  // A run before a word leaves its last character to the word, unless it is the only one.
  return end == text_.size() || last == start ? end : last;
}

}  // namespace

size_t next_word_end(std::string_view text, size_t start, const uint8_t* classes) {
  const Scanner scanner(text, classes);
  const Scanner::Char first = scanner.at(start);
  const size_t after_first = start + first.length;
  if (is_letter(first.flags)) {
    return scanner.run_end(after_first, is_letter);
  }
  if ((first.flags & kNumber) != 0) {
    return after_first;
  }
  if (first.value == '\'') {
    if (const size_t end = scanner.contraction_end(start); end > start) {
      return end;
    }
  }
  const uint8_t second = scanner.at(after_first).flags;
  if (!is_newline(first.flags) && is_letter(second)) {
    return scanner.run_end(after_first, is_letter);
  }
  if (is_symbol(first.flags)) {
    return scanner.symbols_end(start);
  }
  if (first.value == ' ' && after_first < text.size() && is_symbol(second)) {
    return scanner.symbols_end(after_first);
  }
  return scanner.spaces_end(start);
}

}  // namespace kipp
