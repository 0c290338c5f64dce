// Format: https://github.com/huggingface/safetensors: u64 header length, JSON header, data without gaps.
#include "gates/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace kipp::gates {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 16U << 20;
constexpr uint64_t kElementBytes = 4;  // F32 and I32 alike

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool matches(const Shape& found, const Shape& wanted) {
  return std::equal(found.begin(), found.end(), wanted.begin(), wanted.end(),
                    [](int64_t length, int64_t want) { return want == -1 || length == want; });
}

template <typename T>
std::vector<T> copied(std::span<const std::byte> data) {
  std::vector<T> values(data.size() / sizeof(T));
  if (!values.empty()) {
    std::memcpy(values.data(), data.data(), data.size());
  }
  return values;
}

}  // namespace

tl::unexpected<Error> SafetensorsFile::invalid(const std::string& what) const {
  return make_error(ErrorCode::kInvalidArtifact, fmt::format("{}: {}", path_.string(), what));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path;
  KIPP_ASSIGN(file.file_, MappedFile::open(path));
  KIPP_TRY(file.parse());
  return file;
}

Result<void> SafetensorsFile::parse() {
  const uint64_t file_bytes = bytes().size();
  if (file_bytes < kLengthBytes) {
    return invalid(fmt::format("expected at least {} bytes, found {}", kLengthBytes, file_bytes));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes().data(), kLengthBytes);
  const uint64_t limit = std::min(kMaxHeaderBytes, file_bytes - kLengthBytes);
  if (header_bytes > limit) {
    return invalid(fmt::format("header length: expected at most {}, found {}", limit, header_bytes));
  }
  data_begin_ = kLengthBytes + header_bytes;
  const auto header = parse_json(text_of(bytes().subspan(kLengthBytes, header_bytes)));
  if (!header) {
    return invalid("header: " + header.error().message);
  }
  if (!header->is_object()) {
    return invalid(fmt::format("header: expected an object, found {}", kind_name(header->kind())));
  }
  for (const auto& [name, entry] : header->members()) {
    if (name == "__metadata__") {
      continue;
    }
    KIPP_ASSIGN(Tensor tensor, parse_tensor(name, entry, file_bytes - data_begin_));
    tensors_.emplace(name, std::move(tensor));
  }
  return check_coverage(file_bytes - data_begin_);
}

Result<SafetensorsFile::Tensor> SafetensorsFile::parse_tensor(const std::string& name, const Json& entry,
                                                              uint64_t num_bytes) const {
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  const Json* offsets = entry.find("data_offsets");
  if (dtype == nullptr || shape == nullptr || offsets == nullptr || entry.members().size() != 3) {
    return invalid(fmt::format("tensor {}: expected dtype, shape and data_offsets only", name));
  }
  Tensor tensor{.dtype = dtype->as_string(), .shape = {}};
  if (tensor.dtype != "F32" && tensor.dtype != "I32") {
    return invalid(fmt::format("tensor {}: expected dtype F32 or I32, found '{}'", name, tensor.dtype));
  }
  uint64_t expected_bytes = kElementBytes;
  for (const Json& item : shape->items()) {
    const auto length = item.as_int64();
    uint64_t product = 0;
    if (!length || *length < 0 || __builtin_mul_overflow(expected_bytes, static_cast<uint64_t>(*length), &product)) {
      return invalid(fmt::format("tensor {}: shape holds a length that is no size", name));
    }
    expected_bytes = product;
    tensor.shape.push_back(*length);
  }
  const bool is_pair = offsets->items().size() == 2;
  const uint64_t begin = is_pair ? offsets->items()[0].as_uint64().value_or(UINT64_MAX) : UINT64_MAX;
  const uint64_t end = is_pair ? offsets->items()[1].as_uint64().value_or(UINT64_MAX) : UINT64_MAX;
  if (begin > end || end > num_bytes) {
    return invalid(fmt::format("tensor {}: data_offsets must be two ascending offsets up to {}", name, num_bytes));
  }
  if (!shape->is_array() || end - begin != expected_bytes) {
    return invalid(
        fmt::format("tensor {}: its shape takes {} bytes, its data_offsets {}", name, expected_bytes, end - begin));
  }
  tensor.begin = data_begin_ + begin;
  tensor.end = data_begin_ + end;
  return tensor;
}

// The tensors lie one after the other and fill the file.
Result<void> SafetensorsFile::check_coverage(uint64_t num_bytes) const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, tensor] : tensors_) {
    ranges.emplace_back(tensor.begin, tensor.end);
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t position = data_begin_;
  for (const auto& [begin, end] : ranges) {
    if (begin != position) {
      return invalid(fmt::format("data: expected the next tensor at byte {}, found it at {}", position, begin));
    }
    position = end;
  }
  if (position != data_begin_ + num_bytes) {
    return invalid(fmt::format("data: tensors end at byte {}, the file at {}", position, data_begin_ + num_bytes));
  }
  return {};
}

Result<std::span<const std::byte>> SafetensorsFile::data_of(std::string_view name, std::string_view dtype,
                                                            const Shape& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return invalid(fmt::format("tensor {}: missing", name));
  }
  const Tensor& tensor = found->second;
  if (tensor.dtype != dtype || !matches(tensor.shape, shape)) {
    return invalid(fmt::format("tensor {}: expected {} [{}] (-1: any length), found {} [{}]", name, dtype,
                               fmt::join(shape, ", "), tensor.dtype, fmt::join(tensor.shape, ", ")));
  }
  return bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

Result<std::vector<float>> SafetensorsFile::floats(std::string_view name, const Shape& shape) const {
  KIPP_ASSIGN(const auto data, data_of(name, "F32", shape));
  return copied<float>(data);
}

Result<std::vector<int32_t>> SafetensorsFile::integers(std::string_view name, const Shape& shape) const {
  KIPP_ASSIGN(const auto data, data_of(name, "I32", shape));
  return copied<int32_t>(data);
}

}  // namespace kipp::gates
