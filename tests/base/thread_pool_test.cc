// Every index exactly once, for any count, grain and number of threads; and a pool that parks.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace kipp {
namespace {

TEST(ThreadPoolTest, VisitsEveryIndexOnceInRangesOfTheGrain) {
  for (int32_t num_threads = 1; num_threads <= 5; ++num_threads) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const int64_t count : {0, 1, 2, 3, 31, 32, 33, 1000}) {
      for (const int64_t grain : {1, 2, 7, 32, 5000}) {
        std::vector<int32_t> visits(static_cast<size_t>(count), 0);  // no atomics: ranges must be disjoint
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          EXPECT_EQ(begin % grain, 0);
          for (int64_t i = begin; i < end; ++i) {
            ++visits[static_cast<size_t>(i)];
          }
        });
        EXPECT_EQ(visits, std::vector<int32_t>(visits.size(), 1))
            << num_threads << " threads, " << count << " by " << grain;
      }
    }
  }
}

TEST(ThreadPoolTest, ResultsOfOneJobAreVisibleToTheNext) {
  ThreadPool pool(4);
  std::vector<int64_t> values(4096, 0);
  for (int64_t round = 0; round < 500; ++round) {
    pool.parallel_for(4096, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t neighbour = values[static_cast<size_t>(i)];
        values[static_cast<size_t>(i)] = neighbour + round;
      }
    });
  }
  EXPECT_EQ(values, std::vector<int64_t>(4096, 500 * 499 / 2));
}

TEST(ThreadPoolTest, ThrowsAgainWhatABodyThrows) {
  for (const int32_t num_threads : {1, 4}) {
    ThreadPool pool(num_threads);
    for (int32_t round = 0; round < 100; ++round) {
      EXPECT_THROW(pool.parallel_for(64, 1,
                                     [](int64_t begin, int64_t) {
                                       if (begin % 7 == 0) {
                                         throw std::bad_alloc();
                                       }
                                     }),
                   std::bad_alloc);
    }
    std::atomic<int64_t> sum{0};
    pool.parallel_for(64, 1, [&](int64_t begin, int64_t end) {  // and goes on working
      for (int64_t i = begin; i < end; ++i) {
        sum += i;
      }
    });
    EXPECT_EQ(sum.load(), 64 * 63 / 2);
  }
}

// In a process of its own, whose address space holds no more than a few stacks.
TEST(ThreadPoolDeathTest, ThrowsWhenTheSystemHasNoMoreThreads) {
#ifdef KIPP_SANITIZED
  GTEST_SKIP() << "sanitizers reserve more address space than the test leaves";
#else
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ask_for_too_many = [] {
    rlimit limit{1U << 30, 1U << 30};
    setrlimit(RLIMIT_AS, &limit);
    try {
      ThreadPool pool(4096);  // 8 MiB of stack each
    } catch (const std::system_error&) {
      std::exit(7);
    }
    std::exit(0);
  };
  EXPECT_EXIT(ask_for_too_many(), ::testing::ExitedWithCode(7), "");
#endif
}

TEST(ThreadPoolTest, MoreThanOneThreadTakesPart) {
  ThreadPool pool(2);
  std::atomic<int32_t> waiting{0};
  pool.parallel_for(2, 1, [&](int64_t, int64_t) {  // each range waits for the other: one thread alone would time out
    ++waiting;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (waiting.load() < 2 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(waiting.load(), 2);
  });
}

TEST(ThreadPoolTest, SignalsAreForTheCallingThread) {
  ThreadPool pool(4);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> num_others = 0;
  std::atomic<int> num_open = 0;
  std::atomic<int> num_here = 0;
  std::atomic<bool> caller_came = false;
  pool.parallel_for(64, 1, [&](int64_t, int64_t) {
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    const bool open = sigismember(&blocked, SIGINT) == 0;
    if (std::this_thread::get_id() != caller) {
      ++num_others;
      num_open += open ? 1 : 0;
    } else {
      caller_came = true;
      num_here += open ? 1 : 0;
    }
    while (num_others == 0 || !caller_came) {  // a range each for a worker and the caller, however busy the machine
      std::this_thread::yield();
    }
  });
  EXPECT_GT(num_others, 0);
  EXPECT_EQ(num_open, 0);
  EXPECT_GT(num_here, 0) << "the caller's own signals stay as they were";
}

TEST(ThreadPoolTest, IdleThreadsUseNoProcessorTime) {
  ThreadPool pool(4);
  pool.parallel_for(1000, 1, [](int64_t, int64_t) {});
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const auto before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(used() - before, std::chrono::milliseconds(100));  // three spinning threads would use up to 600 ms
}

TEST(ThreadPoolTest, ComesAndGoesQuickly) {
  for (int32_t i = 0; i < 200; ++i) {
    ThreadPool pool(3);
    if (i % 2 == 0) {
      pool.parallel_for(3, 1, [](int64_t, int64_t) {});
    }
  }
}

}  // namespace
}  // namespace kipp
