// Writes GGUF files for tests: a valid artifact of any registry entry, with everything in it open to change. The
// weights are a hole in a sparse file, so that even the 32B's layout costs only its header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/format.h"
#include "gguf/model_file.h"

namespace kipp::gguf {

// A metadata value as it is stored behind its type.
struct EncodedValue {
  uint32_t type = 0;
  std::string bytes;
};
EncodedValue encode(uint32_t value);
EncodedValue encode(int32_t value);
EncodedValue encode(uint64_t value);
EncodedValue encode(float value);
EncodedValue encode(bool value);
EncodedValue encode(std::string_view value);
inline EncodedValue encode(const char* value) {
  return encode(std::string_view(value));
}
EncodedValue encode(const std::vector<uint32_t>& values);
EncodedValue encode(const std::vector<int32_t>& values);
EncodedValue encode(const std::vector<std::string>& values);

struct MetadataEntry {
  std::string key;
  EncodedValue value;
};

struct TensorEntry {
  std::string name;
  std::vector<uint64_t> dims;
  uint32_t type = 0;
  uint64_t offset = 0;
};

// A whole file, unencoded. The counts are those of the lists unless a test says otherwise.
struct FileImage {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> metadata_count;
  std::vector<MetadataEntry> metadata;
  std::vector<TensorEntry> tensors;
  uint32_t alignment = kArtifactAlignment;
  char padding = 0;
  uint64_t data_bytes = 0;

  EncodedValue& value(std::string_view key);
  void set(std::string_view key, EncodedValue value);  // adds the key if it is absent
  void remove(std::string_view key);
  TensorEntry& tensor(std::string_view name);
  void remove_tensor(std::string_view name);

  std::string header() const;                // up to the last tensor entry
  std::string padded_header() const;         // up to the data
  std::vector<uint64_t> boundaries() const;  // byte offsets between the parts of padded_header()
};

struct ArtifactSpec {
  std::string_view id = "kipp-demo";
  QuantScheme scheme = QuantScheme::kBf16;
  std::optional<int32_t> twin_layers{};         // a synthetic twin with so many layers
  std::optional<bool> isolates_think_tokens{};  // the registry's unless given
};
FileImage valid_image(const ArtifactSpec& spec);

// A file in a folder of its own that disappears with the object.
class TemporaryFile {
 public:
  TemporaryFile();
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(std::string_view content);      // replaces the file
  void resize(uint64_t num_bytes);           // cuts it, or extends it by a hole
  void write_image(const FileImage& image);  // padded header, then a hole of data_bytes

 private:
  std::filesystem::path folder_;
  std::filesystem::path path_;
};

}  // namespace kipp::gguf
