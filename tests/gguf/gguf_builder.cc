// Encoding of test files. Keys and values are written out here a second time on purpose: the binder's own tables are
// what is under test.
#include "gguf/gguf_builder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "gguf/tensor_layout.h"

namespace kipp::gguf {
namespace {

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_string(std::string& out, std::string_view text) {
  append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

template <typename T>
EncodedValue scalar(ValueType type, T value) {
  EncodedValue result{static_cast<uint32_t>(type), {}};
  append(result.bytes, value);
  return result;
}

template <typename T>
EncodedValue array(ValueType element_type, const std::vector<T>& values) {
  EncodedValue result{static_cast<uint32_t>(ValueType::kArray), {}};
  append(result.bytes, static_cast<uint32_t>(element_type));
  append(result.bytes, static_cast<uint64_t>(values.size()));
  for (const T& value : values) {
    append(result.bytes, value);
  }
  return result;
}

constexpr std::array<const char*, 26> kAddedTokens = {
    "<|endoftext|>",  "<|im_start|>",   "<|im_end|>",      "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>",  "<|box_end|>",    "<|quad_start|>",  "<|quad_end|>",         "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",   "<|video_pad|>",        "<tool_call>",
    "</tool_call>",   "<|fim_prefix|>", "<|fim_middle|>",  "<|fim_suffix|>",       "<|fim_pad|>",
    "<|repo_name|>",  "<|file_sep|>",   "<tool_response>", "</tool_response>",     "<think>",
    "</think>"};

// Made-up base tokens and merges of about the genuine lengths, under the genuine rules for added and unused ids.
struct TokenArrays {
  EncodedValue tokens, types, merges;
};

TokenArrays make_token_arrays(bool isolates) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int id = 0; id < 151936; ++id) {
    const bool added = id >= 151643 && id < (isolates ? 151669 : 151665);
    if (id < 151643) {
      tokens.push_back(fmt::format("t{:x}", id));
      types.push_back(1);
    } else if (added) {
      tokens.emplace_back(kAddedTokens[static_cast<size_t>(id - 151643)]);
      types.push_back(id < 151657 ? 3 : 4);
    } else {
      tokens.push_back(fmt::format("[PAD{}]", id));
      types.push_back(5);
    }
  }
  std::vector<std::string> merges;
  for (int i = 0; i < 151387; ++i) {
    merges.push_back(fmt::format("t{:x} u", i));
  }
  return {encode(tokens), encode(types), encode(merges)};
}

const TokenArrays& token_arrays(bool isolates) {
  static const TokenArrays arrays[2] = {make_token_arrays(false), make_token_arrays(true)};
  return arrays[isolates ? 1 : 0];
}

void add_source(FileImage& image, const Checkpoint& entry, const ArtifactSpec& spec) {
  std::string repository(entry.repository);
  std::string revision(entry.revision);
  if (spec.twin_layers) {
    repository = *spec.twin_layers == entry.num_layers
                     ? fmt::format("synthetic/{}", entry.id)
                     : fmt::format("synthetic/{}-{}layers", entry.id, *spec.twin_layers);
    revision = "recipe1-seed7";
  }
  const char* schemes[] = {"bf16", "q8_0", "affine4_gs32"};
  image.set("kipp.format_version", encode(uint32_t{1}));
  image.set("kipp.checkpoint.id", encode(entry.id));
  image.set("kipp.source.repository", encode(repository));
  image.set("kipp.source.revision", encode(revision));
  image.set("kipp.source.sha256", encode(std::vector<std::string>{"config.json:" + std::string(64, 'a'),
                                                                  "model.safetensors:" + std::string(64, '0')}));
  image.set("kipp.quant.scheme", encode(schemes[static_cast<size_t>(spec.scheme)]));
  if (!spec.twin_layers && entry.variant != Variant::kBase) {
    image.set("tokenizer.chat_template", encode("{{ messages }}"));
  }
  if (entry.variant != Variant::kBase) {
    image.set("kipp.sampling.temperature", encode(0.6F));
    image.set("kipp.sampling.top_k", encode(uint32_t{20}));
    image.set("kipp.sampling.top_p", encode(0.95F));
  }
}

void add_dimensions(FileImage& image, const Dimensions& d) {
  const auto set = [&](const char* key, int32_t value) { image.set(key, encode(static_cast<uint32_t>(value))); };
  set("qwen3.block_count", d.num_layers);
  set("qwen3.context_length", d.context);
  set("qwen3.embedding_length", d.hidden);
  set("qwen3.feed_forward_length", d.ffn);
  set("qwen3.attention.head_count", d.num_query_heads);
  set("qwen3.attention.head_count_kv", 8);
  set("qwen3.attention.key_length", 128);
  set("qwen3.attention.value_length", 128);
  set("qwen3.vocab_size", 151936);
  image.set("qwen3.rope.freq_base", encode(d.rope_theta));
  image.set("qwen3.attention.layer_norm_rms_epsilon", encode(1e-6F));
}

void add_tokenizer(FileImage& image, const Checkpoint& entry, bool isolates) {
  const bool is_base = entry.variant == Variant::kBase;
  image.set("tokenizer.ggml.model", encode("gpt2"));
  image.set("tokenizer.ggml.pre", encode("qwen2"));
  image.set("tokenizer.ggml.eos_token_id", encode(uint32_t{is_base ? 151643U : 151645U}));
  image.set("tokenizer.ggml.padding_token_id", encode(uint32_t{151643}));
  image.set("tokenizer.ggml.add_bos_token", encode(false));
  image.set("kipp.stop_token_ids",
            encode(is_base ? std::vector<uint32_t>{151643} : std::vector<uint32_t>{151645, 151643}));
  image.set("kipp.tokenizer.isolates_think_tokens", encode(isolates));
  const TokenArrays& arrays = token_arrays(isolates);
  image.set("tokenizer.ggml.tokens", arrays.tokens);
  image.set("tokenizer.ggml.token_type", arrays.types);
  image.set("tokenizer.ggml.merges", arrays.merges);
}

// Encodes an image and calls `boundary` wherever one part ends and the next begins.
template <typename Boundary>
std::string encode_header(const FileImage& image, Boundary&& boundary) {
  std::string out;
  const auto part = [&](auto&& add) {
    boundary(out.size());
    add();
  };
  part([&] { out += image.magic; });
  part([&] { append(out, image.version); });
  part([&] { append(out, image.tensor_count.value_or(image.tensors.size())); });
  part([&] { append(out, image.metadata_count.value_or(image.metadata.size())); });
  for (const MetadataEntry& entry : image.metadata) {
    part([&] { append_string(out, entry.key); });
    part([&] { append(out, entry.value.type); });
    part([&] { out += entry.value.bytes; });
  }
  for (const TensorEntry& tensor : image.tensors) {
    part([&] { append_string(out, tensor.name); });
    part([&] { append(out, static_cast<uint32_t>(tensor.dims.size())); });
    for (const uint64_t dim : tensor.dims) {
      part([&] { append(out, dim); });
    }
    part([&] { append(out, tensor.type); });
    part([&] { append(out, tensor.offset); });
  }
  return out;
}

}  // namespace

