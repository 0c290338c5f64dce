// How values are distributed over fixed buckets: counted from any thread without a lock, read while others count.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace kipp::metrics {

class Histogram {
 public:
  // Upper bounds, inclusive and ascending; what lies above the last one has a bucket of its own.
  explicit Histogram(std::span<const double> bounds);

  void observe(double value, uint64_t times = 1);

  // What is observed meanwhile is in it or not, but a value that is in a bucket may be missing in the sum for a moment.
  struct Snapshot {
    std::vector<uint64_t> counts = {};  // [bounds + 1] of each bucket alone
    double sum = 0.0;
  };
  Snapshot snapshot() const;
  std::span<const double> bounds() const { return bounds_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_ = 0.0;
};

}  // namespace kipp::metrics
