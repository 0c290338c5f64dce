// Names of GGUF types and the one place where rejection messages are put together.
#include "gguf/format.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

namespace kipp::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is little-endian and values are read in place");

struct ValueTypeFacts {
  std::string_view name;
  size_t bytes;
};
// Indexed by ValueType.
constexpr std::array<ValueTypeFacts, kNumValueTypes> kValueTypes = {{{"u8", 1},
                                                                     {"i8", 1},
                                                                     {"u16", 2},
                                                                     {"i16", 2},
                                                                     {"u32", 4},
                                                                     {"i32", 4},
                                                                     {"f32", 4},
                                                                     {"bool", 1},
                                                                     {"string", 0},
                                                                     {"array", 0},
                                                                     {"u64", 8},
                                                                     {"i64", 8},
                                                                     {"f64", 8}}};

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::string scalar_text(const Value& value) {
  switch (value.type) {
    case ValueType::kU8: return fmt::format("{}", load<uint8_t>(value.bytes));
    case ValueType::kI8: return fmt::format("{}", load<int8_t>(value.bytes));
    case ValueType::kU16: return fmt::format("{}", load<uint16_t>(value.bytes));
    case ValueType::kI16: return fmt::format("{}", load<int16_t>(value.bytes));
    case ValueType::kU32: return fmt::format("{}", load<uint32_t>(value.bytes));
    case ValueType::kI32: return fmt::format("{}", load<int32_t>(value.bytes));
    case ValueType::kF32: return fmt::format("{}", load<float>(value.bytes));
    case ValueType::kBool: return load<uint8_t>(value.bytes) != 0 ? "true" : "false";
    case ValueType::kU64: return fmt::format("{}", load<uint64_t>(value.bytes));
    case ValueType::kI64: return fmt::format("{}", load<int64_t>(value.bytes));
    case ValueType::kF64: return fmt::format("{}", load<double>(value.bytes));
    case ValueType::kString:
    case ValueType::kArray: break;
  }
  return {};
}

}  // namespace

std::string_view value_type_name(ValueType type) {
  return kValueTypes[static_cast<size_t>(type)].name;
}

size_t scalar_bytes(ValueType type) {
  return kValueTypes[static_cast<size_t>(type)].bytes;
}

std::string ggml_type_name(uint32_t type) {
  switch (type) {
    case 0: return "F32 (0)";
    case 1: return "F16 (1)";
    case static_cast<uint32_t>(GgmlType::kQ4_1): return "Q4_1 (3)";
    case static_cast<uint32_t>(GgmlType::kQ8_0): return "Q8_0 (8)";
    case static_cast<uint32_t>(GgmlType::kBf16): return "BF16 (30)";
    default: return fmt::format("GGML type {}", type);
  }
}

std::string describe(const Value& value) {
  const std::string_view name = value_type_name(value.type);
  if (value.type == ValueType::kString) {
    return fmt::format("{} {}", name, quote({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()}));
  }
  if (value.type == ValueType::kArray) {
    return fmt::format("{} of {} {}", name, value.count, value_type_name(value.element_type));
  }
  return fmt::format("{} {}", name, scalar_text(value));
}

std::string quote(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  std::string result = "\"";
  for (const char character : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte == '"' || byte == '\\') {
      result += '\\';
      result += character;
    } else if (byte >= 0x20 && byte < 0x7f) {
      result += character;
    } else {
      result += fmt::format("\\x{:02x}", byte);
    }
  }
  result += '"';
  if (text.size() > kMaxShown) {
    result += fmt::format("… ({} bytes)", text.size());
  }
  return result;
}

tl::unexpected<Error> artifact_error(std::string_view field, std::string_view expected, std::string_view found,
                                     uint64_t offset) {
  return make_error(ErrorCode::kInvalidArtifact,
                    fmt::format("{}: expected {}, found {} (byte {})", field, expected, found, offset));
}

tl::unexpected<Error> missing_error(std::string_view field, std::string_view expected) {
  return make_error(ErrorCode::kInvalidArtifact, fmt::format("{}: expected {}, found none", field, expected));
}

}  // namespace kipp::gguf
