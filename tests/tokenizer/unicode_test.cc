// Character classes against the data files; NFC against utf8proc split at the exceptions, piece by piece.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tokenizer/char_class.h"
#include "tokenizer/nfc.h"
#include "tokenizer/utf8.h"

namespace kipp {
namespace {

nlohmann::json read_unicode_data(const std::string& name) {
  std::ifstream file(KIPP_SOURCE_DIR "/data/unicode/" + name);
  return nlohmann::json::parse(file);
}

std::set<uint32_t> read_exceptions() {
  std::set<uint32_t> exceptions;
  for (const auto& text : read_unicode_data("nfc_exceptions.json")) {
    exceptions.insert(static_cast<uint32_t>(std::stoul(text.get<std::string>(), nullptr, 16)));
  }
  return exceptions;
}

std::string utf8proc_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string result(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
  std::free(out);
  return result;
}

std::string to_utf8(const std::vector<uint32_t>& code_points) {
  std::string text;
  for (const uint32_t code_point : code_points) {
    append_utf8(code_point, text);
  }
  return text;
}

// The definition: copy the exceptions, normalise what lies between.
std::string nfc_by_definition(const std::vector<uint32_t>& code_points, const std::set<uint32_t>& exceptions) {
  std::string out;
  std::string piece;
  for (const uint32_t code_point : code_points) {
    if (exceptions.contains(code_point)) {
      out += utf8proc_nfc(piece);
      piece.clear();
      append_utf8(code_point, out);
    } else {
      append_utf8(code_point, piece);
    }
  }
  return out + utf8proc_nfc(piece);
}

bool is_surrogate(uint32_t code_point) {
  return code_point >= 0xD800 && code_point < 0xE000;
}

TEST(CharClass, EveryCodePointIsAsTheDataSay) {
  const auto data = read_unicode_data("char_classes.json");
  std::vector<uint8_t> expected(kNumCodePoints);
  for (const auto& [name, flag] : {std::pair{"L", kLetter}, {"N", kNumber}, {"S", kSpace}}) {
    for (const auto& range : data[name]) {
      for (auto code_point = range[0].get<uint32_t>(); code_point <= range[1].get<uint32_t>(); ++code_point) {
        expected[code_point] = static_cast<uint8_t>(expected[code_point] | flag);
      }
    }
  }
  expected['\r'] |= kNewline;
  expected['\n'] |= kNewline;
  for (const uint32_t code_point : read_exceptions()) {
    expected[code_point] |= kNfcException;
  }
  for (uint32_t code_point = 0; code_point < kNumCodePoints; ++code_point) {
    ASSERT_EQ(char_class_table()[code_point] & ~kNfcInert, expected[code_point]) << code_point;
  }
}

TEST(Nfc, InertCodePointsAreInertInUtf8proc) {
  std::set<uint32_t> joins_left;  // what follows the first code point of some canonical decomposition
  std::vector<uint32_t> first_part(kNumCodePoints);
  for (uint32_t code_point = 0; code_point < kNumCodePoints; ++code_point) {
    utf8proc_int32_t parts[8];
    int boundary_class = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts, 8,
                                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary_class);
    first_part[code_point] = static_cast<uint32_t>(parts[0]);
    for (utf8proc_ssize_t i = 1; i < count; ++i) {
      joins_left.insert(static_cast<uint32_t>(parts[i]));
    }
  }
  size_t num_inert = 0;
  for (uint32_t code_point = 0; code_point < kNumCodePoints; ++code_point) {
    if ((char_class_table()[code_point] & kNfcInert) == 0) {
      continue;
    }
    ++num_inert;
    ASSERT_EQ(utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->combining_class, 0) << code_point;
    ASSERT_FALSE(joins_left.contains(code_point) || joins_left.contains(first_part[code_point])) << code_point;
    ASSERT_EQ(utf8proc_nfc(to_utf8({code_point})), to_utf8({code_point})) << code_point;
  }
  EXPECT_GT(num_inert, 100'000U);
}

TEST(Nfc, EveryCodePointAloneAndBetweenMarks) {
  const std::set<uint32_t> exceptions = read_exceptions();
  NfcBuffers buffers;
  for (uint32_t c = 0; c < kNumCodePoints; ++c) {
    if (is_surrogate(c)) {
      continue;
    }
    const std::vector<uint32_t> code_points = {c, 'x', 0x323, c, 0x301, 0x323, 0xAC00, c, 0x11A8};
    ASSERT_EQ(to_nfc(to_utf8(code_points), buffers), nfc_by_definition(code_points, exceptions)) << c;
  }
}

TEST(Nfc, RandomTextsFollowTheDefinition) {
  const std::set<uint32_t> exceptions = read_exceptions();
  const std::vector<uint32_t> exception_list(exceptions.begin(), exceptions.end());
  const std::vector<uint32_t> interesting = {'a',    'o',    0x300,  0x301,  0x308,  0x323,  0x327,  0x345,
                                             0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01, 0x3099, 0x30AB, 0x915,
                                             0x93C,  0x212B, 0xC5,   0x1E69, 0xFB1D, 0x0B47, 0x0B3E, 0x2126};
  std::mt19937 random(1);
  NfcBuffers buffers;
  for (int round = 0; round < 200'000; ++round) {
    std::vector<uint32_t> code_points(random() % 12);
    for (uint32_t& code_point : code_points) {
      do {
        const uint32_t kind = random() % 8;
        code_point = kind < 5    ? interesting[random() % interesting.size()]
                     : kind == 5 ? exception_list[random() % exception_list.size()]
                     : kind == 6 ? static_cast<uint32_t>(random() % 0x3100)
                                 : static_cast<uint32_t>(random() % kNumCodePoints);
      } while (is_surrogate(code_point));
    }
    const std::string text = to_utf8(code_points);
    ASSERT_EQ(to_nfc(text, buffers), nfc_by_definition(code_points, exceptions))
        << ::testing::PrintToString(code_points);
  }
}

TEST(Nfc, ReturnsTheTextItselfWhereNothingCanChange) {
  NfcBuffers buffers;
  for (const std::string_view text : {std::string_view("plain"), std::string_view("na\xC3\xAFve"),
                                      std::string_view("\xE4\xB8\x96\xE7\x95\x8C"), std::string_view("")}) {
    EXPECT_EQ(to_nfc(text, buffers).data(), text.data());
  }
}

// utf8proc_map would take hours: its ordering of marks is quadratic.
TEST(Nfc, AMegabyteOfUnorderedMarks) {
  std::vector<uint32_t> code_points = {'a'};
  for (int i = 0; i < 250'000; ++i) {
    code_points.push_back(0x302);  // class 230
    code_points.push_back(0x323);  // class 220
  }
  std::vector<uint32_t> expected = {0x1EAD};  // a with circumflex and dot below
  expected.insert(expected.end(), 249'999, 0x323);
  expected.insert(expected.end(), 249'999, 0x302);
  NfcBuffers buffers;
  EXPECT_EQ(to_nfc(to_utf8(code_points), buffers), to_utf8(expected));
}

}  // namespace
}  // namespace kipp
