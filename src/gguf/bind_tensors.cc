// The tensors of an artifact against the layout that its dimensions and scheme predict.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "gguf/binder.h"
#include "gguf/tensor_layout.h"

namespace kipp::gguf {
namespace {

std::string field_of(std::string_view name) {
  return fmt::format("tensor {}", quote(name));
}

std::string dims_text(const std::vector<uint64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

// Type, shape and alignment of one tensor, and that its data lie inside the file.
Result<WeightView> bind_tensor(const TensorInfo& found, const ExpectedTensor& expected, uint64_t data_offset,
                               uint64_t file_bytes) {
  const std::string field = field_of(found.name);
  const auto type = static_cast<uint32_t>(ggml_type(expected.view.type));
  if (found.type != type) {
    return artifact_error(field, fmt::format("type {}", ggml_type_name(type)),
                          fmt::format("type {}", ggml_type_name(found.type)), found.position);
  }
  if (found.dims != expected.file_dims()) {
    return artifact_error(field, fmt::format("shape {}", dims_text(expected.file_dims())),
                          fmt::format("shape {}", dims_text(found.dims)), found.position);
  }
  if (found.offset % kArtifactAlignment != 0) {
    return artifact_error(field, fmt::format("an offset that is a multiple of {}", kArtifactAlignment),
                          fmt::format("offset {}", found.offset), found.position);
  }
  const uint64_t data_bytes = file_bytes - data_offset;
  if (found.offset > data_bytes || expected.view.bytes > data_bytes - found.offset) {
    return artifact_error(field, fmt::format("{} bytes of data inside the file", expected.view.bytes),
                          fmt::format("offset {} in a data section of {} bytes", found.offset, data_bytes),
                          found.position);
  }
  WeightView view = expected.view;
  view.offset = data_offset + found.offset;
  return view;
}

Result<void> refuse_extra(const Header& header, const std::vector<ExpectedTensor>& expected, const ArtifactInfo& info) {
  std::set<std::string_view> names;
  for (const ExpectedTensor& tensor : expected) {
    names.insert(tensor.name);
  }
  for (const TensorInfo& tensor : header.tensors) {
    if (names.contains(tensor.name)) {
      continue;
    }
    const bool second_head = tensor.name == "output.weight" && info.dimensions.tied_head;
    return artifact_error(field_of(tensor.name),
                          fmt::format("no such tensor in {}{}", info.source_repository,
                                      second_head ? " (its head is tied: it is the token embedding)" : ""),
                          fmt::format("{} of shape {}", ggml_type_name(tensor.type), dims_text(tensor.dims)),
                          tensor.position);
  }
  return {};
}

// The data of all tensors, in any order, must follow each other up to the end of the file. Every tensor of every
// registry entry is a multiple of 128 bytes long (a test checks it), so that there is no padding to allow for.
Result<void> check_packed(std::vector<std::pair<WeightView, std::string_view>> placed, uint64_t data_offset,
                          uint64_t file_bytes) {
  std::sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first.offset < b.first.offset; });
  uint64_t end = data_offset;
  std::string_view previous = "the header";
  for (const auto& [view, name] : placed) {
    if (view.offset != end) {
      return artifact_error(field_of(name), fmt::format("data at byte {}, where {} ends", end, previous),
                            fmt::format("data at byte {} ({})", view.offset, view.offset < end ? "overlap" : "gap"),
                            view.offset);
    }
    end = view.offset + view.bytes;
    previous = name;
  }
  if (end != file_bytes) {
    return artifact_error("end of file", fmt::format("{} bytes, where {} ends", end, previous),
                          fmt::format("{} bytes", file_bytes), end);
  }
  return {};
}

}  // namespace

Result<ModelWeights> bind_tensors(const Header& header, uint64_t file_bytes, const ArtifactInfo& info) {
  const std::vector<ExpectedTensor> expected = expected_tensors(info.dimensions, info.scheme);
  std::map<std::string_view, const TensorInfo*> found;
  for (const TensorInfo& tensor : header.tensors) {
    found.emplace(tensor.name, &tensor);
  }
  std::vector<WeightView> views;
  std::vector<std::pair<WeightView, std::string_view>> placed;
  for (const ExpectedTensor& tensor : expected) {
    const auto entry = found.find(tensor.name);
    if (entry == found.end()) {
      return missing_error(
          field_of(tensor.name),
          fmt::format("{} of shape {}", ggml_type_name(static_cast<uint32_t>(ggml_type(tensor.view.type))),
                      dims_text(tensor.file_dims())));
    }
    KIPP_ASSIGN(const WeightView view, bind_tensor(*entry->second, tensor, header.data_offset, file_bytes));
    views.push_back(view);
    placed.emplace_back(view, tensor.name);
  }
  KIPP_TRY(refuse_extra(header, expected, info));
  KIPP_TRY(check_packed(std::move(placed), header.data_offset, file_bytes));
  return assemble_weights(info.dimensions, views);
}

}  // namespace kipp::gguf
