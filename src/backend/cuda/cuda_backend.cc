// The backend contract around forward.cc: steps are enqueued on one stream and waited for by their events.
#include "backend/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/kv_pool.h"
#include "backend/cuda/sampler.h"
#include "backend/cuda/stateless.h"
#include "backend/cuda/step_graphs.h"
#include "backend/validate_batch.h"

namespace kipp::cuda {
namespace {

constexpr size_t kMaxUncollected = 2;  // of the contract
constexpr int32_t kPreferredTokens = 2048;

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "cuda: " + std::move(message));
}

struct Step {
  StepId id = 0;
  std::vector<int32_t> slot_of_head;  // device head row of each of the batch's head rows
  bool sampled = false;
  size_t buffer = 0;  // which of the pinned buffers and events it uses
};

// What load() makes. Order of members: whatever uses memory goes after it.
struct Loaded {
  Dimensions dims;
  QuantScheme scheme;
  Limits limits;
  Stream stream;
  DeviceWeights weights;
  Workspace workspace;
  KvPool kv;
  Sampler sampler;
  DeviceMemory frequencies;  // [head_dim / 2] float
  DeviceMemory tables;
  PinnedMemory host_tables[kMaxUncollected];
  Event done[kMaxUncollected];
  StepGraphs graphs;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(Device device, UploadProgress progress) : device_(std::move(device)), progress_(std::move(progress)) {}
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;
  ~CudaBackend() override {
    if (loaded_) cudaStreamSynchronize(loaded_->stream.get());  // nothing may be freed under a step
  }

  Result<MemoryPlan> plan(const ModelFile& file, const Limits& limits) const override;
  Result<void> load(const ModelFile& file, const Limits& limits, int32_t num_blocks) override;
  Result<StepId> forward(const Batch& batch) override;
  Result<void> sample(StepId step, std::span<const SampleRow> rows) override;
  Result<void> collect(StepId step, std::span<RowResult> results) override;
  Result<void> logits(StepId step, int32_t row, std::span<float> out) override;
  Result<void> evaluate_stateless(std::span<const int32_t> tokens, const StatelessObserver& observer) override;
  Result<void> copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to) override;
  Result<void> read_block(int32_t block, KvBlock& out) const override;
  Result<void> write_block(int32_t block, const KvBlock& in) override;
  int32_t preferred_tokens_per_step() const override { return kPreferredTokens; }
  Report report() const override;
  const OperatorTable& operators() const override;

 private:
  Result<void> enter() const;  // makes the device current for this thread; a model must be loaded
  Result<void> check_memory(const ModelFile& file, const Limits& limits, int32_t num_blocks) const;
  PassContext context();

  Device device_;
  UploadProgress progress_;
  std::optional<Loaded> loaded_;
  std::vector<Step> uncollected_;  // oldest first
  Step latest_;                    // the step whose logits and sampled ids stand; id 0 before the first
  KernelCounts counts_{};
};

Result<DeviceMemory> upload_frequencies(const Dimensions& dims) {
  std::vector<float> frequencies;
  for (int32_t i = 0; i < dims.head_dim / 2; ++i) {
    const double power = std::pow(static_cast<double>(dims.rope_theta), 2.0 * i / dims.head_dim);
    frequencies.push_back(1.0F / static_cast<float>(power));
  }
  const size_t bytes = frequencies.size() * sizeof(float);
  KIPP_ASSIGN(DeviceMemory memory, allocate_device(bytes, "the rotary embedding"));
  KIPP_CUDA_TRY(cudaMemcpy(memory.data(), frequencies.data(), bytes, cudaMemcpyHostToDevice), "the rotary embedding");
  return memory;
}

Result<MemoryPlan> CudaBackend::plan(const ModelFile& file, const Limits& limits) const {
  const Dimensions& dims = file.info().dimensions;
  return MemoryPlan{.weights_bytes = weight_bytes(file).resident,
                    .workspace_bytes = workspace_bytes(dims, file.info().scheme, limits) +
                                       Sampler::bytes(limits.max_head_rows, file.info().num_tokens()) +
                                       step_tables_bytes(limits),
                    .kv_block_bytes = KvPool::block_bytes(dims),
                    .available_bytes = device_.free_bytes};
}

