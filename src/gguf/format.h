// The parts of the GGUF v3 format that Kipp reads, and how its values are named in messages.
// Source: the GGUF specification (ggml, docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kipp/error.h"

namespace kipp::gguf {

inline constexpr uint32_t kVersion = 3;
inline constexpr uint32_t kDefaultAlignment = 32;    // where general.alignment is absent
inline constexpr uint32_t kArtifactAlignment = 128;  // what every Kipp artifact says

enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr uint32_t kNumValueTypes = 13;

std::string_view value_type_name(ValueType type);
// Bytes of one scalar; 0 for strings and arrays.
size_t scalar_bytes(ValueType type);

// Tensor types by their GGML number; only three of them occur in an artifact.
enum class GgmlType : uint32_t { kQ4_1 = 3, kQ8_0 = 8, kBf16 = 30 };
std::string ggml_type_name(uint32_t type);  // "Q8_0 (8)", "type 17"

// A metadata value: a checked view of its bytes in the file. `bytes` is the scalar, the string's characters, or the
// array's elements (a string element is its length in 8 bytes and its characters).
struct Value {
  ValueType type = ValueType::kU8;
  uint64_t offset = 0;  // of the value in the file, for messages
  std::span<const std::byte> bytes;
  ValueType element_type = ValueType::kU8;  // of an array
  uint64_t count = 0;                       // elements of an array
};
std::string describe(const Value& value);  // "u32 5", `string "abc"`, "array of 3 i32"

using Metadata = std::map<std::string_view, Value>;

struct TensorInfo {
  std::string_view name;
  std::vector<uint64_t> dims;  // innermost first, at most 4; their product fits 63 bits
  uint32_t type = 0;           // a GGML number, not checked by the parser
  uint64_t offset = 0;         // from the start of the data section, not checked by the parser
  uint64_t position = 0;       // of this entry in the file, for messages
};

// Everything in front of the weights. Views into the bytes that were parsed.
struct Header {
  Metadata metadata;
  std::vector<TensorInfo> tensors;
  uint64_t header_bytes = 0;  // magic to the last tensor entry
  uint64_t data_offset = 0;   // header_bytes rounded up to the alignment
};

// The text quoted, with control and non-ASCII bytes escaped and a long text cut: names and values come from the file.
std::string quote(std::string_view text);

// kInvalidArtifact: "<field>: expected …, found … (byte N)".
tl::unexpected<Error> artifact_error(std::string_view field, std::string_view expected, std::string_view found,
                                     uint64_t offset);
// The same for something that is absent, so that no byte can be named.
tl::unexpected<Error> missing_error(std::string_view field, std::string_view expected);

}  // namespace kipp::gguf
