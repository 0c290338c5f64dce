// The layout is computed first, by an arena without memory: what is needed is known before anything is uploaded.
#include "backend/cuda/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <system_error>

#include "backend/cuda/kernels/pack_weights.h"
#include "base/bf16.h"
#include "base/machine.h"
#include "base/thread_pool.h"

namespace kipp::cuda {
namespace {

constexpr size_t kPinnedBytes = size_t{32} << 20;  // of each of two buffers
constexpr int32_t kMaxThreads = 8;                 // that copy into them

// A matrix of the artifact and its place in one of the device.
struct Part {
  const WeightView* view;
  RowPlace place;
};

struct Matrix {
  std::vector<Part> parts;
  DeviceMatrix* to;
};

struct Vector {
  const WeightView* view;
  const uint16_t** to;
};

struct Norm {
  const WeightView* view;
  DeviceNorm* to;
};

// Everything that is to be uploaded, with its place.
struct Layout {
  std::vector<Matrix> matrices;
  std::vector<Vector> vectors;
  std::vector<Norm> norms;
};

Layout layout_of(const ModelWeights& file, DeviceWeights& device) {
  Layout layout;
  device.layers.resize(file.layers.size());
  layout.vectors.push_back({&file.token_embedding, &device.embedding});
  for (size_t l = 0; l < file.layers.size(); ++l) {
    const LayerWeights& from = file.layers[l];
    DeviceLayer& to = device.layers[l];
    const int32_t keys = from.query_projection.rows;
    const int32_t values = keys + from.key_projection.rows;
    layout.norms.push_back({&from.attention_norm, &to.attention_norm});
    layout.norms.push_back({&from.ffn_norm, &to.ffn_norm});
    layout.vectors.push_back({&from.query_norm, &to.query_norm});
    layout.vectors.push_back({&from.key_norm, &to.key_norm});
    layout.matrices.push_back({{{&from.query_projection, {}},
                                {&from.key_projection, {.first = keys}},
                                {&from.value_projection, {.first = values}}},
                               &to.query_key_value});
    layout.matrices.push_back({{{&from.output_projection, {}}}, &to.output});
    layout.matrices.push_back({{{&from.gate_projection, {.first = 0, .interleaved = true}},
                                {&from.up_projection, {.first = 8, .interleaved = true}}},
                               &to.gate_up});
    layout.matrices.push_back({{{&from.down_projection, {}}}, &to.down});
  }
  layout.norms.push_back({&file.output_norm, &device.output_norm});
  layout.matrices.push_back({{{&file.output_head, {}}}, &device.head});
  return layout;
}

// Gives every tensor its memory.
void place(const Layout& layout, Arena& arena) {
  for (const Vector& vector : layout.vectors) {
    *vector.to = arena.take<uint16_t>(vector.view->bytes / 2);
  }
  for (const Norm& norm : layout.norms) {
    norm.to->weight = arena.take<uint16_t>(norm.view->bytes / 2);
  }
  for (const Matrix& matrix : layout.matrices) {
    DeviceMatrix& to = *matrix.to;
    to.type = matrix.parts.front().view->type;
    to.columns = matrix.parts.front().view->columns;
    to.rows = 0;
    for (const Part& part : matrix.parts) to.rows += part.view->rows;
    to.padded_rows = static_cast<int32_t>(padded(to.rows, kPaddedRows));
    to.padded_columns = static_cast<int32_t>(padded(to.columns, kPaddedColumns));
    const int64_t tiles = num_tiles(to.rows, to.columns);
    to.tiles = arena.take<std::byte>(static_cast<size_t>(tiles * tile_bytes(to.type)));
    to.scales = to.type == WeightType::kBf16
                    ? nullptr
                    : arena.take<std::byte>(static_cast<size_t>(tiles * tile_scale_bytes(to.type)));
  }
}

size_t source_bytes(const Matrix& matrix) {
  size_t bytes = 0;
  for (const Part& part : matrix.parts) bytes += part.view->bytes;
  return bytes;
}

// A tied embedding travels twice.
uint64_t upload_size(const Layout& layout) {
  uint64_t size = 0;
  for (const Vector& vector : layout.vectors) size += vector.view->bytes;
  for (const Norm& norm : layout.norms) size += norm.view->bytes;
  for (const Matrix& matrix : layout.matrices) size += source_bytes(matrix);
  return size;
}

// Bytes of the largest weights' bits, one for each matrix, before what is staged.
size_t padded_bits(const Layout& layout) {
  return static_cast<size_t>(padded(static_cast<int64_t>(layout.matrices.size() * sizeof(uint32_t)), 256));
}

// From the mapped file to the device: one pinned buffer is filled while the other travels.
class Uploader {
 public:
  // size: bytes of everything that will be copied.
  static Result<Uploader> create(const ModelFile& file, const UploadProgress& progress, uint64_t size) {
    KIPP_ASSIGN(Stream stream, Stream::create());
    KIPP_ASSIGN(PinnedMemory pinned, allocate_pinned(2 * kPinnedBytes, "uploading"));
    Uploader uploader(file, progress, size, std::move(stream), std::move(pinned));
    try {
      uploader.pool_ = std::make_unique<ThreadPool>(std::min(kMaxThreads, available_processors()));
    } catch (const std::system_error& error) {
      return make_error(ErrorCode::kCapacity, fmt::format("cuda: no threads to copy weights with: {}", error.what()));
    }
    for (Event& event : uploader.travelled_) {
      KIPP_ASSIGN(event, Event::create());
    }
    return uploader;
  }
  Uploader(Uploader&& other) noexcept = default;
  Uploader& operator=(Uploader&&) = delete;
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  ~Uploader() {
    if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
  }