// Uploading needs room beside the weights, too, but gives it back before the rest is taken.
Result<void> CudaBackend::check_memory(const ModelFile& file, const Limits& limits, int32_t num_blocks) const {
  KIPP_ASSIGN(const MemoryPlan memory, plan(file, limits));
  const size_t pool_bytes = memory.kv_block_bytes * static_cast<size_t>(num_blocks);
  const size_t staging = weight_bytes(file).staging;
  const size_t needed = memory.weights_bytes + std::max(staging, memory.workspace_bytes + pool_bytes);
  if (needed <= memory.available_bytes) {
    return {};
  }
  return make_error(
      ErrorCode::kCapacity,
      fmt::format("cuda: needs {} bytes of device memory (weights {}, workspace {}, {} KV blocks {}; {} beside the "
                  "weights while they are uploaded), but {} are free on device {}",
                  needed, memory.weights_bytes, memory.workspace_bytes, num_blocks, pool_bytes, staging,
                  memory.available_bytes, device_.index));
}

Result<void> CudaBackend::load(const ModelFile& file, const Limits& limits, int32_t num_blocks) {
  KIPP_TRY(validate_limits("cuda", limits, num_blocks));
  loaded_.reset();
  KIPP_ASSIGN(device_, open_device(device_.index));
  KIPP_TRY(check_memory(file, limits, num_blocks));
  const Dimensions& dims = file.info().dimensions;
  const int32_t num_tokens = file.info().num_tokens();
  KIPP_ASSIGN(DeviceWeights weights, upload_weights(file, std::exchange(progress_, {})));
  KIPP_ASSIGN(Stream stream, Stream::create());
  KIPP_ASSIGN(Workspace workspace, make_workspace(dims, file.info().scheme, limits, device_));
  KIPP_ASSIGN(KvPool kv, KvPool::create(dims, num_blocks));
  KIPP_ASSIGN(Sampler sampler, Sampler::create(limits.max_head_rows, dims.vocab, num_tokens, stream));
  KIPP_ASSIGN(DeviceMemory frequencies, upload_frequencies(dims));
  KIPP_ASSIGN(DeviceMemory tables, allocate_device(step_tables_bytes(limits), "the tables of a step"));
  Loaded loaded{.dims = dims,
                .scheme = file.info().scheme,
                .limits = limits,
                .stream = std::move(stream),
                .weights = std::move(weights),
                .workspace = std::move(workspace),
                .kv = std::move(kv),
                .sampler = std::move(sampler),
                .frequencies = std::move(frequencies),
                .tables = std::move(tables),
                .host_tables = {},
                .done = {},
                .graphs = {}};
  for (size_t i = 0; i < kMaxUncollected; ++i) {
    KIPP_ASSIGN(loaded.host_tables[i], allocate_pinned(step_tables_bytes(limits), "the tables of a step"));
    KIPP_ASSIGN(loaded.done[i], Event::create());
  }
  KIPP_CUDA_TRY(cudaDeviceSynchronize(), "loading the model");
  loaded_.emplace(std::move(loaded));
  uncollected_.clear();
  latest_ = {};
  return {};
}

Result<void> CudaBackend::enter() const {
  if (!loaded_) {
    return make_error(ErrorCode::kInternal, "cuda: no model is loaded");
  }
  return check(cudaSetDevice(device_.index), "making the device current");
}

PassContext CudaBackend::context() {
  return {.dims = loaded_->dims,
          .device = device_,
          .weights = loaded_->weights,
          .workspace = loaded_->workspace,
          .kv_pool = loaded_->kv.data(),
          .kv_layer_stride = loaded_->kv.layer_stride(),
          .frequencies = reinterpret_cast<const float*>(loaded_->frequencies.data()),
          .sampled = loaded_->sampler.ids(),
          .stream = loaded_->stream.get()};
}

