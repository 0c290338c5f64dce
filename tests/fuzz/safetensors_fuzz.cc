// Any bytes as a safetensors file: refused with a reason, or every tensor of its header can be read with its own shape
// and type, with no other, and together they are as long as the data.
#include "gates/safetensors.h"

#include <cstdint>
#include <span>
#include <string_view>

#include "fuzz/memory_file.h"

namespace kipp::gates {
namespace {

using fuzzing::require;

constexpr size_t kLengthBytes = 8;

Shape shape_of(const Json& entry) {
  Shape shape;
  for (const Json& length : entry.find("shape")->items()) {
    shape.push_back(length.as_int64().value());
  }
  return shape;
}

// The bytes of the tensor's data.
size_t check_tensor(const SafetensorsFile& file, std::string_view name, const Json& entry) {
  require(file.contains(name));
  Shape shape = shape_of(entry);
  const auto floats = file.floats(name, shape);
  const auto integers = file.integers(name, shape);
  require(floats.has_value() == (entry.find("dtype")->as_string() == "F32"));
  require(integers.has_value() != floats.has_value());
  require(file.floats(name, Shape(shape.size(), -1)).has_value() == floats.has_value());
  shape.push_back(1);
  require(!file.floats(name, shape) && !file.integers(name, shape));
  return floats ? floats->size() * sizeof(float) : integers->size() * sizeof(int32_t);
}

void fuzz(std::string_view bytes) {
  static const fuzzing::MemoryFile memory;
  memory.assign(bytes);
  const auto file = SafetensorsFile::open(memory.path());
  if (!file) {
    require(file.error().code == (bytes.empty() ? ErrorCode::kIo : ErrorCode::kInvalidArtifact));
    require(file.error().message.starts_with(memory.path().string() + ": "));
    return;
  }
  require(file->bytes().size() == bytes.size());
  require(!file->floats("no such tensor", {-1}));
  size_t header_bytes = 0;
  for (size_t i = kLengthBytes; i > 0; --i) {
    header_bytes = header_bytes << 8U | static_cast<uint8_t>(bytes[i - 1]);
  }
  const auto header = parse_json(bytes.substr(kLengthBytes, header_bytes)).value();
  size_t data_bytes = 0;
  for (const auto& [name, entry] : header.members()) {
    data_bytes += name == "__metadata__" ? 0 : check_tensor(*file, name, entry);
  }
  require(kLengthBytes + header_bytes + data_bytes == bytes.size());
}

}  // namespace
}  // namespace kipp::gates

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kipp::gates::fuzz(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
