// Relaxed atomics: a scrape needs each number whole, and no order among them.
#include "server/metrics/histogram.h"

#include <algorithm>

namespace kipp::metrics {

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}

void Histogram::observe(double value, uint64_t times) {
  const auto bucket = static_cast<size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin());
  counts_[bucket].fetch_add(times, std::memory_order_relaxed);
  sum_.fetch_add(value * static_cast<double>(times), std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot snapshot{.counts = {}, .sum = sum_.load(std::memory_order_relaxed)};
  snapshot.counts.reserve(counts_.size());
  for (const std::atomic<uint64_t>& count : counts_) snapshot.counts.push_back(count.load(std::memory_order_relaxed));
  return snapshot;
}

}  // namespace kipp::metrics