Result<StepId> CudaBackend::forward(const Batch& batch) {
  KIPP_TRY(enter());
  if (uncollected_.size() == kMaxUncollected) {
    return invalid(
        fmt::format("{} steps are not collected: collect step {} first", kMaxUncollected, uncollected_.front().id));
  }
  const auto previous_rows = static_cast<int32_t>(latest_.sampled ? latest_.slot_of_head.size() : 0);
  KIPP_TRY(validate_batch(batch, loaded_->limits, loaded_->kv.num_blocks(), loaded_->dims.vocab, previous_rows));
  StepPlan plan = plan_step(batch, loaded_->dims.num_query_heads);
  Step step{.id = latest_.id + 1, .slot_of_head = {}, .sampled = false, .buffer = 0};
  // At most one step is uncollected, in whatever order steps are collected: the other's buffer is free.
  step.buffer = uncollected_.empty() ? 0 : 1 - uncollected_.front().buffer;
  size_t bytes = 0;
  std::byte* host = loaded_->host_tables[step.buffer].data();
  fill_tables(batch, plan, loaded_->dims.num_query_heads, latest_.slot_of_head,
              StepTables::at(host, plan.shape, bytes));
  step.slot_of_head = std::move(plan.slot_of_head);
  const cudaStream_t stream = loaded_->stream.get();
  KIPP_CUDA_TRY(cudaMemcpyAsync(loaded_->tables.data(), host, bytes, cudaMemcpyHostToDevice, stream),
                "uploading a step's tables");
  const auto enqueued = loaded_->graphs.run(context(), plan.shape, loaded_->tables.data(), counts_).and_then([&] {
    return check(cudaEventRecord(loaded_->done[step.buffer].get(), stream), "ending a step");
  });
  if (!enqueued) {  // part of it may have run: what the step before left no longer stands
    cudaStreamSynchronize(stream);
    latest_ = {.id = step.id, .slot_of_head = {}, .sampled = true, .buffer = 0};
    return tl::unexpected<Error>(enqueued.error());
  }
  latest_ = step;
  uncollected_.push_back(std::move(step));
  return latest_.id;
}

Result<void> CudaBackend::sample(StepId step, std::span<const SampleRow> rows) {
  KIPP_TRY(enter());
  if (step == 0 || latest_.id != step || latest_.sampled) {
    return invalid(fmt::format("sampling step {}: only the latest step can be sampled, and only once", step));
  }
  if (rows.size() != latest_.slot_of_head.size()) {
    return invalid(
        fmt::format("sampling step {}: expected {} rows, found {}", step, latest_.slot_of_head.size(), rows.size()));
  }
  if (rows.empty()) {
    return {};
  }
  std::vector<SampleRow> by_slot(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) by_slot[static_cast<size_t>(latest_.slot_of_head[r])] = rows[r];
  const cudaStream_t stream = loaded_->stream.get();
  KIPP_TRY(loaded_->sampler.enqueue(by_slot, loaded_->workspace.logits, latest_.buffer, {.stream = stream}));
  ++counts_[static_cast<size_t>(KernelClass::kSample)];
  KIPP_CUDA_TRY(cudaEventRecord(loaded_->done[latest_.buffer].get(), stream), "ending a step");
  latest_.sampled = true;
  if (uncollected_.empty() || uncollected_.back().id != step) {
    uncollected_.push_back(latest_);
  }
  uncollected_.back().sampled = true;
  return {};
}

Result<void> CudaBackend::collect(StepId step, std::span<RowResult> results) {
  KIPP_TRY(enter());
  const auto found = std::ranges::find(uncollected_, step, &Step::id);
  if (found == uncollected_.end()) {
    return invalid(fmt::format("collecting step {}: there is no such step, or it was collected", step));
  }
  const size_t expected = found->sampled ? found->slot_of_head.size() : 0;
  if (results.size() != expected) {
    return invalid(
        fmt::format("collecting step {}: {} rows were sampled, found room for {}", step, expected, results.size()));
  }
  KIPP_CUDA_TRY(cudaEventSynchronize(loaded_->done[found->buffer].get()), "computing a step");
  if (found->sampled) {
    std::vector<RowResult> by_slot(expected);
    loaded_->sampler.read(found->buffer, by_slot);
    for (size_t r = 0; r < expected; ++r) results[r] = std::move(by_slot[static_cast<size_t>(found->slot_of_head[r])]);
  }
  uncollected_.erase(found);
  return {};
}

