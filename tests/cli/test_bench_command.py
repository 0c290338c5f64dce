"""`kipp bench`: every figure is there and fits the others; wrong flags and what does not fit say so. No times."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from typing import Any

import pytest
from examples import ROOT
from kipp_process import FAILURE, INTERRUPTED, MODEL, OK, USAGE, Kipp

SMALL = {"--backend": "cpu", "--threads": "2", "--prefill": "5", "--decode": "2", "--repetitions": "2"}
# The twin of kipp-demo: 2 layers, hidden 192, ffn 512, 16 query heads and 8 KV heads of 128, BF16.
LAYERS, HIDDEN, FFN, QUERY, KV, VOCAB = 2, 192, 512, 16 * 128, 8 * 128, 151936


def small(*arguments: str) -> list[str]:
    """Flags of a bench that takes no time, those given instead of the usual ones."""
    chosen = SMALL | dict(zip(arguments[::2], arguments[1::2], strict=True))
    return [word for pair in chosen.items() for word in pair]


def bench(kipp: Kipp, *arguments: str) -> dict[str, Any]:
    return json.loads(kipp.text("bench", "--json", *small(*arguments)))


def check_spread(spread: dict[str, Any], count: int) -> None:
    assert len(spread["all"]) == count
    assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    assert (spread["min"], spread["max"]) == (min(spread["all"]), max(spread["all"]))


def check_probes(probes: list[dict[str, float]], count: int) -> None:
    assert len(probes) == count
    for probe in probes:
        assert probe["read_memory_bytes_per_second"] > 0 and probe["read_mapped_bytes_per_second"] > 0
        assert probe["fp32_operations_per_second"] > 0
        assert min(probe.values()) >= 0


def test_every_depth_and_batch(twin: Kipp) -> None:
    result = bench(twin, "--depth", "0,40", "--batch", "1,3", "--repetitions", "1")
    assert (result["backend"], result["threads"], result["repetitions"]) == ("cpu", 2, 1)
    assert result["synthetic"] is True and result["scheme"] == "bf16" and result["isa"]
    prompt, *decodes = result["cases"]
    assert (prompt["kind"], prompt["tokens"]) == ("prefill", 5)
    assert [(case["depth"], case["batch"]) for case in decodes] == [(0, 1), (0, 3), (40, 1), (40, 3)]
    check_spread(prompt["ms"], 1)
    check_spread(prompt["share_of_matrix_rate"], 1)
    for case in decodes:
        assert (case["kind"], case["steps"]) == ("decode", 2)
        check_spread(case["ms_per_step"], 1)
        check_spread(case["share_of_mapped_reads"], 1)
        check_spread(case["share_of_memory_reads"], 1)
    for case in result["cases"]:
        check_spread(case["tokens_per_second"], 1)
        check_probes(case["probes"], 2)


def test_repetitions(twin: Kipp) -> None:
    result = bench(twin, "--decode", "0", "--prefill", "5,33", "--repetitions", "3")
    assert [case["tokens"] for case in result["cases"]] == [5, 33]
    for case in result["cases"]:
        check_spread(case["tokens_per_second"], 3)
        check_probes(case["probes"], 4)
    check_spread(result["start"]["open_ms"], 3)
    check_spread(result["start"]["first_token_ms"], 3)
    assert all(first > opened for opened, first in zip(
        result["start"]["open_ms"]["all"], result["start"]["first_token_ms"]["all"], strict=True))


def test_bytes_and_operations_are_those_of_the_shapes(twin: Kipp) -> None:
    result = bench(twin, "--depth", "40", "--batch", "3")
    cost = result["cost"]
    projections = LAYERS * HIDDEN * (2 * QUERY + 2 * KV + 3 * FFN)
    assert cost["projection_weights"] == projections and cost["head_weights"] == VOCAB * HIDDEN
    assert cost["weight_bytes"] == 2 * (projections + VOCAB * HIDDEN)
    assert cost["kv_bytes_per_position"] == LAYERS * 2 * KV * 2
    prompt, decode = result["cases"]
    attended = 1 + 2 + 3 + 4 + 5
    assert prompt["operations"] == 5 * 2 * projections + 4 * LAYERS * QUERY * attended + 2 * VOCAB * HIDDEN
    mean_context = (41 + 42) / 2
    each = 2 * HIDDEN + cost["kv_bytes_per_position"] * mean_context
    assert decode["bytes_per_step"] == cost["weight_bytes"] + 3 * each


def test_figures_follow_from_the_seconds(twin: Kipp) -> None:
    prompt, decode = bench(twin, "--depth", "7", "--batch", "4")["cases"]
    for i in range(2):
        ms = decode["ms_per_step"]["all"][i]
        assert decode["tokens_per_second"]["all"][i] == pytest.approx(4 / ms * 1e3)
        limit = max(probe["read_mapped_bytes_per_second"] for probe in decode["probes"][i : i + 2])
        assert decode["share_of_mapped_reads"]["all"][i] == pytest.approx(decode["bytes_per_step"] / ms * 1e3 / limit)
        seconds = prompt["ms"]["all"][i] / 1e3
        assert prompt["tokens_per_second"]["all"][i] == pytest.approx(5 / seconds)
        name = {"TDPBF16PS": "bf16_tile", "vdpbf16ps": "bf16_dot", "FP32": "fp32"}[prompt["matrix_instruction"]]
        limit = max(probe[f"{name}_operations_per_second"] for probe in prompt["probes"][i : i + 2])
        assert prompt["share_of_matrix_rate"]["all"][i] == pytest.approx(prompt["operations"] / seconds / limit)


def test_memory(twin: Kipp, twin_path: Any) -> None:
    memory = bench(twin, "--depth", "100")["memory"]
    blocks = 4  # of 32 positions for 102
    assert memory["kv_bytes"] == blocks * 32 * LAYERS * 2 * KV * 2
    assert 0 < memory["file_resident_bytes"] < 2 * twin_path.stat().st_size
    assert 0 <= memory["file_huge_page_bytes"] <= memory["file_resident_bytes"]
    assert memory["other_bytes"] == memory["peak_besides_file_bytes"] - memory["kv_bytes"] > 0


def test_parts_can_be_left_out(demo: Kipp) -> None:
    assert [case["kind"] for case in bench(demo, "--prefill", "0")["cases"]] == ["decode"]
    done = demo("bench", *small("--prefill", "0", "--decode", "0"))
    assert done.returncode == FAILURE and "nothing to measure" in done.stderr.decode()


def test_drawing_tokens_is_said(twin: Kipp) -> None:
    for flags, draws in (((), "none"), (("--sample",), "greedy")):
        result = json.loads(twin.text("bench", "--json", *small("--prefill", "0", "--batch", "2"), *flags))
        assert [case["draws"] for case in result["cases"]] == [draws]


def test_the_start_can_be_left_out(demo: Kipp) -> None:
    flags = [*small("--prefill", "0"), "--no-start"]
    assert json.loads(demo.text("bench", "--json", *flags))["start"] is None
    assert "opening" not in demo.text("bench", *flags)


@pytest.mark.parametrize("command", [["bench"], ["run", "a"]])
def test_a_copy_is_refused_where_weights_are_uploaded(demo: Kipp, command: list[str]) -> None:
    done = demo(*command, "--backend", "cuda", "--copy-weights")
    assert done.returncode == MODEL and not done.stdout
    assert "--copy-weights" in done.stderr.decode() and "cuda" in done.stderr.decode()


def test_the_device_is_passed_on(demo: Kipp) -> None:
    for command in (["bench"], ["ppl", "/dev/null"], ["run", "a"],
                    ["gates", "--vectors", str(ROOT / "tests" / "vectors" / "kipp-demo")]):
        done = demo(*command, "--backend", "oracle", "--device", "3")
        assert done.returncode == MODEL and "device 0, found 3" in done.stderr.decode()


def test_report_for_people(demo: Kipp) -> None:
    text = demo.text("bench", *small("--depth", "3", "--batch", "2"))
    for part in ("kipp-demo", "backend cpu", "prefill 5", "decode at 3, batch 2", "tokens/s", "limits", "opening",
                 "memory"):
        assert part in text


def test_the_oracle_too(twin: Kipp) -> None:
    assert bench(twin, "--backend", "oracle", "--prefill", "2", "--decode", "1")["backend"] == "oracle"


def test_the_instruction_set_that_is_forced(twin: Kipp) -> None:
    forced = Kipp(twin.binary, twin.environment | {"KIPP_CPU_ISA": "baseline"}, twin.flags)
    result = bench(forced)
    assert result["isa"] == "baseline" and result["cases"][0]["matrix_instruction"] == "FP32"
    assert result["cases"][0]["probes"][0]["bf16_tile_operations_per_second"] == 0
    forced.environment["KIPP_CPU_ISA"] = "none"
    done = forced("bench", *small())
    assert done.returncode == MODEL and "baseline" in done.stderr.decode()
    done = forced("bench", *small("--backend", "oracle"))  # which has no instruction sets, but the probe does
    assert done.returncode == FAILURE and "baseline" in done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--depth", "5000"], ["5002", "5000 held", "2 new", "2048"]),
        (["--prefill", "2049"], ["2049", "2048"]),
        (["--depth", "2047"], ["2049", "2048"]),
    ],
)
def test_what_exceeds_the_context_names_both_numbers(demo: Kipp, arguments: list[str], parts: list[str]) -> None:
    done = demo("bench", *small(*arguments))
    assert done.returncode == FAILURE and not done.stdout
    for part in parts:
        assert part in done.stderr.decode()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--prefill", "x"), ("--prefill", "5,"), ("--prefill", ",5"), ("--prefill", "-1"), ("--prefill", "5;6"),
        ("--depth", "1.5"), ("--depth", "010x"), ("--batch", "0"), ("--batch", "65"), ("--batch", "1,,2"),
        ("--decode", "-1"), ("--repetitions", "0"), ("--seed", "-1"),
    ],
)
def test_wrong_values(bare: Kipp, flag: str, value: str) -> None:
    done = bare("bench", f"{flag}={value}")
    assert done.returncode == USAGE and not done.stdout
    assert flag in done.stderr.decode() and "expected" in done.stderr.decode()


def test_model_errors(bare: Kipp, twin: Kipp) -> None:
    assert bare("bench", "--model", "absent.gguf").returncode == MODEL
    done = twin("bench", *small("--backend", "none"))
    assert done.returncode == MODEL and "none" in done.stderr.decode()


def test_interrupt(demo: Kipp) -> None:
    controller, terminal = pty.openpty()
    flags = small("--prefill", "0", "--repetitions", "1000")
    process = demo.popen("bench", *flags, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    shown = b""
    while b"of 1000 repetitions" not in shown:  # it is at work
        shown += os.read(controller, 1 << 16)
    process.send_signal(signal.SIGINT)
    while b"interrupted after 0 of 1 measurements" not in shown:
        shown += os.read(controller, 1 << 16)
    assert process.wait(timeout=60) == INTERRUPTED
    os.close(controller)
    assert process.stdout is not None and process.stdout.read() == b""


def test_every_flag_is_documented(bare: Kipp) -> None:
    shown = bare("bench", "--help")
    assert shown.returncode == OK
    flags = {word for word in shown.stdout.decode().replace(",", " ").split() if word.startswith("--")}
    own = {"--prefill", "--decode", "--depth", "--batch", "--repetitions", "--sample", "--no-start", "--seed", "--json"}
    assert own <= flags
    section = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").split("\n## `bench`\n")[1].split("\n## ")[0]
    assert all(f"`{flag}" in section for flag in own)
