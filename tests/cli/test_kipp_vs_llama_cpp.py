"""The comparison with llama.cpp: its arithmetic on made-up times, and a whole record with a stand-in for llama.cpp."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import ROOT
from kipp_process import Kipp

sys.path.append(str(ROOT / "bench"))
from kipp_vs_llama_cpp import WAYS, Case, compare

SCRIPT = ROOT / "bench" / "kipp_vs_llama_cpp.py"
STAND_IN = """
import json, sys
flags = sys.argv[1:]
assert flags[flags.index("--model") + 1] == "export.gguf" and flags[flags.index("--threads") + 1] == "2"
seconds = {"mmap": 4.0, "none": 2.0}[flags[flags.index("--load-mode") + 1]]
seconds *= {"on": 1.0, "off": 1.5}[flags[flags.index("--flash-attention") + 1]]
print(json.dumps({"seconds": seconds, "llama_cpp": "stand-in", "flags": flags}))
"""


def probe(reads: float, tiles: float = 0.0, dots: float = 0.0, fp32: float = 1.0) -> dict[str, float]:
    return {
        "read_mapped_bytes_per_second": reads,
        "bf16_tile_operations_per_second": tiles,
        "bf16_dot_operations_per_second": dots,
        "fp32_operations_per_second": fp32,
    }


def test_decode_is_compared_with_the_best_way_and_the_probes_around() -> None:
    case = Case(decode=10, depth=16, batch=2)
    kipp = [
        {"bytes_per_step": 50.0, "tokens_per_second": {"all": [rate]}, "probes": [probe(before), probe(after)]}
        for rate, before, after in [(20.0, 1000.0, 800.0), (40.0, 500.0, 2000.0), (10.0, 100.0, 100.0)]
    ]
    slow, fast = list(WAYS)[:2]
    result = compare(case, kipp, {slow: [4.0, 4.0], fast: [2.0, 1.0]})
    assert (result["case"], result["depth"], result["batch"]) == ("decode at 16, batch 2", 16, 2)
    assert result["kipp"]["tokens_per_second"]["all"] == [20.0, 40.0, 10.0]
    assert result["kipp"]["share_of_limit"]["all"] == [0.5, 0.5, 2.5]  # 500, 1,000 and 250 bytes a second
    assert result["best_of_llama_cpp"] == fast
    assert result["llama_cpp"][fast]["tokens_per_second"]["all"] == [10.0, 20.0]
    assert result["llama_cpp"][fast]["share_of_limit"]["all"] == [250 / 800, 500 / 2000]
    assert result["kipp_over_best"]["all"] == [2.0, 2.0]


def test_prefill_is_a_share_of_the_best_way_to_multiply() -> None:
    kipp = [{"operations": 100.0, "tokens_per_second": {"all": [4.0]}, "probes": [limits] * 2}
            for limits in (probe(9, tiles=200.0, dots=900.0), probe(9, dots=300.0, fp32=400.0))]
    result = compare(Case(prefill=8), kipp, {way: [1.0] for way in WAYS})
    assert result["kipp"]["share_of_limit"]["all"] == [0.25, 0.125]
    assert result["llama_cpp"][next(iter(WAYS))]["share_of_limit"]["all"] == [0.25]  # the larger of 200 and 400
    assert result["kipp_over_best"]["median"] == 0.5


def compare_on(demo: Kipp, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    worker = folder / "stand_in.py"
    worker.write_text(STAND_IN, encoding="utf-8")
    command = [sys.executable, str(SCRIPT), "--kipp", str(demo.binary), "--model", demo.environment["KIPP_MODEL"],
               "--export", "export.gguf", "--llama-worker", str(worker), "--threads", "2", "--alternations", "2",
               "--prefill", "4", "--decode", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=demo.environment, check=False)


def test_a_whole_record(demo: Kipp, tmp_path: Path) -> None:
    output = tmp_path / "record.json"
    done = compare_on(demo, tmp_path, "--batch", "1,2", "--output", str(output))
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    assert record["versions"]["llama_cpp"] == "stand-in" and record["versions"]["kipp"][0].startswith("kipp ")
    assert record["model"]["checkpoint"] == "kipp-demo" and record["machine"]["cpu"] and record["commit"]
    assert record["flags"]["kipp"]["backend"] == "cpu" and set(record["flags"]["llama_cpp"]) == set(WAYS)
    assert [result["case"] for result in record["results"]] == [
        "prefill 4", "decode at 16, batch 1", "decode at 16, batch 2"]
    for result in record["results"]:
        assert len(result["kipp"]["tokens_per_second"]["all"]) == 3 and len(result["probes"]) == 3
        assert all(len(way["tokens_per_second"]["all"]) == 2 for way in result["llama_cpp"].values())
        assert result["best_of_llama_cpp"] == "loaded, flash attention"
        assert min(result["kipp"]["share_of_limit"]["all"]) > 0
        assert result["kipp_start"]["first_token_ms"]["median"] > 0 and result["kipp_memory"]["kv_bytes"] > 0


def test_a_failing_run_ends_it(demo: Kipp, tmp_path: Path) -> None:
    done = compare_on(demo, tmp_path, "--depth", "5000")
    assert done.returncode == 1 and "5000 held" in done.stderr and not done.stdout
    done = compare_on(demo, tmp_path, "--export", "other.gguf")
    assert done.returncode == 1 and "stand_in.py" in done.stderr


@pytest.mark.parametrize("arguments", [["--prefill", "0", "--decode", "0"], ["--alternations", "0"]])
def test_nothing_to_measure(demo: Kipp, tmp_path: Path, arguments: list[str]) -> None:
    done = compare_on(demo, tmp_path, *arguments)
    assert done.returncode == 1 and "nothing to measure" in done.stderr
