// Writes safetensors files and vector sets for tests, so that each can be broken one way at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "gates/vectors.h"

namespace kipp::gates {

// A folder of its own that disappears with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

struct TestTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};
using TestTensors = std::map<std::string, TestTensor>;

TestTensor f32(std::vector<int64_t> shape, const std::vector<float>& values);
TestTensor i32(const std::vector<int32_t>& values);

// length, header, data
std::string safetensors_text(const std::string& header, const std::string& data);
std::string safetensors_text(const TestTensors& tensors);

TestTensors tensors_of(const PromptVectors& prompt, const Dimensions& dimensions);
// The manifest with the hashes of the files, which it writes too.
Json write_vector_files(const TemporaryFolder& folder, const VectorSet& set, const Dimensions& dimensions);

}  // namespace kipp::gates
