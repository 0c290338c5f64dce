// Steps of generated rows alone are the same launches again and again: from its second time on a shape is a graph.
#pragma once

#include <map>

#include "backend/cuda/forward.h"

namespace kipp::cuda {

class StepGraphs {
 public:
  StepGraphs() = default;
  StepGraphs(StepGraphs&& other) noexcept { shapes_.swap(other.shapes_); }
  StepGraphs& operator=(StepGraphs&& other) noexcept {
    shapes_.swap(other.shapes_);
    return *this;
  }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;
  ~StepGraphs() { clear(); }

  // Enqueues the step. tables: where those of any shape begin on the device, always the same.
  Result<void> run(const PassContext& context, const StepShape& shape, std::byte* tables, KernelCounts& counts);

 private:
  struct Entry {
    cudaGraphExec_t graph = nullptr;
    KernelCounts counts{};  // of one run
  };

  void clear();
  static Result<Entry> capture(const PassContext& context, const StepShape& shape, const StepTables& tables);

  std::map<StepShape, Entry> shapes_;
};

}  // namespace kipp::cuda
