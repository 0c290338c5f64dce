"""The record of a GPU: sums on made-up figures, merging of parts, and a whole run on the CPU; no times."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import ROOT
from kipp_process import Kipp

sys.path.append(str(ROOT / "bench"))
from cuda_roofline import Twin, check_gpu, empty_record, kipp_command, merge, parse, read_record, write_record
from llama_cpp_peer import LlamaCppPeer
from prompt_products import products_of, prompt_of
from roofline_figures import draw, table
from roofline_runs import GROUPS

from tools.checkpoints import find_checkpoint


def decode(rate: float, share: float, **more: Any) -> dict[str, Any]:
    return {"kind": "decode", "depth": 128, "batch": 1, "tokens_per_second": {"median": rate},
            "share_of_memory_reads": {"median": share}} | more


def prefill(rate: float) -> dict[str, Any]:
    return {"kind": "prefill", "tokens": 2048, "operations_per_token": 2e9, "tokens_per_second": {"median": rate},
            "share_of_matrix_rate": {"median": 0.75}}


def record_of(*cases: dict[str, Any], checkpoint: str = "qwen3-4b") -> dict[str, Any]:
    results = [{"checkpoint": checkpoint, "scheme": "bf16", "group": "short", "bench": {"cases": list(cases)}}]
    return empty_record() | {"results": results}


def test_decoding_comes_first_and_is_a_share_of_the_reads() -> None:
    rows = table(record_of(prefill(1000.0), decode(400.0, 0.8)))
    assert [row["case"] for row in rows] == ["decode at 128", "prefill 2048"]
    assert (rows[0]["share"], rows[0]["limit_tokens_per_second"]) == (0.8, 500.0)
    assert rows[0]["goal_tokens_per_second"] == 500 and "80 % of reading memory" in rows[0]["text"]


def test_a_goal_that_is_a_share_becomes_tokens() -> None:
    (row,) = table(record_of(decode(100.0, 0.5), checkpoint="qwen3-8b"))
    assert row["goal_tokens_per_second"] == pytest.approx(180.0)


def test_prompts_are_a_share_of_cublas_where_it_was_measured() -> None:
    record = record_of(prefill(1000.0))
    assert table(record)[0]["share"] == 0.75
    record["limits"] = {"cublas": {"square": {"operations_per_second": {"median": 8e12}},
                                   "qwen3-4b": {"num_tokens": 2048, "tokens_per_second": 3000.0}}}
    (row,) = table(record)
    assert (row["share"], row["limit"]) == (0.25, "cuBLAS at 8192³")
    assert row["cublas_products_tokens_per_second"] == 3000.0


def test_a_peer_is_measured_against_the_same_limit() -> None:
    record = record_of(decode(400.0, 0.8), decode(900.0, 0.9, batch=8))
    record["peers"] = [{"engine": "transformers", "checkpoint": "qwen3-4b", "scheme": "bf16", "kind": "decode",
                        "depth": 128, "batch": 1, "mode": "eager", "tokens_per_second": {"median": 100.0}}]
    alone, together = table(record)
    assert alone["peers"]["eager"]["share"] == pytest.approx(0.2) and together["peers"] == {}


def test_the_products_of_a_prompt() -> None:
    checkpoint = find_checkpoint("qwen3-4b")
    products = products_of(checkpoint, 100)
    weights = 36 * (2560 * (2 * 4096 + 2 * 1024) + 3 * 2560 * 9728)
    assert sum(one.operations * one.count for one in products) == 2 * 100 * weights
    result = prompt_of(products, [1e12, 1e12, 1e12, 1e12])
    assert result["tokens_per_second"] == pytest.approx(1e12 / (2 * weights))
    assert prompt_of(products, [1e12, 1e12, 5e11, 1e12])["operations_per_second"] < 1e12


def test_a_new_part_takes_the_place_of_the_old(tmp_path: Path) -> None:
    record = record_of(decode(400.0, 0.8))
    keys = ("checkpoint", "scheme", "group")
    merge(record["results"], {**record["results"][0], "group": "many"}, keys)
    merge(record["results"], {**record["results"][0], "bench": {"cases": [decode(450.0, 0.9)]}}, keys)
    assert [entry["group"] for entry in record["results"]] == ["short", "many"]
    path = tmp_path / "new" / "record.json"
    write_record(record, path)
    read = read_record(path)
    assert [row["tokens_per_second"] for row in read["summary"]] == [450.0, 400.0]
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]


def test_a_record_is_of_one_gpu() -> None:
    record = empty_record()
    check_gpu(record, {"name": "A", "driver_version": "1"})
    check_gpu(record, {"name": "A", "driver_version": "1"})
    with pytest.raises(SystemExit, match="name A, but this is B"):
        check_gpu(record, {"name": "B", "driver_version": "1"})


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = parse(["--output", "x.json", "--parts", "none", "--checkpoints", "qwen3-0.6b,qwen3-32b"])
    assert wanted.parts == [] and wanted.checkpoints == ["qwen3-0.6b", "qwen3-32b"]
    for wrong in (["--parts", "kip"], ["--parts", "llama"], ["--schemes", "bf16,q4"], ["--groups", ""],
                  ["--repetitions", "0"]):
        with pytest.raises(SystemExit):
            parse(["--output", "x.json", *wrong])
        assert wrong[0] in capsys.readouterr().err


def test_only_the_first_group_times_the_start() -> None:
    arguments = parse(["--output", "x.json", "--kipp", "kipp", "--kipp-flag=--sample"])
    assert "--no-start" not in kipp_command(arguments, Path("a.gguf"), "short")
    many = kipp_command(arguments, Path("a.gguf"), "many")
    assert "--no-start" in many and many[-1] == "--sample" and many[many.index("--batch") + 1] == "8,32,64"


def test_a_twin_that_was_there_is_kept(tmp_path: Path) -> None:
    arguments = parse(["--output", "x.json", "--twins", str(tmp_path), "--twin-device", "numpy"])
    own = Twin(arguments, "kipp-demo", "bf16")
    own.command = [sys.executable, "-c", f"open({str(own.path)!r}, 'w')"]
    with own as path:
        assert path.exists()
    assert not path.exists()
    path.write_text("mine", encoding="utf-8")
    with Twin(arguments, "kipp-demo", "bf16"):
        pass
    assert path.read_text(encoding="utf-8") == "mine"


def llama_cpp_programs(folder: Path, backend: str) -> Path:
    """Two programs that answer as llama.cpp's do (the fields that are read, and a line of its log)."""
    run = {"build_commit": "abc", "build_number": 7, "gpu_info": "G", "backends": backend, "type_k": "f16",
           "type_v": "f16", "n_prompt": 0, "n_gen": 128, "n_depth": 0, "n_ubatch": 512,
           "samples_ts": [10.0, 30.0, 20.0]}
    script = f"""#!{sys.executable}
import json, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
run = {run!r}
if "-npp" in flags:
    print("a line of the log")
    for batch in flags["-npl"].split(","):
        print(json.dumps({{"pp": int(flags["-npp"]), "pl": int(batch), "tg": 64, "speed_tg": 100.0 * int(batch)}}))
elif flags["-p"] != "0":
    print(json.dumps([run | {{"n_prompt": int(flags["-p"]), "n_gen": 0, "n_ubatch": int(one)}}
                      for one in flags["-ub"].split(",")]))
else:
    print(json.dumps([run | {{"n_depth": int(flags["-d"])}}]))
"""
    for name in ("llama-bench", "llama-batched-bench"):
        (folder / name).write_text(script, encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def test_llama_cpp_beside_kipp(tmp_path: Path) -> None:
    peer = LlamaCppPeer(llama_cpp_programs(tmp_path, "CUDA"), tmp_path / "m.gguf", 3)
    figures = [one for group in GROUPS.values() for one in peer.figures(group)]
    record = record_of(decode(40.0, 0.8), prefill(1000.0), decode(900.0, 0.9, depth=1024, batch=8))
    record["peers"] = [{"engine": "llama.cpp", "checkpoint": "qwen3-4b", "scheme": "bf16", **one} for one in figures]
    assert [(one["kind"], one.get("tokens"), one.get("depth"), one.get("batch"), one["mode"]) for one in figures] == [
        ("prefill", 2048, None, None, "default"), ("prefill", 2048, None, None, "ubatch 2048"),
        ("decode", None, 128, 1, "default"), ("prefill", 16384, None, None, "default"),
        ("prefill", 16384, None, None, "ubatch 2048"), ("decode", None, 16384, 1, "default"),
        ("decode", None, 1024, 8, "default"), ("decode", None, 1024, 32, "default"),
        ("decode", None, 1024, 64, "default")]
    alone, together, prompt = table(record)
    assert alone["peers"]["default"] == {"engine": "llama.cpp", "tokens_per_second": 20.0, "share": pytest.approx(0.4)}
    assert together["peers"]["default"]["tokens_per_second"] == 800.0
    assert set(prompt["peers"]) == {"default", "ubatch 2048"}


def test_llama_cpp_that_fell_back_to_the_processor_is_no_peer(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="to run on CUDA, found CPU"):
        LlamaCppPeer(llama_cpp_programs(tmp_path, "CPU"), tmp_path / "m.gguf", 3).figures(GROUPS["short"])


def test_a_whole_run_on_the_cpu(demo: Kipp, tmp_path: Path) -> None:
    shutil.copy(demo.environment["KIPP_MODEL"], tmp_path / "kipp-kipp-demo-bf16.gguf")
    output = tmp_path / "record.json"
    flags = ["--backend", "cpu", "--checkpoints", "kipp-demo", "--twins", str(tmp_path), "--repetitions", "1",
             "--kipp", str(demo.binary), "--output", str(output)]
    done = subprocess.run([sys.executable, str(ROOT / "bench" / "cuda_roofline.py"), *flags], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "kipp-demo BF16, decode at 128" in done.stdout and "prefill 2048" in done.stdout
    record = json.loads(output.read_text(encoding="utf-8"))
    (entry,) = record["results"]
    assert entry["bench"]["backend"] == "cpu" and entry["commit"] and len(record["summary"]) == 2


def test_the_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which only the plot needs, is not installed")
    record = record_of(decode(400.0, 0.8), prefill(1000.0))
    draw(table(record), record, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="nothing to draw"):
        draw([], record, tmp_path / "none.png")
