// How a refused value is named: every GGUF type, whole and at its limits, and texts that a terminal would act on.
#include "gguf/format.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <span>

namespace kipp::gguf {
namespace {

template <typename T>
std::string described(ValueType type, T number) {
  EXPECT_EQ(scalar_bytes(type), sizeof(number));
  std::array<std::byte, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &number, sizeof(number));
  return describe({.type = type, .bytes = bytes});
}

TEST(Describe, ScalarsOfEveryTypeAtTheirLimits) {
  EXPECT_EQ(described(ValueType::kU8, uint8_t{255}), "u8 255");
  EXPECT_EQ(described(ValueType::kI8, int8_t{-128}), "i8 -128");
  EXPECT_EQ(described(ValueType::kU16, uint16_t{65535}), "u16 65535");
  EXPECT_EQ(described(ValueType::kI16, int16_t{-32768}), "i16 -32768");
  EXPECT_EQ(described(ValueType::kU32, std::numeric_limits<uint32_t>::max()), "u32 4294967295");
  EXPECT_EQ(described(ValueType::kI32, std::numeric_limits<int32_t>::min()), "i32 -2147483648");
  EXPECT_EQ(described(ValueType::kU64, std::numeric_limits<uint64_t>::max()), "u64 18446744073709551615");
  EXPECT_EQ(described(ValueType::kI64, std::numeric_limits<int64_t>::min()), "i64 -9223372036854775808");
  EXPECT_EQ(described(ValueType::kF32, 1e-6F), "f32 1e-06");
  EXPECT_EQ(described(ValueType::kF64, -0.1), "f64 -0.1");
  EXPECT_EQ(described(ValueType::kF64, std::numeric_limits<double>::infinity()), "f64 inf");
  EXPECT_EQ(described(ValueType::kBool, uint8_t{0}), "bool false");
  EXPECT_EQ(described(ValueType::kBool, uint8_t{1}), "bool true");
}

TEST(Describe, TextsAndArrays) {
  const std::string text = "a\"b";
  EXPECT_EQ(describe({.type = ValueType::kString, .bytes = std::as_bytes(std::span(text))}), R"(string "a\"b")");
  EXPECT_EQ(describe({.type = ValueType::kArray, .bytes = {}, .element_type = ValueType::kI16, .count = 3}),
            "array of 3 i16");
}

TEST(Describe, TensorTypes) {
  EXPECT_EQ(ggml_type_name(0), "F32 (0)");
  EXPECT_EQ(ggml_type_name(1), "F16 (1)");
  EXPECT_EQ(ggml_type_name(3), "Q4_1 (3)");
  EXPECT_EQ(ggml_type_name(8), "Q8_0 (8)");
  EXPECT_EQ(ggml_type_name(30), "BF16 (30)");
  EXPECT_EQ(ggml_type_name(4294967295), "GGML type 4294967295");
}

TEST(Quote, EscapesWhatATerminalWouldActOnAndCutsTheRest) {
  EXPECT_EQ(quote("a\\\"\x1b[2J\n\x7f\xc3\xa9"), R"("a\\\"\x1b[2J\x0a\x7f\xc3\xa9")");
  EXPECT_EQ(quote(std::string(80, 'x')), "\"" + std::string(80, 'x') + "\"");
  EXPECT_EQ(quote(std::string(81, 'x')), "\"" + std::string(80, 'x') + "\"… (81 bytes)");
}

}  // namespace
}  // namespace kipp::gguf
