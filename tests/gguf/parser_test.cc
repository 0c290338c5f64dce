// The GGUF parser on miniature headers: every type, every limit, every truncation.
#include "gguf/parser.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "gguf/metadata_reader.h"
#include "gguf/rejection.h"

namespace kipp::gguf {
namespace {

// One key of every legal type, two tensors.
FileImage small_image() {
  FileImage image;
  const auto raw = [&](const char* key, ValueType type, size_t num_bytes) {
    std::string bytes(num_bytes, '\0');
    bytes[0] = 1;
    image.set(key, {static_cast<uint32_t>(type), bytes});
  };
  raw("a.u8", ValueType::kU8, 1);
  raw("a.i8", ValueType::kI8, 1);
  raw("a.u16", ValueType::kU16, 2);
  raw("a.i16", ValueType::kI16, 2);
  raw("a.i64", ValueType::kI64, 8);
  raw("a.f64", ValueType::kF64, 8);
  image.set("a.u32", encode(uint32_t{7}));
  image.set("a.i32", encode(int32_t{-7}));
  image.set("a.u64", encode(uint64_t{7}));
  image.set("a.f32", encode(0.5F));
  image.set("a.bool", encode(true));
  image.set("a.string", encode(std::string_view("a\0b", 3)));
  image.set("a.strings", encode(std::vector<std::string>{"", "x", "yz"}));
  image.set("a.u32s", encode(std::vector<uint32_t>{1, 2, 3}));
  image.set("a.nothing", encode(std::vector<std::string>{}));
  image.set("general.alignment", encode(uint32_t{128}));
  image.tensors.push_back({"first", {4, 2}, 30, 0});
  image.tensors.push_back({"second", {3}, 8, 128});
  return image;
}

Result<Header> parse(const std::string& bytes) {
  return parse_header(std::as_bytes(std::span(bytes)));
}

void expect_refused(const FileImage& image, const std::vector<std::string>& parts) {
  const std::string bytes = image.padded_header();
  const auto header = parse(bytes);
  ASSERT_FALSE(header) << "accepted, but expected a rejection naming " << parts.front();
  expect_message(header.error(), ErrorCode::kInvalidArtifact, parts);
  EXPECT_THAT(header.error().message, testing::HasSubstr("(byte "));
}

// The array `elements` bytes behind an element type and a count that need not be true.
EncodedValue array_claiming(uint32_t element_type, uint64_t count, const std::string& elements) {
  EncodedValue value{static_cast<uint32_t>(ValueType::kArray), {}};
  value.bytes.append(reinterpret_cast<const char*>(&element_type), sizeof(element_type));
  value.bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
  value.bytes += elements;
  return value;
}

EncodedValue string_claiming(uint64_t length, const std::string& characters) {
  EncodedValue value{static_cast<uint32_t>(ValueType::kString), {}};
  value.bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  value.bytes += characters;
  return value;
}

TEST(Parser, ReadsEveryType) {
  const FileImage image = small_image();
  const std::string bytes = image.padded_header();
  const auto header = parse(bytes);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->metadata.size(), image.metadata.size());
  EXPECT_EQ(header->header_bytes, image.header().size());
  EXPECT_EQ(header->data_offset, bytes.size());
  EXPECT_EQ(header->data_offset % 128, 0U);

  MetadataReader reader(header->metadata);
  EXPECT_EQ(reader.u32("a.u32"), 7U);
  EXPECT_EQ(reader.f32("a.f32"), 0.5F);
  EXPECT_EQ(reader.boolean("a.bool"), true);
  EXPECT_EQ(reader.string("a.string"), std::string_view("a\0b", 3));
  EXPECT_EQ(reader.u32s("a.u32s", 3), (std::vector<uint32_t>{1, 2, 3}));
  auto strings = reader.strings("a.strings");
  ASSERT_TRUE(strings);
  ASSERT_EQ(strings->size(), 3U);
  EXPECT_EQ(strings->next(), "");
  EXPECT_EQ(strings->next(), "x");
  EXPECT_EQ(strings->next(), "yz");
  EXPECT_EQ(bytes.substr(strings->offset() + 8, 2), "yz");
  EXPECT_EQ(describe(header->metadata.at("a.i32")), "i32 -7");
  EXPECT_EQ(describe(header->metadata.at("a.string")), "string \"a\\x00b\"");
  EXPECT_EQ(describe(header->metadata.at("a.strings")), "array of 3 string");

  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[0].name, "first");
  EXPECT_THAT(header->tensors[0].dims, testing::ElementsAre(4, 2));
  EXPECT_EQ(header->tensors[1].type, 8U);
  EXPECT_EQ(header->tensors[1].offset, 128U);
}

