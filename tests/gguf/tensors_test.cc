// Artifacts with one tensor changed, and files cut or extended.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "gguf/rejection.h"

namespace kipp::gguf {
namespace {

constexpr uint32_t kF32 = 0, kQ4_1 = 3, kQ8_0 = 8, kBf16 = 30;

// One layer, so that each of the 13 tensors can be broken in turn.
FileImage twin(QuantScheme scheme = QuantScheme::kBf16) {
  return valid_image({.id = "kipp-demo", .scheme = scheme, .twin_layers = 1});
}

std::string field(const TensorEntry& tensor) {
  return fmt::format("tensor \"{}\"", tensor.name);
}

template <typename Change>
void break_each_tensor(Change&& change) {
  const FileImage valid = twin();
  ASSERT_EQ(valid.tensors.size(), 13U);
  for (size_t i = 0; i < valid.tensors.size(); ++i) {
    SCOPED_TRACE(valid.tensors[i].name);
    FileImage image = valid;
    const std::vector<std::string> parts = change(image, i);
    expect_rejected(image, ErrorCode::kInvalidArtifact, parts);
  }
}

using Parts = std::vector<std::string>;

TEST(Tensors, EachOneMissing) {
  break_each_tensor([](FileImage& image, size_t i) {
    const Parts parts = {field(image.tensors[i]), "found none", "BF16 (30) of shape ["};
    image.tensors.erase(image.tensors.begin() + static_cast<ptrdiff_t>(i));
    return parts;
  });
}

TEST(Tensors, EachOneRenamed) {
  break_each_tensor([](FileImage& image, size_t i) {
    const Parts parts = {field(image.tensors[i]), "found none"};
    image.tensors[i].name += "x";
    return parts;
  });
}

TEST(Tensors, EachOneTwice) {
  break_each_tensor([](FileImage& image, size_t i) {
    image.tensors.push_back(image.tensors[i]);
    return Parts{field(image.tensors[i]), "a second one"};
  });
}

TEST(Tensors, EachOneOfAnotherType) {
  for (const uint32_t type : {kF32, 1U, kQ4_1, kQ8_0, 2U, 12U, 31U, ~0U}) {
    break_each_tensor([&](FileImage& image, size_t i) {
      image.tensors[i].type = type;
      return Parts{field(image.tensors[i]), "expected type BF16 (30)", "found type"};
    });
  }
}

TEST(Tensors, EachOneOfAnotherShape) {
  const auto dims_change = [](auto&& change) {
    break_each_tensor([&](FileImage& image, size_t i) {
      change(image.tensors[i].dims);
      return Parts{field(image.tensors[i]), "expected shape [",
                   fmt::format("found shape [{}", image.tensors[i].dims[0])};
    });
  };
  dims_change([](auto& dims) { dims[0] += 1; });
  dims_change([](auto& dims) { dims.back() -= 1; });
  dims_change([](auto& dims) { dims.push_back(1); });
  dims_change([](auto& dims) { dims.insert(dims.begin(), 1); });
  dims_change([](auto& dims) {
    dims = dims.size() == 1 ? std::vector<uint64_t>{dims[0], dims[0]} : std::vector<uint64_t>{dims[0] * dims[1]};
  });
}

TEST(Tensors, DimensionsAreInnermostFirst) {
  FileImage image = twin();
  TensorEntry& embedding = image.tensor("token_embd.weight");
  EXPECT_EQ(embedding.dims, (std::vector<uint64_t>{192, 151936}));
  std::swap(embedding.dims[0], embedding.dims[1]);
  expect_rejected(image, ErrorCode::kInvalidArtifact,
                  {"tensor \"token_embd.weight\"", "shape [192, 151936]", "shape [151936, 192]"});
}

TEST(Tensors, EachOneMisaligned) {
  for (const uint64_t shift : {1U, 32U, 64U, 127U}) {
    break_each_tensor([&](FileImage& image, size_t i) {
      image.tensors[i].offset += shift;
      return Parts{field(image.tensors[i]), "a multiple of 128", fmt::format("offset {}", image.tensors[i].offset)};
    });
  }
}

TEST(Tensors, EachOneOutOfRange) {
  const uint64_t data_bytes = twin().data_bytes;
  for (const uint64_t offset : {data_bytes, data_bytes + 128, uint64_t{1} << 63, ~uint64_t{0} - 127}) {
    break_each_tensor([&](FileImage& image, size_t i) {
      image.tensors[i].offset = offset;
      return Parts{field(image.tensors[i]), "inside the file", fmt::format("offset {}", offset),
                   fmt::format("{} bytes", data_bytes)};
    });
  }
}

// Two tensors at one place. The later of the two in the file is where the data stop following each other.
TEST(Tensors, EachOneOverlappingItsNeighbour) {
  break_each_tensor([](FileImage& image, size_t i) {
    if (i == 0) {
      image.tensors[1].offset -= 128;
      return Parts{field(image.tensors[1]), "overlap"};
    }
    image.tensors[i].offset -= 128;
    return Parts{field(image.tensors[i]), "overlap", image.tensors[i - 1].name};
  });
}

TEST(Tensors, EachPairOfEqualOffsets) {
  break_each_tensor([](FileImage& image, size_t i) {
    const size_t other = i == 0 ? 1 : i - 1;
    image.tensors[std::max(i, other)].offset = image.tensors[std::min(i, other)].offset;
    return Parts{"tensor \"", "overlap"};
  });
}

TEST(Tensors, GapsAreRefused) {
  FileImage image = twin();
  image.data_bytes += 128;
  for (size_t i = 1; i < image.tensors.size(); ++i) {
    FileImage moved = image;
    for (size_t j = i; j < moved.tensors.size(); ++j) {
      moved.tensors[j].offset += 128;
    }
    expect_rejected(moved, ErrorCode::kInvalidArtifact, {field(moved.tensors[i]), "gap", moved.tensors[i - 1].name});
  }
  for (TensorEntry& tensor : image.tensors) {
    tensor.offset += 128;
  }
  expect_rejected(image, ErrorCode::kInvalidArtifact, {field(image.tensors[0]), "gap", "the header"});
}

TEST(Tensors, ExtraOnesAreRefused) {
  for (const char* name : {"rope_freqs.weight", "blk.1.attn_q.weight", "blk.0.attn_q.bias", "blk.00.attn_q.weight",
                           "token_embd", "blk.-1.ffn_up.weight"}) {
    FileImage image = twin();
    image.tensors.push_back({name, {64}, kBf16, image.data_bytes});
    image.data_bytes += 128;
    expect_rejected(image, ErrorCode::kInvalidArtifact,
                    {fmt::format("tensor \"{}\"", name), "no such tensor", "BF16 (30) of shape [64]"});
  }
}

TEST(Tensors, TypesFollowTheScheme) {
  const struct {
    QuantScheme scheme;
    const char* projection;
  } cases[] = {{QuantScheme::kQ8_0, "Q8_0 (8)"}, {QuantScheme::kAffine4Gs32, "Q4_1 (3)"}};
  for (const auto& test : cases) {
    FileImage image = twin(test.scheme);
    ASSERT_TRUE(open_image(image));
    image.tensor("blk.0.attn_q.weight").type = kBf16;
    expect_rejected(image, ErrorCode::kInvalidArtifact, {"blk.0.attn_q.weight", test.projection, "BF16 (30)"});
    image = twin(test.scheme);
    image.tensor("token_embd.weight").type = kQ8_0;
    expect_rejected(image, ErrorCode::kInvalidArtifact, {"token_embd.weight", "BF16 (30)", "Q8_0 (8)"});
    image = twin(test.scheme);
    image.tensor("blk.0.ffn_norm.weight").type = kF32;
    expect_rejected(image, ErrorCode::kInvalidArtifact, {"blk.0.ffn_norm.weight", "BF16 (30)", "F32 (0)"});
  }
}

// Known fault 62: a flag and the tensors in conflict.
TEST(Tensors, TiedHeadWithAnOutputTensorIsRefused) {
  FileImage image = valid_image({.id = "qwen3-0.6b", .twin_layers = 1});
  image.tensors.push_back({"output.weight", {1024, 151936}, kBf16, image.data_bytes});
  image.data_bytes += 151936ULL * 1024 * 2;
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"tensor \"output.weight\"", "tied", "[1024, 151936]"});
}

