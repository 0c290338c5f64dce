// Writes seeds for gguf_fuzz: headers of valid artifacts with one layer, without the long token arrays.
// Usage: gguf_fuzz_seeds FOLDER
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "gguf/gguf_builder.h"

namespace {

void write_seed(const std::filesystem::path& path, const kipp::gguf::ArtifactSpec& spec) {
  kipp::gguf::FileImage image = kipp::gguf::valid_image(spec);
  image.set("tokenizer.ggml.tokens", kipp::gguf::encode(std::vector<std::string>{"a", "b"}));
  image.set("tokenizer.ggml.token_type", kipp::gguf::encode(std::vector<int32_t>{1, 3}));
  image.set("tokenizer.ggml.merges", kipp::gguf::encode(std::vector<std::string>{"a b"}));
  std::ofstream(path, std::ios::binary) << image.padded_header();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: gguf_fuzz_seeds FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const std::string_view id : {"kipp-demo", "qwen3-8b-base"}) {
    for (const kipp::QuantScheme scheme :
         {kipp::QuantScheme::kBf16, kipp::QuantScheme::kQ8_0, kipp::QuantScheme::kAffine4Gs32}) {
      write_seed(folder / fmt::format("{}-{}", id, kipp::scheme_name(scheme)),
                 {.id = id, .scheme = scheme, .twin_layers = 1});
    }
  }
  write_seed(folder / "kipp-demo-full", {.id = "kipp-demo"});
  return 0;
}