TEST(Parser, RefusesEveryPrefix) {
  const std::string bytes = small_image().padded_header();
  ASSERT_TRUE(parse(bytes));
  for (size_t length = 0; length < bytes.size(); ++length) {
    // An own allocation of exactly this length, so that AddressSanitizer sees a read past the end.
    const std::vector<std::byte> prefix(reinterpret_cast<const std::byte*>(bytes.data()),
                                        reinterpret_cast<const std::byte*>(bytes.data()) + length);
    const auto header = parse_header(prefix);
    ASSERT_FALSE(header) << length;
    expect_message(header.error(), ErrorCode::kInvalidArtifact, {"(byte "});
  }
}

// No value of any single byte may crash it; most are refused, a changed character or number is not the parser's
// business.
TEST(Parser, SurvivesEveryChangedByte) {
  const std::string bytes = small_image().padded_header();
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      const auto header = parse(changed);
      if (!header) {
        EXPECT_EQ(header.error().code, ErrorCode::kInvalidArtifact);
      }
    }
  }
}

TEST(Parser, RefusesAnotherMagicOrVersion) {
  FileImage image = small_image();
  image.magic = "ggjt";
  expect_refused(image, {"magic", "\"GGUF\"", "\"ggjt\""});
  for (const uint32_t version : {0U, 1U, 2U, 4U, 0xffffffffU}) {
    image = small_image();
    image.version = version;
    expect_refused(image, {"version", "expected 3", fmt::format("found {}", version)});
  }
  image.version = 0x03000000;
  expect_refused(image, {"version", "big-endian"});
}

TEST(Parser, RefusesForgedCounts) {
  for (const uint64_t count : {uint64_t{4097}, uint64_t{1} << 60, uint64_t{1} << 63, ~uint64_t{0}}) {
    FileImage image = small_image();
    image.tensor_count = count;
    expect_refused(image, {"tensor_count", "at most", fmt::format("found {}", count)});
    image = small_image();
    image.metadata_count = count;
    expect_refused(image, {"metadata_kv_count", "at most", fmt::format("found {}", count)});
  }
  FileImage image = small_image();
  image.metadata_count = 1024;  // allowed as such, but more than the file can hold
  expect_refused(image, {"metadata_kv_count", "the rest of the file"});
  image = small_image();
  image.tensor_count = 4096;
  expect_refused(image, {"tensor_count", "the rest of the file"});
  image = small_image();
  image.metadata_count = image.metadata.size() + 1;  // a tensor's name is taken for a key, its dimensions for a type
  EXPECT_FALSE(parse(image.padded_header()));
  image = small_image();
  image.tensor_count = image.tensors.size() + 1;
  EXPECT_FALSE(parse(image.padded_header()));
}

TEST(Parser, RefusesBadKeys) {
  FileImage image = small_image();
  image.metadata.push_back({"a.u32", encode(uint32_t{7})});
  expect_refused(image, {"a.u32", "one entry", "a second one"});
  image = small_image();
  image.metadata[3].key = "";
  expect_refused(image, {"metadata key 3", "1 to 65535 bytes", "0 bytes"});
  image.metadata[3].key = std::string(65536, 'k');
  expect_refused(image, {"metadata key 3", "65536 bytes"});
  image.metadata[3].key = "white space";
  expect_refused(image, {"metadata key 3", "printable ASCII", "\"white space\""});
  image.metadata[3].key = "\xc3\xa9";
  expect_refused(image, {"metadata key 3", "\\xc3\\xa9"});
}