Result<void> CudaBackend::logits(StepId step, int32_t row, std::span<float> out) {
  KIPP_TRY(enter());
  if (step == 0 || step != latest_.id) {
    return invalid(fmt::format("logits of step {}: those of step {} stand", step, latest_.id));
  }
  if (row < 0 || static_cast<size_t>(row) >= latest_.slot_of_head.size()) {
    return invalid(
        fmt::format("logits of step {}: expected a row in [0, {}), found {}", step, latest_.slot_of_head.size(), row));
  }
  const auto vocab = static_cast<size_t>(loaded_->dims.vocab);
  if (out.size() != vocab) {
    return invalid(fmt::format("logits: expected room for {} values, found {}", vocab, out.size()));
  }
  const auto slot = static_cast<size_t>(latest_.slot_of_head[static_cast<size_t>(row)]);
  KIPP_CUDA_TRY(cudaMemcpyAsync(out.data(), loaded_->workspace.logits + slot * vocab, out.size_bytes(),
                                cudaMemcpyDeviceToHost, loaded_->stream.get()),
                "reading logits");
  return loaded_->stream.wait();
}

Result<void> CudaBackend::evaluate_stateless(std::span<const int32_t> tokens, const StatelessObserver& observer) {
  KIPP_TRY(enter());
  KIPP_TRY(validate_stateless(tokens, loaded_->limits, loaded_->dims.vocab));
  return cuda::evaluate_stateless(context(), loaded_->scheme, tokens, observer, counts_);
}

Result<void> CudaBackend::copy_blocks(std::span<const int32_t> from, std::span<const int32_t> to) {
  KIPP_TRY(enter());
  return loaded_->kv.copy(from, to, loaded_->stream.get());
}

Result<void> CudaBackend::read_block(int32_t block, KvBlock& out) const {
  KIPP_TRY(enter());
  return loaded_->kv.read(block, out, loaded_->stream.get());
}

Result<void> CudaBackend::write_block(int32_t block, const KvBlock& in) {
  KIPP_TRY(enter());
  return loaded_->kv.write(block, in, loaded_->stream.get());
}

Report CudaBackend::report() const {
  Report report{.backend = fmt::format("cuda/sm_{}{}", device_.major, device_.minor),
                .kernels = {},
                .device = device_.description};
  for (size_t i = 0; i < counts_.size(); ++i) {
    const auto kernel = static_cast<KernelClass>(i);
    const bool possible =
        loaded_ ? is_possible(kernel, device_, loaded_->scheme) : is_possible(kernel, device_, QuantScheme::kBf16);
    if (possible) {
      report.kernels.emplace_back(kernel_name(kernel), counts_[i]);
    }
  }
  return report;
}

// Every operator runs fused with others: tests/cuda tests the kernels themselves.
const OperatorTable& CudaBackend::operators() const {
  static constexpr OperatorTable kTable = {.backend = "cuda",
                                           .embedding = nullptr,
                                           .rms_norm = nullptr,
                                           .matmul = nullptr,
                                           .rope = nullptr,
                                           .kv_write = nullptr,
                                           .attention = nullptr,
                                           .swiglu = nullptr,
                                           .residual_add = nullptr};
  return kTable;
}

}  // namespace
}  // namespace kipp::cuda

namespace kipp {

Result<std::unique_ptr<Backend>> create_cuda_backend(const BackendOptions& options) {
  if (!options.round_kv) {
    return make_error(ErrorCode::kUnsupported, "cuda: K and V in FP32 (round_kv off) is a switch of oracle and cpu");
  }
  KIPP_ASSIGN(const cuda::Device device, cuda::open_device(options.device));
  return std::make_unique<cuda::CudaBackend>(device, options.on_uploaded);
}

}  // namespace kipp