  Result<void> copy(const WeightView& view, void* to) {
    auto* device = static_cast<std::byte*>(to);
    for (uint64_t done = 0; done < view.bytes;) {
      const size_t count = std::min<uint64_t>(kPinnedBytes, view.bytes - done);
      std::byte* buffer = pinned_.data() + turn_ * kPinnedBytes;
      KIPP_CUDA_TRY(cudaEventSynchronize(travelled_[turn_].get()), "uploading weights");
      fill(buffer, file_.bytes().subspan(view.offset + done, count));
      KIPP_CUDA_TRY(cudaMemcpyAsync(device + done, buffer, count, cudaMemcpyHostToDevice, stream_.get()),
                    "uploading weights");
      KIPP_CUDA_TRY(cudaEventRecord(travelled_[turn_].get(), stream_.get()), "uploading weights");
      turn_ ^= 1U;
      done += count;
      uploaded_ += count;
      if (progress_) progress_(uploaded_, size_);
    }
    return {};
  }

  const Stream& stream() const { return stream_; }

 private:
  Uploader(const ModelFile& file, const UploadProgress& progress, uint64_t size, Stream stream, PinnedMemory pinned)
      : file_(file), progress_(progress), stream_(std::move(stream)), pinned_(std::move(pinned)), size_(size) {}

