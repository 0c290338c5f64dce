// What the scheduler itself costs: next_step() and complete() with ids made up, no backend. One JSON object on stdout,
// times in microseconds, each the median of its steps on one thread.
//   scheduler_bench
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace {

using kipp::BlockPool;
using kipp::ScheduledStep;
using kipp::Scheduler;

std::vector<int32_t> iota(int32_t count, int32_t first) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

double us_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// A pool and a scheduler as wide as a server's on a large GPU.
struct Server {
  explicit Server(int32_t max_tokens_per_step)
      : scheduler(*Scheduler::create(pool, {.max_tokens_per_step = max_tokens_per_step,
                                            .max_sequences = 256,
                                            .max_head_rows = 256,
                                            .context = 65536,
                                            .look_ahead = true})) {}

  void add(uint64_t id, std::vector<int32_t> prompt, int32_t max_new_tokens) {
    if (!scheduler->add({.id = id, .prompt_ids = std::move(prompt), .max_new_tokens = max_new_tokens})) {
      std::fputs("scheduler_bench: a request was refused\n", stderr);
      std::exit(1);
    }
  }
  void complete(const ScheduledStep& step) {
    const std::vector<int32_t> ids(step.rows.size(), 5);
    if (!scheduler->complete(step.id, ids)) {
      std::exit(1);
    }
  }

  BlockPool pool{40000};
  std::unique_ptr<Scheduler> scheduler;
};

// Steps in which every sequence decodes, one step ahead.
double decode_us(int32_t num_sequences, int32_t num_positions) {
  Server server(8192);
  for (int32_t i = 0; i < num_sequences; ++i) {
    server.add(static_cast<uint64_t>(i), iota(num_positions, i * 100000), 300);
  }
  std::vector<double> times;
  std::optional<ScheduledStep> previous = server.scheduler->next_step();
  while (previous) {
    const bool decodes = previous->tokens.size() == static_cast<size_t>(num_sequences);
    const auto start = std::chrono::steady_clock::now();
    std::optional<ScheduledStep> next = server.scheduler->next_step();
    server.complete(*previous);
    if (decodes) {
      times.push_back(us_since(start));
    }
    previous = std::move(next);
  }
  return median(std::move(times));
}

double chunk_us(int32_t num_tokens) {
  Server server(num_tokens);
  server.add(0, iota(60000, 0), 1);
  std::vector<double> times;
  for (;;) {
    const auto start = std::chrono::steady_clock::now();
    const auto step = server.scheduler->next_step();
    if (!step) {
      return median(std::move(times));
    }
    server.complete(*step);
    times.push_back(us_since(start));
  }
}

// The step that admits so many requests with the same 1,000 tokens and 100 of their own.
double admission_us(int32_t num_requests) {
  std::vector<double> times;
  for (int32_t repeat = 0; repeat < 9; ++repeat) {
    Server server(512);
    for (int32_t i = 0; i < num_requests; ++i) {
      auto prompt = iota(1000, 0);
      const auto own = iota(100, (i + 1) * 1000);
      prompt.insert(prompt.end(), own.begin(), own.end());
      server.add(static_cast<uint64_t>(i), std::move(prompt), 50);
    }
    const auto start = std::chrono::steady_clock::now();
    const auto step = server.scheduler->next_step();
    times.push_back(step ? us_since(start) : 0);
  }
  return median(std::move(times));
}

}  // namespace

int main() {
  std::string decode;
  for (const int32_t num_sequences : {1, 16, 64, 256}) {
    for (const int32_t num_positions : {500, 4000}) {
      decode += fmt::format("{}{{\"sequences\": {}, \"positions\": {}, \"us\": {:.1f}}}", decode.empty() ? "" : ", ",
                            num_sequences, num_positions, decode_us(num_sequences, num_positions));
    }
  }
  std::puts(fmt::format("{{\"decode\": [{}], \"chunk_8192_us\": {:.1f}, \"admit_256_us\": {:.1f}}}", decode,
                        chunk_us(8192), admission_us(256))
                .c_str());
  return 0;
}
