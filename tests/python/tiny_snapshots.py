"""Small registry entries and their snapshots: real layout and tokenizer, tiny dimensions."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tools import make_synthetic_checkpoint
from tools.checkpoints import Checkpoint
from tools.synthetic_snapshot import MARKER_NAME

REPOSITORY = Path(__file__).resolve().parents[2]

TINY = Checkpoint("tiny", "test/tiny", "1" * 40, "instruct", 3, 32, 96, 8, 4096, 1e6, True, True, False)
TINY_BASE = Checkpoint("tiny-base", "test/tiny-base", "2" * 40, "base", 2, 32, 64, 16, 2048, 5e6, False, False, False)


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
