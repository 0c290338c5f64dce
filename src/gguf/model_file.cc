// Opens an artifact: map, parse, bind. See model_file.h for what is promised.
#include "gguf/model_file.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "gguf/binder.h"
#include "gguf/parser.h"

namespace kipp {
namespace {

struct Contents {
  ArtifactInfo info;
  TokenizerSource tokenizer;
  ModelWeights weights;
  size_t header_bytes;
};

Result<Contents> read_contents(std::span<const std::byte> file, const ModelFile::Options& options) {
  Contents contents{};
  KIPP_ASSIGN(const gguf::Header header, gguf::parse_header(file));
  gguf::MetadataReader reader(header.metadata);
  KIPP_ASSIGN(contents.info, gguf::bind_metadata(reader, options));
  KIPP_ASSIGN(contents.tokenizer, gguf::bind_tokenizer(reader, contents.info.isolates_think_tokens));
  KIPP_TRY(reader.finish());
  KIPP_ASSIGN(contents.weights, gguf::bind_tensors(header, file.size(), contents.info));
  contents.header_bytes = header.header_bytes;
  return contents;
}

}  // namespace

Result<ModelFile> ModelFile::open(const std::filesystem::path& path, const Options& options) {
  ModelFile model;
  model.path_ = path;
  if (options.copy) {
    KIPP_ASSIGN(model.file_, MappedFile::copy(path, options.on_progress));
  } else {
    KIPP_ASSIGN(model.file_, MappedFile::open(path));
  }
  auto contents = read_contents(model.file_.bytes(), options);
  if (!contents) {
    return make_error(contents.error().code, fmt::format("{}: {}", path.string(), contents.error().message));
  }
  model.info_ = std::move(contents->info);
  model.tokenizer_ = std::move(contents->tokenizer);
  model.weights_ = std::move(contents->weights);
  model.header_bytes_ = contents->header_bytes;
  return model;
}

std::string ModelFile::header_sha256() const {
  return sha256_hex(file_.bytes().first(header_bytes_));
}

}  // namespace kipp
