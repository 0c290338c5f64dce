"""Small registry entries and snapshots for the tools' tests: real layout and tokenizer, tiny dimensions."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tools.checkpoints
import tools.reference_source
import tools.snapshot
import tools.synthetic_snapshot
from tools import make_synthetic_checkpoint
from tools.checkpoints import Checkpoint
from tools.synthetic_snapshot import MARKER_NAME

REPOSITORY = Path(__file__).resolve().parents[2]

TINY = Checkpoint("tiny", "test/tiny", "1" * 40, "instruct", 3, 32, 96, 8, 4096, 1e6, True, True, False)
TINY_BASE = Checkpoint("tiny-base", "test/tiny-base", "2" * 40, "base", 2, 32, 64, 16, 2048, 5e6, False, False, False)
TINY_DEMO = Checkpoint("tiny-demo", "test/demo", "0" * 40, "instruct", 1, 32, 64, 8, 512, 1e6, True, True, True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("torch") is not None:
        for package in ("torch", "transformers"):
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed (requirements/reference.txt)")


@pytest.fixture(scope="session", autouse=True)
def tiny_registry() -> None:
    """Adds the tiny entries for the whole run; the mirror test reads the module's own tuple before that."""
    tools.checkpoints.CHECKPOINTS = (*tools.checkpoints.CHECKPOINTS, TINY, TINY_BASE, TINY_DEMO)
    # The same 11 MB are parsed by almost every test; the parser has tests of its own.
    parse = tools.snapshot.parse_tokenizer
    cached = functools.lru_cache(lambda data: parse(data, Path("tokenizer.json")))
    for module in (tools.snapshot, tools.synthetic_snapshot, tools.reference_source):
        module.parse_tokenizer = lambda data, _path: cached(data)
    tools.synthetic_snapshot._tokenizer_json = functools.lru_cache(tools.synthetic_snapshot._tokenizer_json)


class Snapshot:
    """A copy of a snapshot that a test may change. Unchanged files are hard links."""

    def __init__(self, original: Path, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(original, folder, copy_function=os.link)

    def replace(self, name: str, data: bytes) -> None:
        (self.folder / name).unlink(missing_ok=True)
        (self.folder / name).write_bytes(data)

    def edit(self, name: str, change: Callable[[dict], object]) -> None:
        document = json.loads((self.folder / name).read_bytes())
        change(document)
        self.replace(name, json.dumps(document).encode())

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()


def make_snapshot(folder: Path, checkpoint_id: str, *, shard_bytes: int | None = None,
                  keep_marker: bool = False) -> Path:
    """A snapshot as if downloaded: synthetic weights, without the marker that says so."""
    arguments = ["--like", checkpoint_id, "--seed", "11", "--output", str(folder)]
    if shard_bytes is not None:
        arguments += ["--shard-bytes", str(shard_bytes)]
    assert make_synthetic_checkpoint.main(arguments) == 0
    if not keep_marker:
        (folder / MARKER_NAME).unlink()
    return folder


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory, tiny_registry: None) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("snapshots")
    folders = {name: make_snapshot(root / name, name) for name in ("tiny", "tiny-base", "tiny-demo")}
    folders["tiny-sharded"] = make_snapshot(root / "tiny-sharded", "tiny", shard_bytes=200_000)
    folders["tiny-synthetic"] = make_snapshot(root / "tiny-synthetic", "tiny", keep_marker=True)
    return folders


@pytest.fixture
def snapshot(originals: dict[str, Path], tmp_path: Path) -> Callable[[str], Snapshot]:
    return lambda name: Snapshot(originals[name], tmp_path / name)
