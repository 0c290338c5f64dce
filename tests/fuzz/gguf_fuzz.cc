// libFuzzer: the GGUF parser and the binder's steps over arbitrary bytes. A valid file has 300,000 token strings, so
// the steps run separately: tiny inputs get past the metadata and the tensors without any. Seeds: gguf_fuzz_seeds.
#include <algorithm>

#include "fuzz/require.h"
#include "gguf/binder.h"
#include "gguf/parser.h"
#include "gguf/tensor_layout.h"

namespace kipp::gguf {
namespace {

using kipp::fuzzing::require;

void require_good_error(const Error& error) {
  require(error.code == ErrorCode::kInvalidArtifact || error.code == ErrorCode::kUnsupported);
  require(error.message.find("expected") != std::string::npos && error.message.size() < 2000);
}

// Everything that a header hands out lies inside it and can be read.
void check_header(const Header& header, std::span<const std::byte> file) {
  require(header.header_bytes <= header.data_offset && header.data_offset <= file.size());
  size_t num_bytes_seen = 0;
  for (const auto& [key, value] : header.metadata) {
    require(value.bytes.empty() || (value.bytes.data() >= file.data() &&
                                    value.bytes.data() + value.bytes.size() <= file.data() + header.header_bytes));
    num_bytes_seen += describe(value).size() + key.size();
    if (value.type == ValueType::kArray && value.element_type == ValueType::kString) {
      StringArray strings(value);
      for (uint64_t i = 0; i < strings.size(); ++i) {
        num_bytes_seen += quote(strings.next()).size();
      }
    }
  }
  require(header.metadata.empty() || num_bytes_seen > 0);
}

void check_tensors(const Header& header, const ArtifactInfo& info) {
  uint64_t data_bytes = 0;
  for (const ExpectedTensor& tensor : expected_tensors(info.dimensions, info.scheme)) {
    data_bytes += tensor.view.bytes;
  }
  const uint64_t file_bytes = header.data_offset + data_bytes;  // the data are never read
  const auto weights = bind_tensors(header, file_bytes, info);
  if (!weights) {
    require_good_error(weights.error());
    return;
  }
  const auto require_inside = [&](const WeightView& view) {
    require(view.offset >= header.data_offset && view.offset % kArtifactAlignment == 0);
    require(view.bytes <= file_bytes && view.offset <= file_bytes - view.bytes);
  };
  require_inside(weights->token_embedding);
  require_inside(weights->output_head);
  for (const LayerWeights& layer : weights->layers) {
    require_inside(layer.query_projection);
    require_inside(layer.down_projection);
  }
}

void fuzz(std::span<const std::byte> file) {
  const auto header = parse_header(file);
  if (!header) {
    require_good_error(header.error());
    return;
  }
  check_header(*header, file);
  MetadataReader reader(header->metadata);
  const auto info = bind_metadata(reader, {.allow_synthetic = true});
  if (info) {
    check_tensors(*header, *info);
  } else {
    require_good_error(info.error());
  }
  const auto tokenizer = bind_tokenizer(reader, true);
  if (!tokenizer) {
    require_good_error(tokenizer.error());
  }
  const auto finished = reader.finish();
  if (!finished) {
    require_good_error(finished.error());
  }
}

}  // namespace
}  // namespace kipp::gguf

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kipp::gguf::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
