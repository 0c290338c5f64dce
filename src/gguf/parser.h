// Strict parse of a GGUF v3 header. Knows the format, not the model: what the values must be is checked by the binder.
#pragma once

#include "gguf/format.h"

namespace kipp::gguf {

// More than any dense Qwen3 has (707 tensors, about 40 keys), and small enough that a forged count costs nothing.
inline constexpr uint64_t kMaxTensors = 4096;
inline constexpr uint64_t kMaxMetadataKeys = 1024;
inline constexpr uint64_t kMaxNameBytes = 64;    // of a tensor, as in the specification
inline constexpr uint64_t kMaxKeyBytes = 65535;  // as in the specification
inline constexpr uint32_t kMaxDims = 4;

// `file` is the whole file; only its header is read. Memory: a small multiple of the number of keys and tensors.
// Errors: kInvalidArtifact naming the field, what was expected, what was found and the byte offset.
Result<Header> parse_header(std::span<const std::byte> file);

}  // namespace kipp::gguf
