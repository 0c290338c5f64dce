"""The download command: what it fetches, when it fetches nothing, and what it leaves for the next run."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from download_fixtures import NEEDED, PINNED, WEIGHTS, Downloader, sharded_files, small_files, start_download
from fake_hub import FakeHub, Fault
from tiny_snapshots import REPOSITORY, TINY

from tools import download_model
from tools.checkpoints import find_checkpoint
from tools.errors import ToolError
from tools.hub.manifest import MANIFEST_NAME
from tools.hub.progress import Progress


@pytest.fixture
def pinned_hub(hub: FakeHub) -> FakeHub:
    """The same files as a revision that other processes know too."""
    hub.repository, hub.revision = PINNED.repository, PINNED.revision
    return hub


def test_exactly_the_needed_files_arrive(hub: FakeHub, download: Downloader) -> None:
    download()
    download.require_complete()
    manifest = json.loads((download.folder / MANIFEST_NAME).read_text())
    assert (manifest["repository"], manifest["revision"]) == (TINY.repository, TINY.revision)
    assert {entry["path"] for entry in manifest["files"]} == NEEDED
    for entry in manifest["files"]:
        data = hub.files[entry["path"]]
        assert (entry["size"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        assert entry["etag"] == hub.etags[entry["path"]]
    assert set(hub.paths("cdn")) == {"tokenizer.json", WEIGHTS}


def test_a_second_run_asks_for_nothing(hub: FakeHub, download: Downloader) -> None:
    download()
    hub.requests.clear()
    download()
    assert hub.requests == []


def test_shards_come_from_the_index(download: Downloader) -> None:
    with FakeHub(TINY.repository, TINY.revision, sharded_files() | {"model-7.safetensors": b"unused"}) as hub:
        download.hub = hub
        download()
        shards = {name for name in download.visible() if name.endswith(".safetensors")}
        assert shards == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
        assert "model.safetensors.index.json" in download.visible()


def test_a_chat_template_of_its_own_is_fetched(download: Downloader) -> None:
    files = small_files() | {"chat_template.jinja": b"{{ x }}"}
    del files["tokenizer_config.json"]
    with FakeHub(TINY.repository, TINY.revision, files) as hub:
        download.hub = hub
        download()
        assert "chat_template.jinja" in download.visible()


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                  WEIGHTS])
def test_a_revision_that_lacks_a_file_is_refused_before_anything_arrives(name: str, hub: FakeHub,
                                                                         download: Downloader) -> None:
    del hub.files[name]
    with pytest.raises(ToolError, match=name.replace(".", r"\.")):
        download()
    assert hub.paths() == [TINY.revision]
    assert download.visible() == set()


def test_a_shard_that_is_not_listed_is_refused(download: Downloader) -> None:
    files = sharded_files()
    del files["model-00002-of-00002.safetensors"]
    with FakeHub(TINY.repository, TINY.revision, files) as hub:
        download.hub = hub
        with pytest.raises(ToolError, match=r"lists no file model-00002-of-00002\.safetensors"):
            download()


def test_an_index_that_points_out_of_the_folder_is_refused(download: Downloader) -> None:
    files = sharded_files() | {"model.safetensors.index.json": b'{"weight_map": {"a": "../x.safetensors"}}'}
    with FakeHub(TINY.repository, TINY.revision, files) as hub:
        download.hub = hub
        with pytest.raises(ToolError, match=r"weight_map\[a\]: expected the name of a .safetensors file, found \.\./x"):
            download()


def test_an_index_with_other_bytes_than_listed_is_refused(download: Downloader) -> None:
    with FakeHub(TINY.repository, TINY.revision, sharded_files()) as hub:
        download.hub = hub
        hub.faults["model.safetensors.index.json"] = [Fault(body=b"{}")]
        with pytest.raises(ToolError, match="git blob id: expected"):
            download()


def test_offline_with_a_complete_folder(hub: FakeHub, download: Downloader) -> None:
    download()
    hub.requests.clear()
    download(offline=True)
    assert hub.requests == []


@pytest.mark.parametrize(("spoil", "words"), [
    (lambda folder: (folder / MANIFEST_NAME).unlink(), "no complete download of test/tiny"),
    (lambda folder: (folder / WEIGHTS).unlink(), r"model\.safetensors: No such file or directory; offline"),
    (lambda folder: os.truncate(folder / WEIGHTS, 5), r"model\.safetensors: size: expected 100000 bytes, found 5; off"),
    (lambda folder: (folder / MANIFEST_NAME).write_text("{"), r"kipp_download\.json: not valid JSON"),
])
def test_offline_with_an_incomplete_folder(spoil: Callable[[Path], None], words: str, hub: FakeHub,
                                           download: Downloader) -> None:
    download()
    spoil(download.folder)
    hub.requests.clear()
    with pytest.raises(ToolError, match=words):
        download(offline=True)
    assert hub.requests == []
    download()
    download.require_complete()


def test_a_manifest_of_another_revision_does_not_count(hub: FakeHub, download: Downloader) -> None:
    download()
    download.checkpoint = dataclasses.replace(TINY, revision="3" * 40)
    with pytest.raises(ToolError, match="repository, revision: expected test/tiny 3333"):
        download(offline=True)
    hub.revision, hub.files["config.json"] = "3" * 40, b'{"model_type": "new"}\n'
    hub.requests.clear()
    download()
    assert (download.folder / "config.json").read_bytes() == hub.files["config.json"]
    assert hub.paths() == ["3" * 40, "config.json"]  # the others are the same bytes


def test_a_partial_of_another_revision_is_not_continued(hub: FakeHub, download: Downloader) -> None:
    """Even where the server calls both files by the same ETag."""
    hub.faults[WEIGHTS] = [Fault(cut=0.6)]
    download.tries = 1
    with pytest.raises(ToolError, match="gave up"):
        download()
    download.checkpoint = dataclasses.replace(TINY, revision="3" * 40)
    hub.revision, hub.files[WEIGHTS] = "3" * 40, hub.files[WEIGHTS][::-1]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, None]


def test_an_old_manifest_goes_before_the_first_new_file(hub: FakeHub, download: Downloader) -> None:
    download()
    download.checkpoint = dataclasses.replace(TINY, revision="3" * 40)
    hub.revision, hub.files[WEIGHTS] = "3" * 40, hub.files[WEIGHTS][::-1]
    hub.faults[WEIGHTS] = [Fault(status=404)]
    with pytest.raises(ToolError, match="404"):
        download()
    assert MANIFEST_NAME not in download.visible()


def test_the_bar_counts_every_byte_once(hub: FakeHub, download: Downloader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where bytes are taken up, thrown away, or found wrong on the disk."""
    advances: list[int] = []
    monkeypatch.setattr(Progress, "advance", lambda _self, num_bytes: advances.append(num_bytes))
    hub.faults[WEIGHTS] = [Fault(cut=0.6)]
    with pytest.raises(ToolError, match="gave up"):
        Downloader(hub, download.folder, tries=1)()
    (download.folder / "tokenizer.json").write_bytes(bytes(20_000))
    hub.faults[WEIGHTS] = [Fault(cut=0.1), Fault(ignore_range=True)]
    advances.clear()
    download()
    download.require_complete()
    assert sum(advances) == sum(len(hub.files[name]) for name in NEEDED)


