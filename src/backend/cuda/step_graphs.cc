// See step_graphs.h. A shape is recorded at its second step: many shapes are seen only once.
#include "backend/cuda/step_graphs.h"

namespace kipp::cuda {
namespace {

constexpr size_t kMostShapes = 256;  // of which graphs are kept; then all are made anew

void add(KernelCounts& to, const KernelCounts& counts) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += counts[i];
}

}  // namespace

Result<void> StepGraphs::run(const PassContext& context, const StepShape& shape, std::byte* tables,
                             KernelCounts& counts) {
  size_t bytes = 0;
  const StepTables at = StepTables::at(tables, shape, bytes);
  if (shape.num_prompt > 0) {
    return forward_pass(context, shape, at, counts);
  }
  if (shapes_.size() == kMostShapes && !shapes_.contains(shape)) clear();
  const auto [found, is_new] = shapes_.try_emplace(shape);
  Entry& entry = found->second;
  if (is_new) {
    return forward_pass(context, shape, at, counts);
  }
  if (entry.graph == nullptr) {
    KIPP_ASSIGN(entry, capture(context, shape, at));
  }
  KIPP_CUDA_TRY(cudaGraphLaunch(entry.graph, context.stream), "starting a step");
  add(counts, entry.counts);
  return {};
}

Result<StepGraphs::Entry> StepGraphs::capture(const PassContext& context, const StepShape& shape,
                                              const StepTables& tables) {
  Entry entry;
  KIPP_CUDA_TRY(cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal), "recording a step");
  const Result<void> recorded = forward_pass(context, shape, tables, entry.counts);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(context.stream, &graph);
  if (!recorded && graph != nullptr) cudaGraphDestroy(graph);
  KIPP_TRY(recorded);
  KIPP_CUDA_TRY(ended, "recording a step");
  const cudaError_t made = cudaGraphInstantiate(&entry.graph, graph, 0);
  cudaGraphDestroy(graph);
  KIPP_CUDA_TRY(made, "making a step's graph");
  return entry;
}

void StepGraphs::clear() {
  for (auto& [shape, entry] : shapes_) {
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
  }
  shapes_.clear();
}

}  // namespace kipp::cuda
