"""AtomicFile: whole or not at all, whatever stops the writer."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.atomic_file import BUFFER_BYTES, AtomicFile, write_file
from tools.errors import ToolError


def test_the_file_appears_only_with_commit(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    with AtomicFile(target) as file:
        file.write(b"abc")
        assert not target.exists()
        file.commit()
        assert target.read_bytes() == b"abc"
    assert os.listdir(target.parent) == ["file"]


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError), AtomicFile(target) as file:
        file.write(b"new")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_large_data_is_written_in_whole_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Huge folios in the page cache need writes of at least 4 MiB."""
    sizes: list[int] = []
    real_write = os.write

    def spy(fd: int, data: memoryview) -> int:
        sizes.append(len(data))
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", spy)
    payload = os.urandom(1 << 20)
    with AtomicFile(tmp_path / "big") as file:
        for _ in range(20):
            file.write(payload)
        file.commit()
    assert sizes == [BUFFER_BYTES, BUFFER_BYTES, 4 << 20]
    assert (tmp_path / "big").read_bytes() == payload * 20


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[: 1 + len(data) // 3]))
    data = os.urandom(100_000)
    write_file(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == data


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ToolError, match=re.escape(f"{tmp_path}/file: writing failed: No space left on device")):
        write_file(tmp_path / "file", b"data")
    assert os.listdir(tmp_path) == []


def test_a_failing_sync_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(ToolError, match=re.escape(f"{tmp_path}/file: writing failed: Input/output error")):
        write_file(tmp_path / "file", b"data")
    assert os.listdir(tmp_path) == []


def test_too_little_space_is_said_before_writing(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"needs \d+ bytes, the file system has \d+ free"), \
         AtomicFile(tmp_path / "file") as file:
        file.require_space(1 << 62)
    assert os.listdir(tmp_path) == []


def test_a_size_limit_of_the_system_leaves_nothing(tmp_path: Path) -> None:
    """The same with a real failure of the kernel, in a child because the limit cannot be lifted again."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            write_file(tmp_path / "file", bytes(10 << 20))
        except ToolError as error:
            os._exit(0 if "File too large" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.listdir(tmp_path) == []


def test_two_writers_of_one_target_do_not_mix(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with AtomicFile(target) as first:
        first.write(b"first")
        with pytest.raises(ToolError, match="another process is writing file"), AtomicFile(target):
            pass
        first.commit()
    assert target.read_bytes() == b"first"


def test_a_partial_of_a_killed_writer_is_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "file"
    (tmp_path / ".file.partial").write_bytes(b"leftover that is longer than the new contents")
    write_file(target, b"new")
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_partial_renamed_between_open_and_lock_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other writer finished just then: its file must not be truncated by us."""
    target = tmp_path / "file"
    partial = tmp_path / ".file.partial"
    partial.write_bytes(b"the other's complete file")
    real_flock = fcntl.flock

    def finish_other(fd: int, operation: int) -> None:
        if partial.exists() and not target.exists():
            partial.rename(target)
        real_flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", finish_other)
    with AtomicFile(target) as file:
        file.write(b"ours")
        assert target.read_bytes() == b"the other's complete file"
        file.commit()
    assert target.read_bytes() == b"ours"


def test_a_folder_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="is a folder"):
        write_file(tmp_path, b"")


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize("name", ["file", "link", ".file.partial"])
@pytest.mark.parametrize(("make", "kind"), [(make_fifo, "a FIFO"), (make_socket, "a socket")])
def test_what_is_no_file_is_not_replaced(make: Callable[[Path], None], kind: str, name: str, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """As the target, behind a link, or where the partial file goes."""
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    special = Path("file" if name == "link" else name)
    make(special)
    if name == "link":
        os.symlink("file", "link")
    target = Path("link" if name == "link" else "file")
    before = (sorted(os.listdir()), os.lstat(special).st_ino)
    with pytest.raises(ToolError, match=f"is {kind}"):
        write_file(target, b"data")
    assert (sorted(os.listdir()), os.lstat(special).st_ino) == before


def test_a_device_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a node needs privileges, so only its kind is feigned."""
    target = tmp_path / "node"
    target.write_bytes(b"old")
    real_stat = os.stat

    def feign(path: Path, **options: object) -> os.stat_result:
        result = list(real_stat(path, **options))
        result[0] = stat.S_IFCHR | 0o666
        return os.stat_result(result)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", feign)
        with pytest.raises(ToolError, match="node: is a character device"):
            write_file(target, b"new")
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize("exists", [True, False], ids=["to a file", "dangling"])
def test_a_link_is_followed(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "file", tmp_path / "link"
    link.symlink_to(Path("far") / "file")
    if exists:
        real.write_bytes(b"old")
    write_file(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "file", "link"]


def test_a_link_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ToolError, match="loop: cannot be written: Too many levels of symbolic links"):
        write_file(tmp_path / "loop", b"new")


def test_a_linked_partial_does_not_lead_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"old")
    (tmp_path / ".file.partial").symlink_to("precious")
    with pytest.raises(OSError, match=r"\.file\.partial"):
        write_file(tmp_path / "file", b"new")
    assert (tmp_path / "precious").read_bytes() == b"old"
