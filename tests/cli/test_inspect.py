"""`kipp inspect`, `kipp checkpoints`, and how --model finds an artifact."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from examples import ROOT
from kipp_process import FAILURE, MODEL, OK, Kipp

from tools.checkpoints import CHECKPOINTS
from tools.gguf_reader import GgufFile

RECORDS = {path.name: json.loads(path.read_text()) for path in sorted(ROOT.glob("bench/results/gates-*.json"))}


def inspected(kipp: Kipp, *arguments: str) -> dict[str, Any]:
    return json.loads(kipp.text("inspect", "--json", *arguments))


def test_it_says_what_the_file_says(demo: Kipp) -> None:
    path = Path(demo.environment["KIPP_MODEL"])
    report = inspected(demo, "--hash")
    assert report["path"] == str(path) and report["file_bytes"] == path.stat().st_size
    assert report["file_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    with GgufFile(path) as file:
        parameters = sum(math.prod(entry.dimensions) for entry in file.tensors.values())
        assert {entry.ggml_type for entry in file.tensors.values()} == {30}  # BF16, two bytes each
        metadata = file.metadata
    assert report["parameters"] == parameters and report["weight_bytes"] == 2 * parameters
    assert report["checkpoint"] == metadata["kipp.checkpoint.id"]
    assert report["source_sha256"] == metadata["kipp.source.sha256"]
    assert report["dimensions"]["layers"] == metadata["qwen3.block_count"]
    assert report["kv_bytes_per_position"] == 8 * 2 * 8 * 128 * 2
    assert report["synthetic"] is False


def test_the_gates_of_exactly_this_artifact(demo: Kipp, twin: Kipp) -> None:
    report = inspected(demo)
    expected = [r for r in RECORDS.values() if r["artifact"]["header_sha256"] == report["header_sha256"]]
    assert [gate["utc"] for gate in report["gates"]] == [record["utc"] for record in expected]
    assert expected and all(gate["verdict"] == "passed" for gate in report["gates"])
    assert "gates:         oracle bf16: passed" in demo.text("inspect")
    looking = Kipp(twin.binary, twin.environment)
    assert inspected(looking)["gates"] == []
    assert "no record of this artifact" in looking.text("inspect")


def test_a_twin_may_be_looked_at(bare: Kipp, twin_path: Path) -> None:
    text = bare.text("inspect", "--model", str(twin_path))
    assert "synthetic: weights drawn from a seed" in text and "2 layers" in text
    assert inspected(bare, "--model", str(twin_path))["synthetic"] is True


def test_without_hash_nothing_is_hashed(demo: Kipp) -> None:
    assert inspected(demo)["file_sha256"] is None and "file sha256" not in demo.text("inspect")


def test_a_broken_artifact(bare: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0")
    done = bare("inspect", "--model", path)
    assert done.returncode == MODEL and str(path) in done.stderr.decode()


def test_checkpoints_mirrors_the_registry(bare: Kipp, tmp_path: Path) -> None:
    entries = json.loads(bare.text("checkpoints", "--json", "--models", str(tmp_path)))
    assert [(e["id"], e["repository"], e["revision"], e["variant"], e["context"]) for e in entries] == [
        (c.id, c.repository, c.revision, c.variant, c.context) for c in CHECKPOINTS
    ]
    assert all(entry["on_disk"] == [] for entry in entries)
    text = bare.text("checkpoints", "--models", str(tmp_path))
    for checkpoint in CHECKPOINTS:
        assert f"\n{checkpoint.id} " in text


def test_every_record_of_the_repository_is_compiled_in(bare: Kipp) -> None:
    entries = json.loads(bare.text("checkpoints", "--json"))
    compiled = sorted(gate["header_sha256"] + gate["utc"] for entry in entries for gate in entry["gates"])
    assert compiled == sorted(r["artifact"]["header_sha256"] + r["utc"] for r in RECORDS.values())
    for entry in entries:
        for gate in entry["gates"]:
            record = next(r for r in RECORDS.values()
                          if (r["artifact"]["header_sha256"], r["utc"]) == (gate["header_sha256"], gate["utc"]))
            assert gate["synthetic"] == record["artifact"]["synthetic"]
            assert gate["verdict"] == record["verdict"]
            assert gate["phases"] == ", ".join(p["name"].removeprefix("phase") for p in record["phases"])


def test_parameters_are_those_of_the_published_sizes(bare: Kipp) -> None:
    entries = {entry["id"]: entry for entry in json.loads(bare.text("checkpoints", "--json"))}
    for name, billions in (("0.6b", 0.6), ("1.7b", 1.7), ("4b", 4.0), ("8b", 8.2), ("14b", 14.8), ("32b", 32.8)):
        assert entries[f"qwen3-{name}"]["parameters"] / 1e9 == pytest.approx(billions, abs=0.05)


def test_what_is_on_disk(bare: Kipp, demo: Kipp, tmp_path: Path) -> None:
    artifact = Path(demo.environment["KIPP_MODEL"])
    link = tmp_path / "kipp-kipp-demo-bf16.gguf"
    link.symlink_to(artifact)
    (tmp_path / "kipp-qwen3-0.6b-q8_0.gguf").write_bytes(b"x" * 2048)
    (tmp_path / "kipp-qwen3-8b-bf16.gguf").mkdir()
    entries = {e["id"]: e["on_disk"] for e in json.loads(bare.text("checkpoints", "--json", "--models", str(tmp_path)))}
    assert entries["kipp-demo"] == [{"scheme": "bf16", "path": str(link), "bytes": artifact.stat().st_size}]
    assert [stored["scheme"] for stored in entries["qwen3-0.6b"]] == ["q8_0"]
    assert entries["qwen3-8b"] == []
    assert "q8_0 2.00 KiB" in bare.text("checkpoints", "--models", str(tmp_path))
    expected = demo.text("tokenize", "Hello")
    assert bare.text("tokenize", "-m", "kipp-demo", "--models", str(tmp_path), "Hello") == expected
    assert bare.text("tokenize", "-m", "kipp-demo:bf16", "--models", str(tmp_path), "Hello") == expected
    by_variable = Kipp(bare.binary, {"KIPP_MODEL": "kipp-demo", "KIPP_MODELS": str(tmp_path)})
    assert by_variable.text("tokenize", "Hello") == expected
    done = by_variable("run", "-m", "")
    assert done.returncode != OK


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("qwen3-0.6b", "tools.download_model qwen3-0.6b"),
        ("qwen3-0.6b", "tools.convert_to_gguf --checkpoint qwen3-0.6b"),
        ("kipp-demo", "tools.demo.unpack"),
        ("qwen3-4b:q8_0", "no kipp-qwen3-4b-q8_0.gguf"),
        ("qwen3-4b:q9", 'expected the scheme bf16, q8_0 or affine4_gs32, found "q9"'),
        ("qwen3-06b", "did you mean qwen3-0.6b?"),
        ("nothing-like-it", "nothing-like-it"),
    ],
)
def test_a_model_that_is_not_there(bare: Kipp, tmp_path: Path, model: str, words: str) -> None:
    done = bare("tokenize", "--models", tmp_path, "-m", model, "Hi")
    assert done.returncode == MODEL and words in done.stderr.decode()


def test_the_commands_for_another_scheme_make_that_one(bare: Kipp, tmp_path: Path) -> None:
    folder = tmp_path / "my model's files"
    message = bare("tokenize", "--models", folder, "-m", "qwen3-4b:q8_0", "Hi").stderr.decode()
    download, convert = (shlex.split(line) for line in message.splitlines()[1:])
    assert download[-2:] == ["--output", str(folder / "qwen3-4b")]
    assert convert[convert.index("--scheme") + 1] == "q8_0"
    assert convert[convert.index("--source") + 1] == str(folder / "qwen3-4b")
    assert convert[convert.index("--output") + 1] == str(folder / "kipp-qwen3-4b-q8_0.gguf")
    assert "--scheme" not in bare("tokenize", "--models", folder, "-m", "qwen3-4b", "Hi").stderr.decode()


def test_a_folder_of_the_same_name_does_not_hide_a_checkpoint(demo: Kipp, tmp_path: Path) -> None:
    (tmp_path / "kipp-kipp-demo-bf16.gguf").symlink_to(demo.environment["KIPP_MODEL"])
    (tmp_path / "kipp-demo").mkdir()  # as the download or the unpacked snapshot is called
    command = [demo.binary, "tokenize", "-m", "kipp-demo", "--models", ".", "Hi"]
    done = subprocess.run(command, cwd=tmp_path, env=demo.environment, capture_output=True, check=False)
    assert done.returncode == OK, done.stderr
    (tmp_path / "other").mkdir()
    command[3] = "other"
    done = subprocess.run(command, cwd=tmp_path, env=demo.environment, capture_output=True, check=False)
    assert done.returncode == MODEL and b"other" in done.stderr


def test_no_model_lists_what_is_there(bare: Kipp, demo: Kipp, tmp_path: Path) -> None:
    assert f"{tmp_path}: none" in bare("tokenize", "--models", tmp_path, "Hi").stderr.decode()
    (tmp_path / "kipp-kipp-demo-bf16.gguf").symlink_to(demo.environment["KIPP_MODEL"])
    assert f"{tmp_path}: kipp-demo" in bare("tokenize", "--models", tmp_path, "Hi").stderr.decode()


def test_full_disk(demo: Kipp) -> None:
    with Path("/dev/full").open("wb") as full:
        for command in ("inspect", "checkpoints"):
            done = Kipp(demo.binary, demo.environment)(command, stdout=full)
            assert done.returncode == FAILURE and "No space left" in done.stderr.decode()
