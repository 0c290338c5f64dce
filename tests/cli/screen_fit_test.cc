// Rows of a text, against characters laid out by hand.
#include "cli/screen_fit.h"

#include <gtest/gtest.h>

#include <clocale>
#include <string>

namespace kipp::cli {
namespace {

class ScreenFit : public ::testing::Test {
 protected:
  ScreenFit() { EXPECT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr); }
};

TEST_F(ScreenFit, CharactersFillRowsAndAFullRowBeginsTheNext) {
  EXPECT_EQ(rows_of(L"", 10), 1U);
  EXPECT_EQ(rows_of(L"123456789", 10), 1U);
  EXPECT_EQ(rows_of(L"1234567890", 10), 2U);  // where the cursor stands then
  EXPECT_EQ(rows_of(std::wstring(95, L'x'), 10), 10U);
  EXPECT_EQ(rows_of(L"a\nb\n", 10), 3U);
}

TEST_F(ScreenFit, AWideCharacterIsNeverSplit) {
  EXPECT_EQ(rows_of(L"世世世世", 9), 1U);
  EXPECT_EQ(rows_of(L"世世世世世", 9), 2U);
  EXPECT_EQ(rows_of(std::wstring(20, L'世'), 9), 5U);   // four a row; behind the last a column is free
  EXPECT_EQ(rows_of(std::wstring(20, L'世'), 10), 5U);  // five a row, the last row empty
  EXPECT_EQ(rows_of(L"世世世", 2), 4U);
}

TEST_F(ScreenFit, TabsControlsAndWhatCannotBeShown) {
  EXPECT_EQ(rows_of(L"a\tb", 10), 1U);
  EXPECT_EQ(rows_of(L"a\tb\t", 16), 2U);
  EXPECT_EQ(rows_of(L"\x01\x01", 4), 2U);
  EXPECT_EQ(rows_of(std::wstring(1, wchar_t{0x10FFFF}), 10), 1U);
  EXPECT_EQ(rows_of(std::wstring(1, wchar_t{0x10FFFF}), 9), 2U);
  EXPECT_EQ(rows_of(L"e\u0301e\u0301", 4), 2U);  // a combining mark counts
}

}  // namespace
}  // namespace kipp::cli
