// Threads of its own that start together, each on its own part: the limit must not depend on how a pool wakes.
#include "backend/cpu/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/machine.h"

namespace kipp::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxBytes = size_t{1} << 30;
constexpr size_t kMinBytes = size_t{16} << 20;
constexpr int32_t kPasses = 3;
constexpr double kPassSeconds = 0.01;  // of a matrix rate: long enough for clock and threads, short beside a decode

// body(thread) on every thread at once; returns the seconds from the first start to the last end.
Result<double> seconds_together(int32_t num_threads, const std::function<void(int32_t)>& body) {
  enum Signal : int32_t { kWait, kGo, kStop };
  std::atomic<int32_t> signal{kWait};
  std::atomic<int32_t> num_ready{0};
  std::vector<Clock::time_point> begins(static_cast<size_t>(num_threads));
  std::vector<Clock::time_point> ends(begins.size());
  const auto run = [&](int32_t thread) {
    ++num_ready;
    num_ready.notify_one();
    signal.wait(kWait);
    if (signal == kGo) {
      begins[static_cast<size_t>(thread)] = Clock::now();
      body(thread);
      ends[static_cast<size_t>(thread)] = Clock::now();
    }
  };
  const auto release = [&](Signal what) {
    signal = what;
    signal.notify_all();
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int32_t thread = 1; thread < num_threads; ++thread) {
        threads.emplace_back(run, thread);
      }
    } catch (const std::system_error& error) {
      release(kStop);
      return make_error(ErrorCode::kCapacity,
                        fmt::format("probe: {} threads cannot be started: {}", num_threads, error.what()));
    }
    for (int32_t ready = num_ready; ready < num_threads - 1; ready = num_ready) {
      num_ready.wait(ready);  // a thread that has yet to start would count as one that is slow
    }
    release(kGo);
    run(0);
  }
  return std::chrono::duration<double>(*std::ranges::max_element(ends) - *std::ranges::min_element(begins)).count();
}

// Part `index` of `count`, on a cache line.
std::span<const std::byte> part_of(std::span<const std::byte> bytes, int32_t index, int32_t count) {
  constexpr size_t kLine = 64;
  const size_t part = bytes.size() / static_cast<size_t>(count) / kLine * kLine;
  return bytes.subspan(part * static_cast<size_t>(index), part);
}

}  // namespace

MatrixRate matrix_rate(const ProbeRates& rates) {
  if (rates.bf16_tile > 0) {
    return {"TDPBF16PS", rates.bf16_tile};
  }
  return rates.bf16_dot > rates.fp32 ? MatrixRate{"vdpbf16ps", rates.bf16_dot} : MatrixRate{"FP32", rates.fp32};
}

struct Probe::Impl {
  const Kernels& kernels;
  int32_t num_threads;
  std::span<const std::byte> mapped;
  AlignedBuffer<std::byte> memory;

  // All threads' amount per second in one pass; the seconds too.
  struct Pass {
    double per_second;
    double seconds;
  };
  Result<Pass> pass(const std::function<ProbeArgs(int32_t)>& args_of) const {
    std::vector<int64_t> done(static_cast<size_t>(num_threads));
    KIPP_ASSIGN(const double seconds, seconds_together(num_threads, [&](int32_t thread) {
                  done[static_cast<size_t>(thread)] = kernels.probe(args_of(thread));
                }));
    int64_t amount = 0;
    for (const int64_t part : done) {
      amount += part;
    }
    return Pass{seconds > 0 ? static_cast<double>(amount) / seconds : 0, seconds};
  }

  Result<double> read_rate(std::span<const std::byte> bytes) const {
    double best = 0;
    for (int32_t i = 0; i < kPasses; ++i) {
      KIPP_ASSIGN(const Pass done, pass([&](int32_t thread) {
                    const auto part = part_of(bytes, thread, num_threads);
                    return ProbeArgs{ProbeKind::kRead, part.data(), part.size(), 0};
                  }));
      best = std::max(best, done.per_second);
    }
    return best;
  }

  // Rounds are doubled until they take long enough at the best rate so far, then a few passes are taken: a pass that
  // only waited for a processor must not end the search.
  Result<double> product_rate(ProbeKind kind) const {
    int64_t rounds = 1 << 14;
    double best = 0;
    for (int32_t long_enough = 0; long_enough < kPasses;) {
      KIPP_ASSIGN(const Pass done, pass([&](int32_t) { return ProbeArgs{kind, nullptr, 0, rounds}; }));
      if (done.per_second == 0) {
        return 0.0;  // no such instruction
      }
      best = std::max(best, done.per_second);
      if (done.per_second * done.seconds < best * kPassSeconds) {
        rounds *= 2;
      } else {
        ++long_enough;
      }
    }
    return best;
  }
};

Probe::Probe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Probe::Probe(Probe&&) noexcept = default;
Probe& Probe::operator=(Probe&&) noexcept = default;
Probe::~Probe() = default;

Result<Probe> Probe::create(const Kernels& kernels, int32_t num_threads, std::span<const std::byte> mapped) {
  const uint64_t quarter = available_memory_bytes() / 4;
  const size_t wanted = std::clamp(static_cast<size_t>(quarter), kMinBytes, kMaxBytes);
  KIPP_ASSIGN(auto memory, AlignedBuffer<std::byte>::create(wanted / kHugePage * kHugePage, "probe"));
  const auto all = memory.span();
  KIPP_TRY(seconds_together(num_threads, [&](int32_t thread) {
    const auto part = part_of(all, thread, num_threads);
    std::fill_n(all.begin() + (part.data() - all.data()), part.size(), std::byte{1});  // pages exist once written
  }));
  return Probe(std::make_unique<Impl>(
      Impl{kernels, num_threads, mapped.first(std::min(mapped.size(), kMaxBytes)), std::move(memory)}));
}

Result<ProbeRates> Probe::measure() const {
  ProbeRates rates;
  KIPP_ASSIGN(rates.read_memory, impl_->read_rate(impl_->memory.span()));
  KIPP_ASSIGN(rates.read_mapped, impl_->read_rate(impl_->mapped));
  KIPP_ASSIGN(rates.fp32, impl_->product_rate(ProbeKind::kFp32));
  KIPP_ASSIGN(rates.bf16_dot, impl_->product_rate(ProbeKind::kBf16Dot));
  KIPP_ASSIGN(rates.bf16_tile, impl_->product_rate(ProbeKind::kBf16Tile));
  KIPP_ASSIGN(rates.int8, impl_->product_rate(ProbeKind::kInt8));
  return rates;
}

size_t Probe::memory_bytes() const {
  return impl_->memory.span().size();
}
size_t Probe::mapped_bytes() const {
  return impl_->mapped.size();
}

}  // namespace kipp::cpu
