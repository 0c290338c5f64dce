// A strict, bounds-checked reader of small safetensors files: what the reference tool writes, and nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "kipp/error.h"

namespace kipp::gates {

using Shape = std::vector<int64_t>;

class SafetensorsFile {
 public:
  // Errors: kNotFound, kIo; kInvalidArtifact naming the tensor or field, what was expected and what was found (header
  // above 16 MiB, dtypes other than F32 and I32, sizes that disagree with shapes, gaps, overlaps, trailing bytes).
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  // Copies of a tensor; -1 in `shape` stands for any length. Errors: kInvalidArtifact (absent, other dtype or shape).
  Result<std::vector<float>> floats(std::string_view name, const Shape& shape) const;
  Result<std::vector<int32_t>> integers(std::string_view name, const Shape& shape) const;

  std::span<const std::byte> bytes() const { return file_.bytes(); }  // the whole file

 private:
  struct Tensor {
    std::string dtype;
    Shape shape;
    uint64_t begin = 0;  // offsets in the file
    uint64_t end = 0;
  };
  using Tensors = std::map<std::string, Tensor, std::less<>>;

  Result<void> parse();
  Result<Tensor> parse_tensor(const std::string& name, const Json& entry, uint64_t num_bytes) const;
  Result<void> check_coverage(uint64_t num_bytes) const;
  Result<std::span<const std::byte>> data_of(std::string_view name, std::string_view dtype, const Shape& shape) const;
  tl::unexpected<Error> invalid(const std::string& what) const;

  std::filesystem::path path_;
  MappedFile file_;
  uint64_t data_begin_ = 0;
  Tensors tensors_;
};

}  // namespace kipp::gates