EncodedValue encode(uint32_t value) {
  return scalar(ValueType::kU32, value);
}
EncodedValue encode(int32_t value) {
  return scalar(ValueType::kI32, value);
}
EncodedValue encode(uint64_t value) {
  return scalar(ValueType::kU64, value);
}
EncodedValue encode(float value) {
  return scalar(ValueType::kF32, value);
}
EncodedValue encode(bool value) {
  return scalar(ValueType::kBool, static_cast<uint8_t>(value));
}
EncodedValue encode(std::string_view value) {
  EncodedValue result{static_cast<uint32_t>(ValueType::kString), {}};
  append_string(result.bytes, value);
  return result;
}
EncodedValue encode(const std::vector<uint32_t>& values) {
  return array(ValueType::kU32, values);
}
EncodedValue encode(const std::vector<int32_t>& values) {
  return array(ValueType::kI32, values);
}
EncodedValue encode(const std::vector<std::string>& values) {
  EncodedValue result{static_cast<uint32_t>(ValueType::kArray), {}};
  append(result.bytes, static_cast<uint32_t>(ValueType::kString));
  append(result.bytes, static_cast<uint64_t>(values.size()));
  for (const std::string& value : values) {
    append_string(result.bytes, value);
  }
  return result;
}

EncodedValue& FileImage::value(std::string_view key) {
  const auto entry = std::find_if(metadata.begin(), metadata.end(), [&](const auto& e) { return e.key == key; });
  if (entry == metadata.end()) {
    ADD_FAILURE() << "no key " << key;
    std::abort();
  }
  return entry->value;
}

