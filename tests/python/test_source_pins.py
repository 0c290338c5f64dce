"""Whole files against known hashes, and the artifact's place: no file of the snapshot is changed or written over."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_snapshots import TINY, Snapshot

from tools import convert_to_gguf
from tools.convert_to_gguf import convert
from tools.demo.snapshot import unpack
from tools.errors import ToolError
from tools.gguf_reader import GgufFile
from tools.source_pins import DEMO_STORED, DOWNLOAD_RECORD
from tools.weight_schemes import SCHEMES

BF16 = SCHEMES["bf16"]
SnapshotOf = Callable[[str], Snapshot]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "snapshot"
    unpack(DEMO_STORED, folder)
    return folder


@pytest.fixture
def demo(unpacked: Path, tmp_path: Path) -> Snapshot:
    return Snapshot(unpacked, tmp_path / "demo")


def refusal(checkpoint_id: str, folder: Path, output: Path) -> str:
    with pytest.raises(ToolError) as caught:
        convert(checkpoint_id, folder, output, BF16)
    assert not output.exists()
    return str(caught.value)


def test_the_unpacked_demo_is_accepted(demo: Snapshot, tmp_path: Path) -> None:
    with GgufFile(convert("kipp-demo", demo.folder, tmp_path / "a.gguf", BF16)) as file:
        weights = hashlib.sha256((demo.folder / "model.safetensors").read_bytes()).hexdigest()
        assert file.metadata["kipp.source.revision"] == weights[:40]
        assert file.metadata["kipp.sampling.temperature"] == pytest.approx(0.6)


@pytest.mark.parametrize(("name", "change"), [
    ("generation_config.json", {"temperature": 0.7}), ("tokenizer_config.json", {"model_max_length": 131073}),
    ("config.json", {"initializer_range": 0.03}), ("tokenizer.json", {"comment": "unread"})])
def test_a_changed_file_of_the_demo_is_refused(name: str, change: dict, demo: Snapshot, tmp_path: Path) -> None:
    demo.edit(name, lambda document: document.update(change))
    assert f"{name}: sha256: expected " in refusal("kipp-demo", demo.folder, tmp_path / "a.gguf")


def test_changed_weights_of_the_demo_are_refused(demo: Snapshot, tmp_path: Path) -> None:
    data = bytearray((demo.folder / "model.safetensors").read_bytes())
    data[-2] ^= 1
    demo.replace("model.safetensors", bytes(data))
    assert "first 40 digits of the sha256: expected be1cab" in refusal("kipp-demo", demo.folder, tmp_path / "a.gguf")


@pytest.mark.parametrize("present", [True, False], ids=["one more", "one less"])
def test_another_set_of_files_is_refused(present: bool, demo: Snapshot, tmp_path: Path) -> None:
    if present:
        demo.replace("chat_template.jinja", b"x")
        words = "chat_template.jinja: file: expected none"
    else:
        demo.replace("chat_template.jinja", b"x")
        demo.remove("tokenizer_config.json")
        words = "tokenizer_config.json: sha256: expected "
    assert words in refusal("kipp-demo", demo.folder, tmp_path / "a.gguf")


def write_record(copy: Snapshot, **changes: object) -> None:
    files = [{"path": path.name, "size": path.stat().st_size, "etag": None,
              "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in sorted(copy.folder.iterdir())]
    record = {"format": 1, "repository": TINY.repository, "revision": TINY.revision, "files": files, **changes}
    copy.replace(DOWNLOAD_RECORD, json.dumps(record).encode())


def test_a_download_as_recorded_is_accepted(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny-sharded")
    write_record(copy)
    with GgufFile(convert("tiny", copy.folder, tmp_path / "a.gguf", BF16)) as file:
        assert not any(entry.startswith(DOWNLOAD_RECORD) for entry in file.metadata["kipp.source.sha256"])


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer_config.json", "config.json"])
def test_a_file_changed_since_its_download_is_refused(name: str, snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    write_record(copy)
    copy.edit(name, lambda document: document.update(comment="unread"))
    assert f"{name}: sha256: expected " in refusal("tiny", copy.folder, tmp_path / "a.gguf")


def test_a_file_that_came_later_or_is_gone_is_refused(snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    write_record(copy)
    copy.replace("chat_template.jinja", b"x")
    assert "chat_template.jinja: file: expected none" in refusal("tiny", copy.folder, tmp_path / "a.gguf")
    write_record(copy)
    copy.remove("chat_template.jinja")
    assert "chat_template.jinja: sha256: expected " in refusal("tiny", copy.folder, tmp_path / "a.gguf")


@pytest.mark.parametrize(("changes", "words"), [
    ({"revision": "9" * 40}, "repository, revision: expected test/tiny 1111"),
    ({"repository": "test/other"}, "repository, revision: expected test/tiny 1111"),
    ({"files": None}, "files: expected a list"), ({"files": ["config.json"]}, "files: expected a list"),
    ({"files": [{"path": "config.json"}]}, "files: expected a list")])
def test_a_record_of_something_else_is_refused(changes: dict, words: str, snapshot: SnapshotOf,
                                               tmp_path: Path) -> None:
    copy = snapshot("tiny")
    write_record(copy, **changes)
    assert words in refusal("tiny", copy.folder, tmp_path / "a.gguf")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json",
                                  "tokenizer_config.json", DOWNLOAD_RECORD])
@pytest.mark.parametrize("way", ["name", "hard link", "symbolic link", "other spelling"])
def test_an_input_is_no_output(way: str, name: str, snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    write_record(copy)
    before, source, output = contents(copy.folder), copy.folder / name, tmp_path / "a.gguf"
    if way == "name":
        output = source
    elif way == "other spelling":
        output = copy.folder / ".." / copy.folder.name / name
    elif way == "hard link":
        os.link(source, output)
    else:
        output.symlink_to(source)
    with pytest.raises(ToolError, match=f": is {name} of the snapshot itself; name another file with --output"):
        convert("tiny", copy.folder, output, BF16)
    assert contents(copy.folder) == before


@pytest.mark.parametrize("name", ["chat_template.jinja", "model.safetensors.index.json", "kipp_synthetic.json",
                                  "README.md", "other.safetensors"])
def test_no_new_file_of_the_snapshot_is_made(name: str, snapshot: SnapshotOf, tmp_path: Path) -> None:
    copy = snapshot("tiny")
    (tmp_path / "link.gguf").symlink_to(copy.folder / name)
    before = contents(copy.folder)
    for output in (copy.folder / name, tmp_path / "link.gguf"):
        with pytest.raises(ToolError, match=r"an artifact's name must end in \.gguf"):
            convert("tiny", copy.folder, output, BF16)
    assert contents(copy.folder) == before


def test_the_source_folder_may_hold_the_artifact(snapshot: SnapshotOf) -> None:
    copy = snapshot("tiny")
    assert convert("tiny", copy.folder, copy.folder, BF16) == copy.folder / "kipp-tiny-bf16.gguf"


def test_an_output_that_is_no_file_is_refused_first(snapshot: SnapshotOf, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_to_gguf, "describe_source", lambda *_arguments: pytest.fail("reads the weights"))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ToolError, match="fifo: is a FIFO"):
        convert("tiny", snapshot("tiny").folder, tmp_path / "fifo", BF16)
    assert (tmp_path / "fifo").is_fifo()
