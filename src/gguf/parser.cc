// GGUF v3: magic, version, counts, metadata, tensor entries, zero padding up to the alignment, data.
#include "gguf/parser.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_set>

#include "gguf/cursor.h"

namespace kipp::gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
// The smallest entries: key length, type and one byte of value; name length, dimension count, type and offset.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

Result<void> read_preamble(Cursor& cursor) {
  KIPP_ASSIGN(const auto magic, cursor.take(kMagic.size(), "magic"));
  const std::string_view found(reinterpret_cast<const char*>(magic.data()), magic.size());
  if (found != kMagic) {
    return artifact_error("magic", quote(kMagic), quote(found), 0);
  }
  const uint64_t at = cursor.position();
  KIPP_ASSIGN(const auto version, cursor.number<uint32_t>("version"));
  if (version != kVersion) {
    constexpr uint32_t kByteSwapped = kVersion << 24;
    return artifact_error("version", fmt::format("{}", kVersion),
                          fmt::format("{}{}", version, version == kByteSwapped ? " (a big-endian file)" : ""), at);
  }
  return {};
}

// A count whose entries cannot fit what is left of the file is refused before anything is read or allocated for it.
Result<uint64_t> read_count(Cursor& cursor, std::string_view field, uint64_t limit) {
  const uint64_t at = cursor.position();
  KIPP_ASSIGN(const auto count, cursor.number<uint64_t>(field));
  if (count > limit) {
    return artifact_error(field, fmt::format("at most {}", limit), fmt::format("{}", count), at);
  }
  return count;
}

Result<void> check_fits(const Cursor& cursor, std::string_view field, uint64_t count, uint64_t min_bytes, uint64_t at) {
  if (count > cursor.remaining() / min_bytes) {
    return artifact_error(
        field, fmt::format("at most {} (what the rest of the file can hold)", cursor.remaining() / min_bytes),
        fmt::format("{}", count), at);
  }
  return {};
}

Result<ValueType> read_value_type(Cursor& cursor, std::string_view key) {
  const uint64_t at = cursor.position();
  KIPP_ASSIGN(const auto type, cursor.number<uint32_t>(key));
  if (type >= kNumValueTypes) {
    return artifact_error(key, fmt::format("a value type below {}", kNumValueTypes), fmt::format("type {}", type), at);
  }
  return static_cast<ValueType>(type);
}

Result<void> check_bools(std::span<const std::byte> bytes, std::string_view key, uint64_t offset) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad != bytes.end()) {
    return artifact_error(key, "a bool of 0 or 1", fmt::format("{}", static_cast<int>(*bad)),
                          offset + static_cast<uint64_t>(bad - bytes.begin()));
  }
  return {};
}

Result<void> read_array(Cursor& cursor, std::string_view key, std::span<const std::byte> file, Value& value) {
  const uint64_t type_at = cursor.position();
  KIPP_ASSIGN(value.element_type, read_value_type(cursor, key));
  if (value.element_type == ValueType::kArray) {
    return artifact_error(key, "an array of scalars or strings", "an array of arrays", type_at);
  }
  const uint64_t count_at = cursor.position();
  KIPP_ASSIGN(value.count, cursor.number<uint64_t>(key));
  const bool strings = value.element_type == ValueType::kString;
  const uint64_t element_bytes = strings ? sizeof(uint64_t) : scalar_bytes(value.element_type);
  KIPP_TRY(check_fits(cursor, key, value.count, element_bytes, count_at));
  value.offset = cursor.position();
  if (!strings) {
    KIPP_ASSIGN(value.bytes, cursor.take(value.count * element_bytes, key));
    return value.element_type == ValueType::kBool ? check_bools(value.bytes, key, value.offset) : Result<void>{};
  }
  for (uint64_t i = 0; i < value.count; ++i) {
    KIPP_TRY(cursor.string(key));
  }
  value.bytes = file.subspan(value.offset, cursor.position() - value.offset);
  return {};
}

Result<Value> read_value(Cursor& cursor, std::string_view key, std::span<const std::byte> file) {
  Value value;
  KIPP_ASSIGN(value.type, read_value_type(cursor, key));
  value.offset = cursor.position();
  switch (value.type) {
    case ValueType::kArray: KIPP_TRY(read_array(cursor, key, file, value)); break;
    case ValueType::kString: {
      KIPP_ASSIGN(const auto text, cursor.string(key));
      value.bytes = std::as_bytes(std::span(text));
      break;
    }
    default: {
      KIPP_ASSIGN(value.bytes, cursor.take(scalar_bytes(value.type), key));
      if (value.type == ValueType::kBool) {
        KIPP_TRY(check_bools(value.bytes, key, value.offset));
      }
    }
  }
  return value;
}

