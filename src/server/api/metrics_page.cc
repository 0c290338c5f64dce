// One function a group of families. vLLM's labels are those of its first engine.
#include "server/api/metrics_page.h"

#include "kv/block_pool.h"

namespace kipp::api {
namespace {

using metrics::Labels;
using metrics::TextPage;

uint64_t count_of(int64_t value) {
  return value > 0 ? static_cast<uint64_t>(value) : 0;
}

int32_t num_blocks(const SchedulerStats& stats) {
  return stats.num_blocks_used + stats.num_blocks_cached + stats.num_blocks_free;
}

void add_state(TextPage& page, const MetricsSources& sources, const Labels& labels) {
  const SchedulerStats& now = sources.service.scheduler;
  page.gauge("vllm:num_requests_running", "Sequences that are evaluated together now.")
      .sample(count_of(now.num_running), labels);
  page.gauge("vllm:num_requests_waiting", "Sequences that wait to be evaluated.")
      .sample(count_of(int64_t{now.num_waiting} + sources.service.num_arriving), labels);
  const int32_t total = num_blocks(now);
  page.gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks that sequences hold, 0 to 1.")
      .sample(total > 0 ? static_cast<double>(now.num_blocks_used) / total : 0.0, labels);
  Labels config = labels;
  config.push_back({"block_size", std::to_string(kBlockPositions)});
  config.push_back({"num_gpu_blocks", std::to_string(total)});
  page.gauge("vllm:cache_config_info", "Size and number of the KV blocks, wherever they are.")
      .sample(uint64_t{1}, config);
  auto blocks = page.gauge("kipp_kv_blocks", "KV blocks: used by sequences, cached for prompts to come, or free.");
  blocks.sample(count_of(now.num_blocks_used), {{"state", "used"}});
  blocks.sample(count_of(now.num_blocks_cached), {{"state", "cached"}});
  blocks.sample(count_of(now.num_blocks_free), {{"state", "free"}});
}

void add_totals(TextPage& page, const MetricsSources& sources, const Labels& labels) {
  const SchedulerStats& now = sources.service.scheduler;
  page.counter("vllm:prompt_tokens_total", "Tokens of prompts that were evaluated, cached ones included.")
      .sample(sources.requests.num_prompt_tokens.load(), labels);
  page.counter("vllm:generation_tokens_total", "Tokens drawn, but for stop tokens.")
      .sample(sources.requests.num_generation_tokens.load(), labels);
  page.counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked up in the prefix cache.")
      .sample(now.num_prefix_query_tokens, labels);
  page.counter("vllm:prefix_cache_hits_total", "Of these, tokens that were found.")
      .sample(now.num_prefix_hit_tokens, labels);
  page.counter("vllm:num_preemptions_total", "Sequences that gave their blocks up and went back to the queue.")
      .sample(now.num_preemptions, labels);
  auto finished = page.counter("vllm:request_success_total", "Choices that have ended, by the reason.");
  for (size_t i = 0; i < kNumFinishedReasons; ++i) {
    Labels reason = labels;
    reason.push_back({"finished_reason", kFinishedReasonNames[i]});
    finished.sample(sources.requests.num_finished[i].load(), reason);
  }
  page.counter("kipp_steps_total", "Steps of the engine.").sample(now.num_steps);
  page.counter("kipp_recomputed_tokens_total", "Tokens evaluated again after a preemption.")
      .sample(now.num_recomputed_tokens);
  page.counter("kipp_dropped_tokens_total", "Tokens drawn ahead for a choice that had ended.")
      .sample(now.num_dropped_tokens);
}

void add_times(TextPage& page, const ServiceMetrics& requests, const Labels& labels) {
  page.histogram("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.",
                 requests.first_token, labels);
  page.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a choice.", requests.inter_token, labels);
  page.histogram("vllm:request_time_per_output_token_seconds", "Mean time between a choice's tokens.",
                 requests.per_output_token, labels);
  page.histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", requests.end_to_end,
                 labels);
  page.histogram("vllm:request_queue_time_seconds", "From a request's arrival to the first step with a row of it.",
                 requests.queue, labels);
  page.histogram("vllm:request_prefill_time_seconds", "From there to the first token.", requests.prefill, labels);
  page.histogram("vllm:request_decode_time_seconds", "From the first token to the end.", requests.decode, labels);
  page.histogram("vllm:request_inference_time_seconds", "From the first step to the end.", requests.inference, labels);
}

void add_sizes(TextPage& page, const ServiceMetrics& requests, const Labels& labels) {
  page.histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", requests.prompt_tokens, labels);
  page.histogram("vllm:request_generation_tokens", "Tokens of a choice.", requests.generation_tokens, labels);
  page.histogram("vllm:iteration_tokens_total", "Tokens evaluated in a step.", requests.step_tokens, labels);
  page.histogram("kipp_step_sequences", "Sequences with tokens in a step.", requests.step_sequences);
}

void add_http(TextPage& page, const MetricsSources& sources) {
  auto refused = page.counter("kipp_requests_refused_total", "Requests refused or failed, by the error's code.");
  for (const auto& [key, count] : sources.refusals) {
    refused.sample(count, {{"reason", key.first}, {"status", std::to_string(key.second)}});
  }
  const http::Statistics& http = sources.http;
  page.gauge("kipp_http_open_connections", "Connections that are open now.").sample(uint64_t{http.open_connections});
  page.counter("kipp_http_connections_total", "Connections accepted.").sample(http.connections);
  page.counter("kipp_http_requests_total", "Requests read to their ends.").sample(http.requests);
  page.counter("kipp_http_slow_clients_total", "Connections cut because the client did not read.")
      .sample(http.slow_clients);
  auto responses = page.counter("kipp_http_responses_total", "Answers begun, by status.");
  for (const auto& [status, count] : http.responses) responses.sample(count, {{"status", std::to_string(status)}});
  auto refusals = page.counter("kipp_http_refusals_total",
                               "Of these, requests that were refused for their bytes or for want of a key, by status.");
  for (const auto& [status, count] : http.refusals) refusals.sample(count, {{"status", std::to_string(status)}});
}

}  // namespace

std::string metrics_page(const MetricsSources& sources) {
  const Labels labels = {{"model_name", sources.model}, {"engine", "0"}};
  TextPage page;
  page.gauge("kipp_build_info", "What this server was built from.")
      .sample(
          uint64_t{1},
          {{"version", sources.build.version}, {"commit", sources.build.commit}, {"compiler", sources.build.compiler}});
  add_state(page, sources, labels);
  add_totals(page, sources, labels);
  add_times(page, sources.requests, labels);
  add_sizes(page, sources.requests, labels);
  add_http(page, sources);
  return page.take();
}

}  // namespace kipp::api
