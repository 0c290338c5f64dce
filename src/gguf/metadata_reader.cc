// Typed access to parsed metadata. The parser has checked that every value's bytes are complete.
#include "gguf/metadata_reader.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace kipp::gguf {
namespace {

template <typename T>
T load(const Value& value) {
  T result;
  std::memcpy(&result, value.bytes.data(), sizeof(result));
  return result;
}

}  // namespace

std::string_view StringArray::next() {
  uint64_t length = 0;
  std::memcpy(&length, bytes_.data(), sizeof(length));
  const auto characters = bytes_.subspan(sizeof(length), length);
  bytes_ = bytes_.subspan(sizeof(length) + length);
  current_ = next_;
  next_ += sizeof(length) + length;
  return {reinterpret_cast<const char*>(characters.data()), characters.size()};
}

int32_t I32Array::at(size_t index) const {
  int32_t element = 0;
  std::memcpy(&element, value_->bytes.subspan(index * sizeof(element), sizeof(element)).data(), sizeof(element));
  return element;
}

Result<const Value*> MetadataReader::find(std::string_view key, ValueType type) {
  const auto entry = metadata_->find(key);
  if (entry == metadata_->end()) {
    return missing_error(key, fmt::format("a {}", value_type_name(type)));
  }
  used_.insert(entry->first);
  if (entry->second.type != type) {
    return mismatch(key, fmt::format("a {}", value_type_name(type)));
  }
  return &entry->second;
}

Result<const Value*> MetadataReader::find_array(std::string_view key, ValueType element_type) {
  const std::string expected = fmt::format("an array of {}", value_type_name(element_type));
  if (!contains(key)) {
    return missing_error(key, expected);
  }
  const Value& value = metadata_->find(key)->second;
  used_.insert(metadata_->find(key)->first);
  if (value.type != ValueType::kArray || value.element_type != element_type) {
    return mismatch(key, expected);
  }
  return &value;
}

Result<uint32_t> MetadataReader::u32(std::string_view key) {
  KIPP_ASSIGN(const Value* value, find(key, ValueType::kU32));
  return load<uint32_t>(*value);
}

Result<float> MetadataReader::f32(std::string_view key) {
  KIPP_ASSIGN(const Value* value, find(key, ValueType::kF32));
  return load<float>(*value);
}

Result<bool> MetadataReader::boolean(std::string_view key) {
  KIPP_ASSIGN(const Value* value, find(key, ValueType::kBool));
  return load<uint8_t>(*value) != 0;
}

Result<std::string_view> MetadataReader::string(std::string_view key) {
  KIPP_ASSIGN(const Value* value, find(key, ValueType::kString));
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

Result<StringArray> MetadataReader::strings(std::string_view key) {
  KIPP_ASSIGN(const Value* value, find_array(key, ValueType::kString));
  return StringArray(*value);
}

Result<std::vector<uint32_t>> MetadataReader::u32s(std::string_view key, uint64_t max_count) {
  KIPP_ASSIGN(const Value* value, find_array(key, ValueType::kU32));
  if (value->count > max_count) {
    return mismatch(key, fmt::format("at most {} u32", max_count));
  }
  std::vector<uint32_t> result(value->count);
  if (!result.empty()) {
    std::memcpy(result.data(), value->bytes.data(), value->bytes.size());
  }
  return result;
}

Result<I32Array> MetadataReader::i32s(std::string_view key, uint64_t count) {
  KIPP_ASSIGN(const Value* value, find_array(key, ValueType::kI32));
  if (value->count != count) {
    return mismatch(key, fmt::format("an array of {} i32", count));
  }
  return I32Array(*value);
}

Result<void> MetadataReader::expect(std::string_view key, uint32_t value) {
  KIPP_ASSIGN(const uint32_t found, u32(key));
  return found == value ? Result<void>{} : mismatch(key, fmt::format("u32 {}", value));
}

Result<void> MetadataReader::expect(std::string_view key, float value) {
  KIPP_ASSIGN(const float found, f32(key));
  const bool same = std::bit_cast<uint32_t>(found) == std::bit_cast<uint32_t>(value);
  return same ? Result<void>{} : mismatch(key, fmt::format("f32 {}", value));
}

Result<void> MetadataReader::expect(std::string_view key, bool value) {
  KIPP_ASSIGN(const bool found, boolean(key));
  return found == value ? Result<void>{} : mismatch(key, fmt::format("bool {}", value));
}

Result<void> MetadataReader::expect(std::string_view key, std::string_view value) {
  KIPP_ASSIGN(const std::string_view found, string(key));
  return found == value ? Result<void>{} : mismatch(key, fmt::format("string {}", quote(value)));
}

tl::unexpected<Error> MetadataReader::mismatch(std::string_view key, std::string_view expected) const {
  const Value& value = metadata_->find(key)->second;
  return artifact_error(key, expected, describe(value), value.offset);
}

Result<void> MetadataReader::finish() const {
  for (const auto& [key, value] : *metadata_) {
    if (!used_.contains(key)) {
      return artifact_error(key, "no such key in this artifact", describe(value), value.offset);
    }
  }
  return {};
}

}  // namespace kipp::gguf
