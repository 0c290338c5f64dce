// Typed look-up of metadata that remembers which keys were asked for: what nobody asked for has no business in the
// file.
#pragma once

#include <optional>
#include <set>

#include "gguf/format.h"

namespace kipp::gguf {

// The elements of an array of strings that the parser has checked.
class StringArray {
 public:
  explicit StringArray(const Value& value) : count_(value.count), next_(value.offset), bytes_(value.bytes) {}

  uint64_t size() const { return count_; }
  std::string_view next();                      // call at most size() times
  uint64_t offset() const { return current_; }  // of the last element returned, in the file

 private:
  uint64_t count_;
  uint64_t current_ = 0;
  uint64_t next_;
  std::span<const std::byte> bytes_;
};

// The elements of an array of i32; they need not be aligned in the file.
class I32Array {
 public:
  explicit I32Array(const Value& value) : value_(&value) {}

  int32_t at(size_t index) const;
  uint64_t offset(size_t index) const { return value_->offset + index * sizeof(int32_t); }

 private:
  const Value* value_;
};

class MetadataReader {
 public:
  explicit MetadataReader(const Metadata& metadata) : metadata_(&metadata) {}

  // The value of a required key; its type must be the one named. Errors: kInvalidArtifact.
  Result<uint32_t> u32(std::string_view key);
  Result<float> f32(std::string_view key);
  Result<bool> boolean(std::string_view key);
  Result<std::string_view> string(std::string_view key);
  Result<StringArray> strings(std::string_view key);
  Result<std::vector<uint32_t>> u32s(std::string_view key, uint64_t max_count);
  Result<I32Array> i32s(std::string_view key, uint64_t count);

  // A required key with one possible value.
  Result<void> expect(std::string_view key, uint32_t value);
  Result<void> expect(std::string_view key, float value);
  Result<void> expect(std::string_view key, bool value);
  Result<void> expect(std::string_view key, std::string_view value);

  bool contains(std::string_view key) const { return metadata_->contains(key); }

  uint64_t offset_of(std::string_view key) const { return metadata_->find(key)->second.offset; }  // key must exist

  // kInvalidArtifact about the value found under `key`, which must exist.
  tl::unexpected<Error> mismatch(std::string_view key, std::string_view expected) const;

  // Errors: kInvalidArtifact naming the first key that no call above has asked for.
  Result<void> finish() const;

 private:
  Result<const Value*> find(std::string_view key, ValueType type);
  Result<const Value*> find_array(std::string_view key, ValueType element_type);

  const Metadata* metadata_;
  std::set<std::string_view> used_;
};

}  // namespace kipp::gguf
