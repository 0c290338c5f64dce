"""Fixtures of the tools' tests: the tiny registry entries, and snapshots that a test may change."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from download_fixtures import Downloader, small_files
from fake_hub import FakeHub
from tiny_snapshots import TINY, TINY_BASE, Snapshot, make_snapshot

import tools.checkpoints
import tools.reference_source
import tools.snapshot
import tools.synthetic_snapshot


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("torch") is not None:
        for package in ("torch", "transformers"):
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"{package} is not installed (requirements/reference.txt)")


@pytest.fixture(scope="session", autouse=True)
def tiny_registry() -> None:
    """Adds the tiny entries for the whole run; the mirror test reads the module's own tuple before that."""
    tools.checkpoints.CHECKPOINTS = (*tools.checkpoints.CHECKPOINTS, TINY, TINY_BASE)
    # The same 11 MB are parsed by almost every test; the parser has tests of its own.
    parse = tools.snapshot.parse_tokenizer
    cached = functools.lru_cache(lambda data: parse(data, Path("tokenizer.json")))
    for module in (tools.snapshot, tools.synthetic_snapshot, tools.reference_source):
        module.parse_tokenizer = lambda data, _path: cached(data)
    tools.synthetic_snapshot._tokenizer_json = functools.lru_cache(tools.synthetic_snapshot._tokenizer_json)


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory, tiny_registry: None) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("snapshots")
    folders = {name: make_snapshot(root / name, name) for name in ("tiny", "tiny-base")}
    folders["tiny-sharded"] = make_snapshot(root / "tiny-sharded", "tiny", shard_bytes=200_000)
    folders["tiny-synthetic"] = make_snapshot(root / "tiny-synthetic", "tiny", keep_marker=True)
    return folders


@pytest.fixture
def snapshot(originals: dict[str, Path], tmp_path: Path) -> Callable[[str], Snapshot]:
    return lambda name: Snapshot(originals[name], tmp_path / name)


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def hub(no_proxies: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(os, "fsync", lambda _fd: None)  # no test pulls the plug; a shared disk takes seconds in all
    with FakeHub(TINY.repository, TINY.revision, small_files()) as fake:
        yield fake


@pytest.fixture
def download(hub: FakeHub, tmp_path: Path) -> Downloader:
    return Downloader(hub, tmp_path / "model")
