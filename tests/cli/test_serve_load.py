"""kipp serve under load, the short form of bench/server_load.py: no fault, no block lost, and what others cost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest
from examples import ROOT
from kipp_process import OK, Kipp
from served import Served, serving

sys.path.append(str(ROOT / "bench"))
import load_clients
from load_clients import Target
from server_load import STORM_FLAGS, company, health_during_prefill, repeated_prompt, shared_prompt, storm


def target_of(served: Served) -> Target:
    return Target(served.host, served.port)


@pytest.fixture(scope="module")
def target(demo: Kipp) -> Iterator[Target]:
    with serving(demo, "--kv-blocks", "512") as served:
        yield target_of(served)
        assert served.end()[0] == OK


def test_a_storm_of_clients_leaves_nothing_behind(demo: Kipp) -> None:
    with serving(demo, *STORM_FLAGS) as served:
        results = asyncio.run(storm(target_of(served), served.process.pid, 150, 32, 20261130))
        assert results["faults"] == []
        assert sum(results["outcomes"].values()) == 150
        assert results["growth_of_the_second_half_mib"] < 32
        assert results["pool_is_whole_afterwards"]
        assert served.get("/health").status == 200
        assert served.end()[0] == OK


def test_a_prompt_that_was_seen_begins_sooner(target: Target) -> None:
    results = asyncio.run(repeated_prompt(target, 1500, 1))
    assert results["times_shorter"] > 5, "a busy machine; the record has the number"


def test_a_shared_system_prompt_is_evaluated_once(target: Target) -> None:
    results = asyncio.run(shared_prompt(target, 64, 1000))
    assert results["prompt_tokens"] > 64 * 1000
    assert results["evaluated_of_the_first"] > 1000
    assert results["evaluated_of_the_others_at_most"] <= 64, "the last block and what is one's own"


def test_health_is_answered_while_prompts_are_evaluated(target: Target) -> None:
    results = asyncio.run(health_during_prefill(target, 3, 2040))
    assert results["samples"] >= 5
    assert results["median_ms"] < 25


def test_idle_and_slow_clients_do_not_stop_others(target: Target) -> None:
    results = asyncio.run(company(target, 4, 200, 40, 16))
    assert results["ratio_of_medians"] < 4, "a machine may be busy; the record has the number"


def test_a_server_that_loses_a_stream_is_noticed() -> None:
    whole = b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
    headers = {"content-type": "text/event-stream"}
    assert load_clients.verdict(load_clients.Answer(200, headers, whole)) == "streamed"
    for broken in (whole[:-2], b'data: {"choices":[]}\n\n', b'data: {"error":{}}\n\ndata: [DONE]\n\n'):
        assert load_clients.verdict(load_clients.Answer(200, headers, broken)).startswith("fault")
    assert load_clients.verdict(load_clients.Answer(500, {}, b"{}")).startswith("fault")