Result<Metadata> read_metadata(Cursor& cursor, uint64_t count, std::span<const std::byte> file) {
  Metadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = cursor.position();
    const std::string field = fmt::format("metadata key {}", i);
    KIPP_ASSIGN(const auto key, cursor.string(field));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return artifact_error(field, fmt::format("a name of 1 to {} bytes", kMaxKeyBytes),
                            fmt::format("{} bytes", key.size()), at);
    }
    const bool plain = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7f; });
    if (!plain) {
      return artifact_error(field, "printable ASCII without spaces", quote(key), at);
    }
    if (metadata.contains(key)) {
      return artifact_error(key, "one entry", "a second one", at);
    }
    KIPP_ASSIGN(metadata[key], read_value(cursor, key, file));
  }
  return metadata;
}

Result<std::vector<uint64_t>> read_dims(Cursor& cursor, const std::string& field) {
  const uint64_t at = cursor.position();
  KIPP_ASSIGN(const auto num_dims, cursor.number<uint32_t>(field));
  if (num_dims == 0 || num_dims > kMaxDims) {
    return artifact_error(field, fmt::format("1 to {} dimensions", kMaxDims), fmt::format("{}", num_dims), at);
  }
  constexpr uint64_t kMaxElements = std::numeric_limits<int64_t>::max();
  std::vector<uint64_t> dims;
  uint64_t num_elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    const uint64_t dim_at = cursor.position();
    KIPP_ASSIGN(const auto dim, cursor.number<uint64_t>(field));
    if (dim == 0 || dim > kMaxElements / num_elements) {
      return artifact_error(field, "dimensions of at least 1 with a product below 2^63",
                            fmt::format("{} as dimension {} after a product of {}", dim, i, num_elements), dim_at);
    }
    num_elements *= dim;
    dims.push_back(dim);
  }
  return dims;
}

Result<std::vector<TensorInfo>> read_tensors(Cursor& cursor, uint64_t count) {
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    TensorInfo tensor;
    tensor.position = cursor.position();
    std::string field = fmt::format("tensor entry {}", i);
    KIPP_ASSIGN(tensor.name, cursor.string(field));
    if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes) {
      return artifact_error(field, fmt::format("a name of 1 to {} bytes", kMaxNameBytes),
                            fmt::format("{} bytes", tensor.name.size()), tensor.position);
    }
    field = fmt::format("tensor {}", quote(tensor.name));
    if (!names.insert(tensor.name).second) {
      return artifact_error(field, "one entry", "a second one", tensor.position);
    }
    KIPP_ASSIGN(tensor.dims, read_dims(cursor, field));
    KIPP_ASSIGN(tensor.type, cursor.number<uint32_t>(field));
    KIPP_ASSIGN(tensor.offset, cursor.number<uint64_t>(field));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<uint32_t> alignment_of(const Metadata& metadata) {
  constexpr std::string_view kKey = "general.alignment";
  constexpr uint32_t kMaxAlignment = 65536;
  const auto entry = metadata.find(kKey);
  if (entry == metadata.end()) {
    return kDefaultAlignment;
  }
  const Value& value = entry->second;
  uint32_t alignment = 0;
  if (value.type == ValueType::kU32) {
    std::memcpy(&alignment, value.bytes.data(), sizeof(alignment));
  }
  if (alignment < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
    return artifact_error(kKey, fmt::format("u32, a power of two from 8 to {}", kMaxAlignment), describe(value),
                          value.offset);
  }
  return alignment;
}

Result<uint64_t> skip_padding(Cursor& cursor, uint32_t alignment) {
  const uint64_t padding_bytes = (alignment - cursor.position() % alignment) % alignment;
  const uint64_t at = cursor.position();
  KIPP_ASSIGN(const auto padding, cursor.take(padding_bytes, "padding after the tensor entries"));
  const auto bad = std::find_if(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; });
  if (bad != padding.end()) {
    return artifact_error("padding after the tensor entries", "zero bytes", fmt::format("{}", static_cast<int>(*bad)),
                          at + static_cast<uint64_t>(bad - padding.begin()));
  }
  return cursor.position();
}

}  // namespace

Result<Header> parse_header(std::span<const std::byte> file) {
  Cursor cursor(file);
  KIPP_TRY(read_preamble(cursor));
  const uint64_t counts_at = cursor.position();
  KIPP_ASSIGN(const auto num_tensors, read_count(cursor, "tensor_count", kMaxTensors));
  KIPP_ASSIGN(const auto num_keys, read_count(cursor, "metadata_kv_count", kMaxMetadataKeys));
  KIPP_TRY(check_fits(cursor, "tensor_count", num_tensors, kMinTensorBytes, counts_at));
  KIPP_TRY(check_fits(cursor, "metadata_kv_count", num_keys, kMinMetadataBytes, counts_at + sizeof(uint64_t)));

  Header header;
  KIPP_ASSIGN(header.metadata, read_metadata(cursor, num_keys, file));
  KIPP_ASSIGN(const auto alignment, alignment_of(header.metadata));
  KIPP_ASSIGN(header.tensors, read_tensors(cursor, num_tensors));
  header.header_bytes = cursor.position();
  KIPP_ASSIGN(header.data_offset, skip_padding(cursor, alignment));
  return header;
}

}  // namespace kipp::gguf
