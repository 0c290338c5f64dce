// Which moments make which time, from a clock of the test's own.
#include "server/service/service_metrics.h"

#include <gtest/gtest.h>

#include <chrono>

namespace kipp {
namespace {

using std::chrono::milliseconds;

constexpr SchedulerTime kArrived{std::chrono::seconds(1000)};

SchedulerTime at(int64_t ms) {
  return kArrived + milliseconds(ms);
}

uint64_t count_of(const metrics::Histogram& histogram) {
  uint64_t total = 0;
  for (const uint64_t count : histogram.snapshot().counts) total += count;
  return total;
}

void expect_one(const metrics::Histogram& histogram, double seconds) {
  EXPECT_EQ(count_of(histogram), 1U);
  EXPECT_NEAR(histogram.snapshot().sum, seconds, 1e-9);
}

uint64_t finished(const ServiceMetrics& metrics, FinishedReason reason) {
  return metrics.num_finished[static_cast<size_t>(reason)].load();
}

TEST(RequestMeter, MeasuresFromTheArrival) {
  ServiceMetrics metrics;
  RequestMeter meter(metrics, kArrived, 7, 1);
  for (const int64_t ms : {100, 130, 190}) meter.note_token(0, at(ms));
  expect_one(metrics.first_token, 0.1);
  EXPECT_EQ(metrics.num_prompt_tokens.load(), 7U) << "as soon as they are evaluated";
  meter.note_end({.choice = 0, .reason = FinishReason::kLength});
  meter.note_finished({.num_prompt_tokens = 7,
                       .times = {.queued = at(5), .first_scheduled = at(20), .first_token = at(99), .ended = at(190)}});
  expect_one(metrics.queue, 0.02);
  expect_one(metrics.prefill, 0.079);
  expect_one(metrics.decode, 0.091);
  expect_one(metrics.inference, 0.17);
  expect_one(metrics.end_to_end, 0.19);
  expect_one(metrics.per_output_token, 0.045);
  expect_one(metrics.prompt_tokens, 7.0);
  expect_one(metrics.generation_tokens, 3.0);
  EXPECT_EQ(count_of(metrics.inter_token), 2U);
  EXPECT_NEAR(metrics.inter_token.snapshot().sum, 0.09, 1e-9);
  EXPECT_EQ(count_of(metrics.first_token), 1U) << "once";
  EXPECT_EQ(metrics.num_prompt_tokens.load(), 7U);
  EXPECT_EQ(metrics.num_generation_tokens.load(), 3U);
  EXPECT_EQ(finished(metrics, FinishedReason::kLength), 1U);
}

TEST(RequestMeter, ChoicesAreCountedEachOnItsOwn) {
  ServiceMetrics metrics;
  RequestMeter meter(metrics, kArrived, 4, 3);
  meter.note_token(1, at(10));
  meter.note_token(0, at(20));
  meter.note_token(1, at(60));
  meter.note_end({.choice = 1, .reason = FinishReason::kStop});
  meter.note_end({.choice = 0, .reason = FinishReason::kCancelled});
  meter.note_end({.choice = 2, .reason = FinishReason::kStop, .error = Error{ErrorCode::kNumerical, "x"}});
  meter.note_finished({.times = {.queued = at(0), .first_scheduled = at(1), .first_token = at(9), .ended = at(70)}});
  expect_one(metrics.inter_token, 0.05);
  expect_one(metrics.per_output_token, 0.05);
  EXPECT_EQ(count_of(metrics.generation_tokens), 3U);
  EXPECT_EQ(metrics.generation_tokens.snapshot().sum, 3.0);
  EXPECT_EQ(metrics.num_prompt_tokens.load(), 4U) << "a prompt is evaluated once";
  EXPECT_EQ(finished(metrics, FinishedReason::kStop), 1U);
  EXPECT_EQ(finished(metrics, FinishedReason::kAbort), 1U);
  EXPECT_EQ(finished(metrics, FinishedReason::kError), 1U);
}

TEST(RequestMeter, WhatNeverRanHasAnEndAlone) {
  ServiceMetrics metrics;
  RequestMeter meter(metrics, kArrived, 4, 1);
  meter.note_end({.choice = 0, .reason = FinishReason::kCancelled});
  meter.note_finished({.times = {.queued = at(0), .ended = at(40)}});
  expect_one(metrics.end_to_end, 0.04);
  expect_one(metrics.generation_tokens, 0.0);
  for (const metrics::Histogram* none : {&metrics.queue, &metrics.prefill, &metrics.decode, &metrics.inference,
                                         &metrics.first_token, &metrics.inter_token, &metrics.per_output_token}) {
    EXPECT_EQ(count_of(*none), 0U);
  }
  EXPECT_EQ(metrics.num_prompt_tokens.load(), 0U);
  EXPECT_EQ(finished(metrics, FinishedReason::kAbort), 1U);
}

TEST(RequestMeter, AStopTokenAloneIsAFirstTokenToo) {
  ServiceMetrics metrics;
  RequestMeter meter(metrics, kArrived, 4, 1);
  meter.note_end({.choice = 0, .reason = FinishReason::kStop, .stop_token = 1});
  meter.note_finished({.times = {.queued = at(0), .first_scheduled = at(1), .first_token = at(30), .ended = at(30)}});
  expect_one(metrics.first_token, 0.03);
  EXPECT_EQ(metrics.num_prompt_tokens.load(), 4U);
  EXPECT_EQ(metrics.num_generation_tokens.load(), 0U);
}

}  // namespace
}  // namespace kipp