  void fill(std::byte* to, std::span<const std::byte> from) {
    constexpr int64_t kGrain = 1 << 20;
    pool_->parallel_for(static_cast<int64_t>(from.size()), kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
  }

  const ModelFile& file_;
  const UploadProgress& progress_;
  Stream stream_;
  PinnedMemory pinned_;
  std::unique_ptr<ThreadPool> pool_;
  Event travelled_[2];
  size_t turn_ = 0;
  uint64_t uploaded_ = 0;
  uint64_t size_ = 0;
};

// staging: room for the matrix as the artifact has it. largest: of this matrix, zero.
Result<void> upload_matrix(Uploader& uploader, const Matrix& matrix, std::byte* staging, uint32_t* largest) {
  const LaunchContext context{.stream = uploader.stream().get()};
  const DeviceMatrix& to = *matrix.to;
  std::byte* source = staging;
  for (const Part& part : matrix.parts) {
    KIPP_TRY(uploader.copy(*part.view, source));
    KIPP_CUDA_TRY(largest_weight({source, to.type, int64_t{part.view->rows} * part.view->columns, largest}, context),
                  "looking for the largest weight");
    source += part.view->bytes;
  }
  source = staging;
  for (const Part& part : matrix.parts) {
    KIPP_CUDA_TRY(pack_weights({.source = source,
                                .type = to.type,
                                .rows = part.view->rows,
                                .columns = part.view->columns,
                                .place = part.place,
                                .tiles = const_cast<std::byte*>(to.tiles),
                                .scales = const_cast<std::byte*>(to.scales),
                                .padded_columns = to.padded_columns,
                                .largest = largest},
                               context),
                  "packing weights");
    source += part.view->bytes;
  }
  return {};
}

// The largest |weight| of a norm.
float largest_weight_of(const ModelFile& file, const WeightView& view) {
  const auto* weights = reinterpret_cast<const uint16_t*>(file.bytes().data() + view.offset);
  float largest = 0.0F;
  for (int32_t c = 0; c < view.columns; ++c) {
    largest = std::max(largest, std::abs(bf16_to_f32(weights[c])));
  }
  return largest;
}

float norm_scale(const ModelFile& file, const WeightView& view) {
  const float largest = largest_weight_of(file, view);
  // Twice the bound: the rounding of the mean may exceed it a little.
  const float bound = 2.0F * largest * std::sqrt(static_cast<float>(view.columns));
  return stored_scale(std::bit_cast<uint32_t>(bound));
}

// Scores of prompts are products of FP16 numbers: |q| and |k| are at most sqrt(head_dim) times their norm's largest
// weight.
Result<void> check_head_norms(const ModelFile& file) {
  constexpr float kLargest = 4096.0F;
  for (size_t l = 0; l < file.weights().layers.size(); ++l) {
    const LayerWeights& layer = file.weights().layers[l];
    for (const WeightView* view : {&layer.query_norm, &layer.key_norm}) {
      if (const float largest = largest_weight_of(file, *view); !(largest <= kLargest)) {
        return make_error(
            ErrorCode::kUnsupported,
            fmt::format("cuda: layer {}: a weight of a head's norm is {}, but FP16 holds only heads whose "
                        "norm has weights up to {}",
                        l, largest, kLargest));
      }
    }
  }
  return {};
}

}  // namespace

WeightBytes weight_bytes(const ModelFile& file) {
  DeviceWeights device;
  const Layout layout = layout_of(file.weights(), device);
  Arena arena;
  place(layout, arena);
  size_t staging = 0;
  for (const Matrix& matrix : layout.matrices) staging = std::max(staging, source_bytes(matrix));
  return {.resident = arena.used(), .staging = staging + padded_bits(layout)};
}

Result<DeviceWeights> upload_weights(const ModelFile& file, const UploadProgress& progress) {
  KIPP_TRY(check_head_norms(file));
  const WeightBytes bytes = weight_bytes(file);
  DeviceWeights device;
  const Layout layout = layout_of(file.weights(), device);
  KIPP_ASSIGN(device.memory, allocate_device(bytes.resident, "the weights"));
  Arena arena(device.memory.data());
  place(layout, arena);
  KIPP_ASSIGN(const DeviceMemory staging, allocate_device(bytes.staging, "uploading weights"));
  auto* largest = reinterpret_cast<uint32_t*>(staging.data());
  std::byte* source = staging.data() + padded_bits(layout);
  KIPP_ASSIGN(Uploader uploader, Uploader::create(file, progress, upload_size(layout)));
  for (const Vector& vector : layout.vectors) {
    KIPP_TRY(uploader.copy(*vector.view, const_cast<uint16_t*>(*vector.to)));
  }
  for (const Norm& norm : layout.norms) {
    KIPP_TRY(uploader.copy(*norm.view, const_cast<uint16_t*>(norm.to->weight)));
    norm.to->scale = norm_scale(file, *norm.view);
  }
  for (size_t m = 0; m < layout.matrices.size(); ++m) {
    KIPP_TRY(upload_matrix(uploader, layout.matrices[m], source, largest + m));
  }
  std::vector<uint32_t> bits(layout.matrices.size());
  KIPP_CUDA_TRY(cudaMemcpyAsync(bits.data(), largest, bits.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost,
                                uploader.stream().get()),
                "reading back scales");
  KIPP_TRY(uploader.stream().wait());
  for (size_t m = 0; m < layout.matrices.size(); ++m) {
    layout.matrices[m].to->fp16_scale = stored_scale(bits[m]);
  }
  return device;
}

}  // namespace kipp::cuda