void FileImage::set(std::string_view key, EncodedValue encoded) {
  for (MetadataEntry& entry : metadata) {
    if (entry.key == key) {
      entry.value = std::move(encoded);
      return;
    }
  }
  metadata.push_back({std::string(key), std::move(encoded)});
}

void FileImage::remove(std::string_view key) {
  std::erase_if(metadata, [&](const MetadataEntry& entry) { return entry.key == key; });
}

TensorEntry& FileImage::tensor(std::string_view name) {
  const auto entry = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  if (entry == tensors.end()) {
    ADD_FAILURE() << "no tensor " << name;
    std::abort();
  }
  return *entry;
}

void FileImage::remove_tensor(std::string_view name) {
  std::erase_if(tensors, [&](const TensorEntry& entry) { return entry.name == name; });
}

std::string FileImage::header() const {
  return encode_header(*this, [](size_t) {});
}

std::string FileImage::padded_header() const {
  std::string out = header();
  out.append((alignment - out.size() % alignment) % alignment, padding);
  return out;
}

std::vector<uint64_t> FileImage::boundaries() const {
  std::vector<uint64_t> result;
  result.push_back(encode_header(*this, [&](size_t at) { result.push_back(at); }).size());
  return result;
}

FileImage valid_image(const ArtifactSpec& spec) {
  const Checkpoint* entry = find_checkpoint(spec.id);
  if (entry == nullptr) {
    ADD_FAILURE() << "no checkpoint " << spec.id;
    std::abort();
  }
  const uint32_t file_types[] = {32, 7, 3};
  FileImage image;
  image.set("general.architecture", encode("qwen3"));
  image.set("general.name", encode(entry->id));
  image.set("general.alignment", encode(uint32_t{128}));
  image.set("general.file_type", encode(file_types[static_cast<size_t>(spec.scheme)]));
  const Dimensions dimensions = dimensions_of(*entry, spec.twin_layers.value_or(entry->num_layers));
  add_source(image, *entry, spec);
  add_dimensions(image, dimensions);
  add_tokenizer(image, *entry, spec.isolates_think_tokens.value_or(entry->isolates_think_tokens));
  for (const ExpectedTensor& tensor : expected_tensors(dimensions, spec.scheme)) {
    const auto type = static_cast<uint32_t>(ggml_type(tensor.view.type));
    image.tensors.push_back({tensor.name, tensor.file_dims(), type, image.data_bytes});
    image.data_bytes += tensor.view.bytes;
  }
  return image;
}

TemporaryFile::TemporaryFile() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kipp-gguf-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    ADD_FAILURE() << "cannot make a temporary folder";
    std::abort();
  }
  folder_ = pattern;
  path_ = folder_ / "test.gguf";
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void TemporaryFile::write(std::string_view content) {
  std::ofstream out(path_, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  ASSERT_TRUE(out.good()) << path_;
}

void TemporaryFile::resize(uint64_t num_bytes) {
  std::filesystem::resize_file(path_, num_bytes);
}

void TemporaryFile::write_image(const FileImage& image) {
  const std::string header = image.padded_header();
  write(header);
  resize(header.size() + image.data_bytes);
}

}  // namespace kipp::gguf