def test_a_manifest_that_names_too_little_does_not_count(download: Downloader) -> None:
    download()
    manifest = json.loads((download.folder / MANIFEST_NAME).read_text())
    manifest["files"] = [entry for entry in manifest["files"] if entry["path"] != WEIGHTS]
    (download.folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    with pytest.raises(ToolError, match="files: expected weights, found none"):
        download(offline=True)


def test_verify_finds_and_repairs_wrong_bytes(hub: FakeHub, download: Downloader) -> None:
    download()
    (download.folder / WEIGHTS).write_bytes(bytes(100_000))
    download()  # sizes are right: not noticed
    with pytest.raises(ToolError, match=r"model\.safetensors: sha256: expected [0-9a-f]{64}, found [0-9a-f]{64}; offl"):
        download(offline=True, verify=True)
    hub.requests.clear()
    download(verify=True)
    download.require_complete()
    assert hub.paths("cdn") == [WEIGHTS]
    download(offline=True, verify=True)


def test_files_that_are_there_are_hashed_and_kept(hub: FakeHub, download: Downloader) -> None:
    download.folder.mkdir()
    (download.folder / WEIGHTS).write_bytes(hub.files[WEIGHTS])
    (download.folder / "tokenizer.json").write_bytes(bytes(len(hub.files["tokenizer.json"])))
    download()
    download.require_complete()
    assert hub.paths("cdn") == ["tokenizer.json"]


def test_dry_run_changes_nothing(hub: FakeHub, download: Downloader, capsys: pytest.CaptureFixture[str]) -> None:
    download(dry_run=True)
    assert not download.folder.exists()
    assert hub.paths() == [TINY.revision]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["config.json", "generation_config.json", "tokenizer.json",
                                                        "tokenizer_config.json", WEIGHTS]
    assert lines[-1] == f"120.06 kB in all, 120.06 kB to download to {download.folder}"


def test_a_twins_folder_is_left_alone(hub: FakeHub, download: Downloader) -> None:
    download.folder.mkdir()
    (download.folder / "kipp_synthetic.json").write_text("{}")
    with pytest.raises(ToolError, match="holds a synthetic twin"):
        download()
    assert hub.requests == []


def test_the_demo_is_on_no_hub(hub: FakeHub, download: Downloader) -> None:
    download.checkpoint = find_checkpoint("kipp-demo")
    with pytest.raises(ToolError, match="bundled with Kipp"):
        download()
    assert hub.requests == []


def test_the_command(pinned_hub: FakeHub, tmp_path: Path) -> None:
    process = start_download(pinned_hub, tmp_path / "model")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, f"{tmp_path / 'model'}\n")
    assert "\r" not in err  # no bar where there is no terminal
    assert "model.safetensors: 100.00 kB, sha256 as listed" in err.splitlines()
    process = start_download(pinned_hub, tmp_path / "model", HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9")
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, f"{tmp_path / 'model'}: complete, nothing to download\n")


