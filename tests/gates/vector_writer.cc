// See vector_writer.h. The format is spelled out here a second time on purpose.
#include "gates/vector_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/sha256.h"

namespace kipp::gates {
namespace {

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

Json text_or_null(const std::optional<std::string>& text) {
  return text ? Json::string(*text) : Json();
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::path(::testing::TempDir()) / "kipp-gates-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data()) != nullptr ? pattern : std::string();
  EXPECT_FALSE(path_.empty());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryFolder::write(const std::string& name, std::string_view content) const {
  std::ofstream file(path_ / name, std::ios::binary);
  file << content;
  return path_ / name;
}

TestTensor f32(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {"F32", std::move(shape), bytes_of(values)};
}

TestTensor i32(const std::vector<int32_t>& values) {
  return {"I32", {static_cast<int64_t>(values.size())}, bytes_of(values)};
}

std::string safetensors_text(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

std::string safetensors_text(const TestTensors& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    Json shape = Json::array();
    for (const int64_t length : tensor.shape) {
      shape.push_back(Json::number(length));
    }
    Json offsets = Json::array();
    offsets.push_back(Json::number(static_cast<int64_t>(data.size())));
    data += tensor.data;
    offsets.push_back(Json::number(static_cast<int64_t>(data.size())));
    header.set(name, Json::object({{"dtype", Json::string(tensor.dtype)},
                                   {"shape", std::move(shape)},
                                   {"data_offsets", std::move(offsets)}}));
  }
  return safetensors_text(write_json(header), data);
}

TestTensors tensors_of(const PromptVectors& prompt, const Dimensions& dimensions) {
  const auto size_of = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  TestTensors tensors;
  tensors["ids"] = i32(prompt.ids);
  tensors["final_hidden"] = f32({size_of(prompt.ids), dimensions.hidden}, prompt.final_hidden);
  tensors["logit_positions"] = i32(prompt.logit_positions);
  tensors["logits"] = f32({size_of(prompt.logit_positions), dimensions.vocab}, prompt.logits);
  tensors["tap_positions"] = i32(prompt.tap_positions);
  tensors["taps"] = f32({dimensions.num_layers + 1, size_of(prompt.tap_positions), dimensions.hidden}, prompt.taps);
  if (!prompt.greedy.empty()) {
    tensors["greedy"] = i32(prompt.greedy);
  }
  return tensors;
}

Json write_vector_files(const TemporaryFolder& folder, const VectorSet& set, const Dimensions& dimensions) {
  Json prompts = Json::array();
  for (const PromptVectors& prompt : set.prompts) {
    const std::string content = safetensors_text(tensors_of(prompt, dimensions));
    folder.write(prompt.name + ".safetensors", content);
    prompts.push_back(Json::object({{"name", Json::string(prompt.name)},
                                    {"file", Json::string(prompt.name + ".safetensors")},
                                    {"sha256", Json::string(sha256_hex(std::as_bytes(std::span(content))))},
                                    {"num_tokens", Json::number(static_cast<int64_t>(prompt.ids.size()))},
                                    {"text", text_or_null(prompt.text)}}));
  }
  return Json::object({{"format_version", Json::number(int64_t{1})},
                       {"checkpoint_id", Json::string(set.checkpoint_id)},
                       {"repository", Json::string(set.repository)},
                       {"revision", Json::string(set.revision)},
                       {"quant_scheme", Json::string(set.quant_scheme)},
                       {"reference", set.reference},
                       {"header_sha256", text_or_null(set.header_sha256)},
                       {"nmse_max", set.nmse_max ? Json::number(*set.nmse_max) : Json()},
                       {"prompts", std::move(prompts)}});
}

}  // namespace kipp::gates