TEST(Tensors, UntiedHeadWithoutAnOutputTensorIsRefused) {
  FileImage image = valid_image({.id = "qwen3-8b", .twin_layers = 1});
  ASSERT_TRUE(open_image(image));
  image.remove_tensor("output.weight");
  image.data_bytes -= 151936ULL * 4096 * 2;
  expect_rejected(image, ErrorCode::kInvalidArtifact, {"tensor \"output.weight\"", "found none", "[4096, 151936]"});
}

TEST(FileLength, TrailingBytesAreRefused) {
  for (const uint64_t extra : {1U, 127U, 128U, 4096U}) {
    FileImage image = twin();
    image.data_bytes += extra;
    expect_rejected(image, ErrorCode::kInvalidArtifact, {"end of file", "output_norm.weight ends"});
  }
}

TEST(FileLength, EveryStructuralBoundaryIsNoEnd) {
  const FileImage image = twin();
  TemporaryFile file;
  file.write_image(image);
  const uint64_t data_offset = image.padded_header().size();
  std::vector<uint64_t> lengths = image.boundaries();
  for (const TensorEntry& tensor : image.tensors) {
    lengths.push_back(data_offset + tensor.offset);
  }
  lengths.push_back(data_offset + image.data_bytes - 1);
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  for (const uint64_t length : lengths) {  // shrinking one file from the end
    SCOPED_TRACE(length);
    file.resize(length);
    const auto model = ModelFile::open(file.path(), {.allow_synthetic = true});
    ASSERT_FALSE(model);
    if (length == 0) {
      EXPECT_EQ(model.error().code, ErrorCode::kIo);
    } else {
      expect_message(model.error(), ErrorCode::kInvalidArtifact, {});
    }
  }
}

}  // namespace
}  // namespace kipp::gguf