TEST(Parser, RefusesBadValues) {
  FileImage image = small_image();
  image.value("a.u32").type = 13;
  expect_refused(image, {"a.u32", "a value type below 13", "type 13"});
  image = small_image();
  image.value("a.bool").bytes = std::string(1, '\2');
  expect_refused(image, {"a.bool", "0 or 1", "found 2"});
  for (const uint64_t length : {uint64_t{100000}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    image = small_image();
    image.set("a.string", string_claiming(length, "abc"));
    expect_refused(image, {"a.string", fmt::format("{} bytes", length), "before the end of the file"});
  }
}

TEST(Parser, RefusesBadArrays) {
  const auto refuse = [](EncodedValue value, const std::vector<std::string>& parts) {
    FileImage image = small_image();
    image.set("a.strings", std::move(value));
    expect_refused(image, parts);
  };
  for (const uint64_t count : {uint64_t{100000}, uint64_t{1} << 61, uint64_t{1} << 63, ~uint64_t{0}}) {
    // 2^61 elements of 8 bytes are 0 bytes modulo 2^64.
    for (const ValueType type : {ValueType::kU8, ValueType::kU64, ValueType::kString}) {
      refuse(array_claiming(static_cast<uint32_t>(type), count, "abc"),
             {"a.strings", "at most", fmt::format("found {}", count)});
    }
  }
  refuse(array_claiming(13, 0, ""), {"a.strings", "a value type below 13"});
  refuse(array_claiming(7, 3, std::string("\0\1\2", 3)), {"a.strings", "0 or 1", "found 2"});
  const std::string endless_element = string_claiming(uint64_t{1} << 63, "").bytes;
  refuse(array_claiming(8, 1, endless_element), {"a.strings", "9223372036854775808 bytes"});
}

TEST(Parser, RefusesNestedArraysWithoutRecursion) {
  std::string nested = array_claiming(8, 0, "").bytes;
  for (int depth = 0; depth < 1000; ++depth) {
    nested = array_claiming(9, 1, nested).bytes;
  }
  FileImage image = small_image();
  image.set("a.strings", {static_cast<uint32_t>(ValueType::kArray), nested});
  expect_refused(image, {"a.strings", "an array of scalars or strings", "an array of arrays"});
}

TEST(Parser, RefusesBadTensorEntries) {
  FileImage image = small_image();
  image.tensors[1].name = "first";
  expect_refused(image, {"tensor \"first\"", "one entry", "a second one"});
  image.tensors[1].name = "";
  expect_refused(image, {"tensor entry 1", "1 to 64 bytes", "0 bytes"});
  image.tensors[1].name = std::string(65, 'n');
  expect_refused(image, {"tensor entry 1", "65 bytes"});
  image = small_image();
  image.tensors[1].dims = {};
  expect_refused(image, {"tensor \"second\"", "1 to 4 dimensions", "found 0"});
  image.tensors[1].dims = {1, 1, 1, 1, 1};
  expect_refused(image, {"tensor \"second\"", "1 to 4 dimensions", "found 5"});
}

TEST(Parser, RefusesDimensionsWhoseProductOverflows) {
  const uint64_t p32 = uint64_t{1} << 32;
  const std::vector<std::vector<uint64_t>> cases = {{0},
                                                    {4, 0},
                                                    {~uint64_t{0}},
                                                    {uint64_t{1} << 63},
                                                    {p32, p32},
                                                    {p32, p32 / 2},
                                                    {3, ~uint64_t{0} / 3 + 1},
                                                    {65536, 65536, 65536, 65536}};
  for (const auto& dims : cases) {
    FileImage image = small_image();
    image.tensors[0].dims = dims;
    expect_refused(image, {"tensor \"first\"", "a product below 2^63"});
  }
  FileImage image = small_image();
  image.tensors[0].dims = {(uint64_t{1} << 62), 1};
  EXPECT_TRUE(parse(image.padded_header()));
}

TEST(Parser, RefusesBadAlignment) {
  for (const uint32_t alignment : {0U, 1U, 3U, 4U, 100U, 131072U, uint32_t{1} << 31, ~0U}) {
    FileImage image = small_image();
    image.set("general.alignment", encode(alignment));
    expect_refused(image, {"general.alignment", "a power of two", fmt::format("u32 {}", alignment)});
  }
  FileImage image = small_image();
  image.set("general.alignment", encode(uint64_t{128}));
  expect_refused(image, {"general.alignment", "u32", "u64 128"});
}

TEST(Parser, UsesTheDefaultAlignmentOfTheFormat) {
  FileImage image = small_image();
  image.remove("general.alignment");
  image.alignment = 32;
  const auto header = parse(image.padded_header());
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->data_offset % 32, 0U);
}

TEST(Parser, RefusesPaddingThatIsNotZero) {
  FileImage image = small_image();
  image.padding = 1;
  ASSERT_NE(image.header().size() % 128, 0U);
  expect_refused(image, {"padding after the tensor entries", "zero bytes", "found 1"});
}

TEST(Quote, EscapesAndCuts) {
  EXPECT_EQ(quote("plain"), "\"plain\"");
  EXPECT_EQ(quote("a\"\\\n\x1b"), "\"a\\\"\\\\\\x0a\\x1b\"");
  EXPECT_EQ(quote(std::string(100, 'x')), "\"" + std::string(80, 'x') + "\"… (100 bytes)");
}

}  // namespace
}  // namespace kipp::gguf