def test_a_terminal_gets_a_bar(pinned_hub: FakeHub, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    process = start_download(pinned_hub, tmp_path / "model", stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO at the end
        while piece := os.read(ours, 1 << 16):
            shown += piece
    os.close(ours)
    assert process.wait(30) == 0
    assert b"\rmodel.safetensors: 100%" in shown.replace(b"\x1b[A", b"")


def test_offline_by_environment(pinned_hub: FakeHub, tmp_path: Path) -> None:
    process = start_download(pinned_hub, tmp_path / "model", HF_HUB_OFFLINE="1")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: ")
    assert "offline" in err
    assert pinned_hub.requests == []


def test_two_processes_at_once(pinned_hub: FakeHub, tmp_path: Path) -> None:
    """The second waits for the first, and then finds nothing to do."""
    go_on = threading.Event()
    pinned_hub.faults[WEIGHTS] = [Fault(before=lambda: go_on.wait(20))]
    first = start_download(pinned_hub, tmp_path / "model")
    wait_for(lambda: WEIGHTS in pinned_hub.paths("cdn"))
    second = start_download(pinned_hub, tmp_path / "model")
    assert second.stderr is not None
    assert "another process downloads into it; waiting" in second.stderr.readline()
    go_on.set()
    assert first.wait(30) == 0
    assert second.wait(30) == 0
    assert "completed by another process" in second.stderr.read()
    assert pinned_hub.paths("cdn").count(WEIGHTS) == 1
    Downloader(pinned_hub, tmp_path / "model", PINNED).require_complete()


def stop_midway(hub: FakeHub, folder: Path, number: signal.Signals) -> tuple[int, str]:
    hub.faults[WEIGHTS] = [Fault(cut=0.6, stall_s=5)]
    process = start_download(hub, folder)
    partial = folder / f".{WEIGHTS}.partial"
    wait_for(lambda: partial.exists() and partial.stat().st_size == 60_000)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert WEIGHTS not in os.listdir(folder)
    assert MANIFEST_NAME not in os.listdir(folder)
    return process.returncode, err


def test_killed_midway_and_resumed(pinned_hub: FakeHub, tmp_path: Path) -> None:
    assert stop_midway(pinned_hub, tmp_path / "model", signal.SIGKILL)[0] == -signal.SIGKILL
    download = Downloader(pinned_hub, tmp_path / "model", PINNED)
    download()
    download.require_complete()
    assert pinned_hub.ranges(WEIGHTS) == [None, "bytes=60000-"]
    assert pinned_hub.paths("hub").count("config.json") == 1


def test_interrupted_and_resumed(pinned_hub: FakeHub, tmp_path: Path) -> None:
    status, err = stop_midway(pinned_hub, tmp_path / "model", signal.SIGINT)
    assert status == 130
    assert err.splitlines()[-1] == "interrupted; what arrived is kept, the same command goes on"
    assert start_download(pinned_hub, tmp_path / "model").wait(30) == 0
    assert pinned_hub.ranges(WEIGHTS) == [None, "bytes=60000-"]


def test_killed_before_the_name_was_given(hub: FakeHub, download: Downloader, monkeypatch: pytest.MonkeyPatch) -> None:
    """All bytes are there: nothing is asked for again."""

    def killed(_fd: int) -> None:
        raise KeyboardInterrupt

    hub.etags["config.json"] = '"x"'
    monkeypatch.setattr(download_model.PartialFile, "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        download()
    monkeypatch.undo()
    download()
    download.require_complete()
    assert hub.paths("hub").count("config.json") == 1


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def run_make(hub: FakeHub, models: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`make` as a user calls it, less what would install packages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "MAKE", "MFLAGS"))}
    environment |= {"HF_ENDPOINT": hub.url, "no_proxy": "*"}
    command = ["make", "--no-print-directory", "-o", "setup", f"MODELS={models}", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


def test_make_downloads_and_converts(pinned_hub: FakeHub, tmp_path: Path) -> None:
    """The converter refuses these files, and says so in one line."""
    result = run_make(pinned_hub, tmp_path, f"PYTHON={sys.executable}", "checkpoint", "CHECKPOINT=qwen3-0.6b")
    assert result.returncode == 2
    Downloader(pinned_hub, tmp_path / "qwen3-0.6b", PINNED).require_complete()
    assert "error: " in result.stderr
    assert "config.json: architectures: expected" in result.stderr


@pytest.mark.parametrize(("arguments", "words"), [
    ((), "run --model M/kipp-kipp-demo-bf16.gguf --chat --greedy"),
    (("CHECKPOINT=kipp-demo",), "run --model M/kipp-kipp-demo-bf16.gguf --chat --greedy"),
    (("CHECKPOINT=qwen3-0.6b",), "run --model M/kipp-qwen3-0.6b-bf16.gguf --chat --thinking off --greedy"),
    (("CHECKPOINT=qwen3-4b-base",), "run --model M/kipp-qwen3-4b-base-bf16.gguf --decode 64 --greedy"),
])
def test_make_quickstart_asks_the_chosen_checkpoint(arguments: tuple[str, ...], words: str, hub: FakeHub) -> None:
    result = run_make(hub, Path("M"), "-n", "quickstart", *arguments)
    assert result.returncode == 0
    assert words in result.stdout
    assert ("tools.download_model" in result.stdout) == ("qwen3" in words)
