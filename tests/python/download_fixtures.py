"""Files of a small repository, and a client of the fake hub that does not wait between tries."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from fake_hub import FakeHub
from tiny_snapshots import REPOSITORY, TINY

from tools import download_model
from tools.checkpoints import Checkpoint, find_checkpoint
from tools.hub.client import HubClient, Policy
from tools.hub.endpoint import endpoint_from

WEIGHTS = "model.safetensors"
PINNED = find_checkpoint("qwen3-0.6b")  # for runs in another process, which has no tiny entries


def noise(num_bytes: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(num_bytes)


def small_files() -> dict[str, bytes]:
    """What a converter needs, and two files that it does not."""
    return {
        ".gitattributes": b"*.safetensors filter=lfs\n",
        "config.json": b'{"model_type": "qwen3"}\n',
        "generation_config.json": b'{"top_k": 20}\n',
        "tokenizer.json": noise(20_000, 1),
        "tokenizer_config.json": b'{"chat_template": "x"}\n',
        "vocab.json": noise(9_000, 2),
        WEIGHTS: noise(100_000, 3),
    }


def sharded_files() -> dict[str, bytes]:
    files = small_files()
    del files[WEIGHTS]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    files["model.safetensors.index.json"] = json.dumps({"weight_map": dict(zip("ab", names, strict=True))}).encode()
    return files | {name: noise(30_000, seed) for seed, name in enumerate(names)}


NEEDED = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", WEIGHTS}


@dataclasses.dataclass
class Downloader:
    """Downloads into a folder, and keeps what the user would have read and the waits that were asked for."""

    hub: FakeHub
    folder: Path
    checkpoint: Checkpoint = TINY
    token: str | None = None
    timeout_s: float = 5.0
    tries: int = 4
    notes: list[str] = dataclasses.field(default_factory=list)
    waits: list[float] = dataclasses.field(default_factory=list)

    def __call__(self, *, offline: bool = False, verify: bool = False, dry_run: bool = False) -> None:
        environment = {"HF_ENDPOINT": self.hub.url} | ({"HF_TOKEN": self.token} if self.token else {})
        policy = Policy(timeout_s=self.timeout_s, tries=self.tries, sleep=self.waits.append)
        client = HubClient(endpoint_from(environment), policy, self.notes.append)
        download_model.download(self.checkpoint, self.folder, client, download_model.Options(offline, verify, dry_run))

    def visible(self) -> set[str]:
        return {name for name in os.listdir(self.folder) if not name.startswith(".")} if self.folder.exists() else set()

    def require_complete(self) -> None:
        """Exactly the needed files, byte for byte, no partial left, and a manifest."""
        assert self.visible() == NEEDED | {"kipp_download.json"}
        for name in NEEDED:
            assert (self.folder / name).read_bytes() == self.hub.files[name]
        assert [name for name in os.listdir(self.folder) if "partial" in name] == []


def start_download(hub: FakeHub, folder: Path, *arguments: str, stderr: int = subprocess.PIPE,
                   **environment: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    settings |= {"HF_ENDPOINT": hub.url, "NO_PROXY": "*", "no_proxy": "*"} | environment
    command = [sys.executable, "-m", "tools.download_model", PINNED.id, "--output", str(folder), *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, env=settings, text=True, stdout=subprocess.PIPE, stderr=stderr)
