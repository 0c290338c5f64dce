"""GET /metrics, read with Prometheus's own parser, against counts that the traffic fixes exactly."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Iterator

import pytest
from kipp_process import Kipp
from served import Served, chat_body, serving

parser = pytest.importorskip("prometheus_client.parser", reason="scripts/setup.sh test installs it")

STORY = "Once upon a time"
PREFIX = "vllm:"


@pytest.fixture
def served(demo: Kipp) -> Iterator[Served]:
    """A server that nobody else has asked anything."""
    with serving(demo, "--max-sequences", "4", "--kv-blocks", "200") as server:
        yield server


class Metrics:
    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in parser.text_string_to_metric_families(text)}
        self.values: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in self.families.values():
            for sample in family.samples:
                labels = frozenset((k, v) for k, v in sample.labels.items() if k not in {"model_name", "engine"})
                samples = self.values.setdefault(sample.name, {})
                assert labels not in samples, f"{sample.name} twice"
                samples[labels] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        return self.values[name].get(frozenset(labels.items()), 0)

    def count(self, histogram: str) -> float:
        """Observations; the buckets must be cumulative and end with all of them."""
        samples = self.values[f"{histogram}_bucket"].items()
        buckets = sorted((float(dict(labels)["le"]), value) for labels, value in samples)
        assert buckets[-1][0] == float("inf")
        values = [value for _, value in buckets]
        assert values == sorted(values)
        assert values[-1] == self(f"{histogram}_count")
        return values[-1]


def scrape(served: Served, **headers: str) -> Metrics:
    answer = served.get("/metrics", **headers)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Metrics(answer.body.decode())


def scrape_idle(served: Served) -> Metrics:
    """Once nothing runs: the gauges are those of the step before."""
    deadline = time.monotonic() + 30
    while True:
        metrics = scrape(served)
        if metrics("vllm:num_requests_running") == 0 and metrics("vllm:num_requests_waiting") == 0:
            return metrics
        assert time.monotonic() < deadline
        time.sleep(0.02)


REQUEST_TIMES = (
    "vllm:time_to_first_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:request_inference_time_seconds",
)


def test_a_new_server_has_every_family_and_has_counted_nothing(served: Served) -> None:
    metrics = scrape(served)
    types = {name: family.type for name, family in metrics.families.items()}
    for histogram in (*REQUEST_TIMES, "vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds",
                      "vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:iteration_tokens_total",
                      "kipp_step_sequences"):
        assert types[histogram] == "histogram"
        assert metrics.count(histogram) == 0
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert types[gauge] == "gauge"
        assert metrics(gauge) == 0
    for counter in ("vllm:prompt_tokens", "vllm:generation_tokens", "vllm:prefix_cache_queries",
                    "vllm:prefix_cache_hits", "vllm:num_preemptions"):
        assert types[counter] == "counter"
        assert metrics(f"{counter}_total") == 0
    labels = {frozenset(sample.labels.items()) for sample in metrics.families["vllm:num_requests_running"].samples}
    assert labels == {frozenset({("model_name", "kipp-demo"), ("engine", "0")})}
    config = metrics.families["vllm:cache_config_info"].samples[0]
    assert (config.labels["block_size"], config.labels["num_gpu_blocks"]) == ("32", "200")
    assert metrics("kipp_kv_blocks", state="free") == 200
    for name in metrics.families:
        assert name.startswith(("vllm:", "kipp_")), name


def test_counts_are_those_of_the_traffic(served: Served) -> None:
    """Three completions, one with two choices; a chat; one that is cut by a stop string; refusals of three kinds."""
    for _ in range(2):
        served.complete(STORY, max_tokens=6, ignore_eos=True)
    served.complete(STORY, max_tokens=5, n=2, seed=1, temperature=1.0, ignore_eos=True)
    chat = served.chat("Hi", max_tokens=7, ignore_eos=True)
    text = served.complete(STORY, max_tokens=24)["choices"][0]["text"]
    stopped = served.complete(STORY, max_tokens=24, stop=[text[10:14]])
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert served.post("/v1/completions", {"prompt": "Hi", "max_token": 1}).status == 400
    assert served.post("/v1/completions", {"prompt": "Hi", "model": "gpt-4o"}).status == 404
    assert served.post("/v1/chat/completions", {"messages": []}).status == 400
    assert served.get("/nowhere").status == 404

    metrics = scrape_idle(served)
    prompts = [4, 4, 4, chat["usage"]["prompt_tokens"], 4, 4]
    # A stop string ends a choice with tokens that usage counts, too.
    choices = [6, 6, 5, 5, 7, 24, stopped["usage"]["completion_tokens"]]
    assert metrics("vllm:prompt_tokens_total") == sum(prompts)
    assert metrics("vllm:generation_tokens_total") == sum(choices)
    for histogram in REQUEST_TIMES:
        assert metrics.count(histogram) == len(prompts), histogram
    assert metrics.count("vllm:request_prompt_tokens") == len(prompts)
    assert metrics("vllm:request_prompt_tokens_sum") == sum(prompts)
    assert metrics.count("vllm:request_generation_tokens") == len(choices)
    assert metrics("vllm:request_generation_tokens_sum") == sum(choices)
    assert metrics("vllm:request_generation_tokens_bucket", le="5.0") == sum(count <= 5 for count in choices)
    assert metrics.count("vllm:request_time_per_output_token_seconds") == len(choices)
    assert metrics.count("vllm:inter_token_latency_seconds") == sum(count - 1 for count in choices)
    assert metrics("vllm:request_success_total", finished_reason="length") == 6
    assert metrics("vllm:request_success_total", finished_reason="stop") == 1
    assert metrics("vllm:request_success_total", finished_reason="abort") == 0
    assert metrics("vllm:request_success_total", finished_reason="error") == 0
    assert metrics.count("vllm:iteration_tokens_total") == metrics("kipp_steps_total")
    assert metrics.count("kipp_step_sequences") == metrics("kipp_steps_total")
    assert metrics("vllm:kv_cache_usage_perc") == 0
    assert sum(metrics.values["kipp_kv_blocks"].values()) == 200
    assert metrics.values["kipp_requests_refused_total"] == {
        frozenset({("reason", "unknown_parameter"), ("status", "400")}): 1,
        frozenset({("reason", "invalid_value"), ("status", "400")}): 1,
        frozenset({("reason", "model_not_found"), ("status", "404")}): 1,
        frozenset({("reason", "not_found"), ("status", "404")}): 1,
    }
    assert metrics("kipp_http_responses_total", status="400") == 2
    assert metrics("kipp_http_responses_total", status="404") == 2
    assert metrics("kipp_http_connections_total") == metrics("kipp_http_requests_total")


def test_times_are_plausible(served: Served) -> None:
    start = time.monotonic()
    served.complete(STORY, max_tokens=32, ignore_eos=True)
    elapsed = time.monotonic() - start
    metrics = scrape_idle(served)
    total = metrics("vllm:e2e_request_latency_seconds_sum")
    parts = [metrics(f"vllm:request_{part}_time_seconds_sum") for part in ("queue", "prefill", "decode")]
    assert 0 < total <= elapsed
    assert sum(parts) == pytest.approx(total, abs=1e-6)
    assert metrics("vllm:inter_token_latency_seconds_sum") == pytest.approx(parts[2], rel=0.2)
    assert metrics("vllm:time_to_first_token_seconds_sum") == pytest.approx(parts[0] + parts[1], rel=0.2)


def test_the_prefix_cache_is_counted_in_tokens(served: Served) -> None:
    prompt = " ".join(f"word{i}" for i in range(120))
    first = served.complete(prompt, max_tokens=2)["usage"]
    again = served.complete(prompt, max_tokens=2)["usage"]
    metrics = scrape_idle(served)
    assert metrics("vllm:prefix_cache_queries_total") == 2 * first["prompt_tokens"]
    assert metrics("vllm:prefix_cache_hits_total") == again["prompt_tokens_details"]["cached_tokens"] > 0
    assert metrics("kipp_kv_blocks", state="cached") > 0


def test_what_runs_and_waits_is_seen_while_it_does(served: Served) -> None:
    body = {"prompt": STORY, "temperature": 0, "max_tokens": 400, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        running = [pool.submit(served.post, "/v1/completions", body | {"seed": i}) for i in range(6)]
        seen: list[tuple[float, float, float]] = []
        while not all(answer.done() for answer in running):
            metrics = scrape(served)
            seen.append((metrics("vllm:num_requests_running"), metrics("vllm:num_requests_waiting"),
                         metrics("vllm:kv_cache_usage_perc")))
            time.sleep(0.005)
        assert all(answer.result().status == 200 for answer in running)
    assert max(run for run, _, _ in seen) == 4, "as many as --max-sequences"
    assert max(wait for _, wait, _ in seen) >= 2
    assert all(run + wait <= 6 for run, wait, _ in seen)
    assert 0 < max(usage for _, _, usage in seen) <= 1
    assert scrape_idle(served).count("vllm:e2e_request_latency_seconds") == 6


def test_a_client_that_leaves_is_an_abort_and_no_refusal(served: Served) -> None:
    served.begin_and_leave({"prompt": STORY, "max_tokens": 1900, "ignore_eos": True, "stream": True})
    deadline = time.monotonic() + 20
    while scrape(served)("vllm:request_success_total", finished_reason="abort") == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    metrics = scrape_idle(served)
    assert metrics("vllm:request_success_total", finished_reason="abort") == 1
    assert "kipp_requests_refused_total" not in metrics.values


def test_metrics_need_a_key_unless_they_are_open(demo: Kipp) -> None:
    with serving(demo, "--api-key", "sesame") as served:
        assert served.get("/metrics").status == 401
        metrics = scrape(served, Authorization="Bearer sesame")
        assert metrics("kipp_http_refusals_total", status="401") == 1
        assert "sesame" not in served.get("/metrics", Authorization="Bearer sesame").body.decode()
    with serving(demo, "--api-key", "sesame", "--open-metrics") as served:
        scrape(served)
        assert served.post("/v1/completions", chat_body("Hi")).status == 401
