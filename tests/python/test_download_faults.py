"""One file's transfer against everything that a hub, a CDN or the way to them can do wrong."""

from __future__ import annotations

import datetime
import email.utils
import errno
import os
import resource

import pytest
from download_fixtures import WEIGHTS, Downloader
from fake_hub import FakeHub, Fault
from tiny_snapshots import TINY

import tools.hub.client
from tools.errors import ToolError

SIZE = 100_000


def test_a_cut_connection_is_resumed_with_range_and_etag(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(cut=0.6)]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=60000-"]
    assert hub.requests[-1].headers["If-Range"] == hub.etags[WEIGHTS]
    assert download.waits == [1]
    assert "closed after 60000 of 100000 bytes; next try in 1 s" in download.notes[0]


def test_a_range_that_is_ignored_begins_anew(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(cut=0.6), Fault(ignore_range=True)]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=60000-"]


def test_a_refused_range_begins_anew(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(cut=0.6), Fault(status=416, body=b"")]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=60000-", None]
    assert download.waits == [1, 0]
    assert download.notes[-1].endswith("the server refuses the range (HTTP status 416); begins anew; next try now")


def test_a_changed_etag_begins_anew(hub: FakeHub, download: Downloader) -> None:
    """The first try got bytes of another file; a server that respects If-Range answers 200."""
    hub.faults[WEIGHTS] = [Fault(cut=0.6, body=b"x" * SIZE, headers={"ETag": '"old"'})]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=60000-"]


def test_a_changed_etag_with_206_begins_anew(hub: FakeHub, download: Downloader) -> None:
    """The same, from a server that ignores If-Range and would have us glue two files together."""
    hub.faults[WEIGHTS] = [Fault(cut=0.6, body=b"x" * SIZE, headers={"ETag": '"old"'}),
                           Fault(status=206, headers={"Content-Range": f"bytes 60000-99999/{SIZE}"},
                                 body=hub.files[WEIGHTS][60_000:])]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=60000-", None]
    assert "ETag changed" in download.notes[-1]


@pytest.mark.parametrize("content_range", [f"bytes 59999-99999/{SIZE}", "bytes 60000-99999/100001", None])
def test_a_wrong_range_begins_anew(content_range: str | None, hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(cut=0.6), Fault(status=206, headers={"Content-Range": content_range})]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=60000-", None]


@pytest.mark.parametrize("etag", [None, 'W/"weak"', "bare"])
def test_without_a_strong_etag_nothing_is_resumed(etag: str | None, hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(cut=0.6, headers={"ETag": etag})]
    with pytest.raises(ToolError, match="gave up after 1 tries"):
        Downloader(hub, download.folder, tries=1)()
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, None]


def test_wrong_bytes_of_the_right_length_are_deleted(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(body=b"x" * SIZE)]
    with pytest.raises(ToolError, match=r"model\.safetensors: sha256: expected [0-9a-f]{64}, found [0-9a-f]{64}; the"):
        download()
    assert WEIGHTS not in download.visible()
    assert [name for name in os.listdir(download.folder) if "partial" in name] == []
    download()
    download.require_complete()


def test_wrong_bytes_of_a_small_file_are_deleted(hub: FakeHub, download: Downloader) -> None:
    hub.faults["config.json"] = [Fault(body=b'{"model_type": "qwen4"}\n')]
    with pytest.raises(ToolError, match=r"config\.json: git blob id: expected [0-9a-f]{40}, found [0-9a-f]{40}"):
        download()
    assert download.visible() == set()


def test_a_damaged_partial_is_found_by_its_hash(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(cut=0.6)]
    with pytest.raises(ToolError, match="gave up"):
        Downloader(hub, download.folder, tries=1)()
    partial = download.folder / f".{WEIGHTS}.partial"
    with open(partial, "r+b") as file:
        file.write(b"damage")
    with pytest.raises(ToolError, match="sha256"):
        download()
    download()
    download.require_complete()


@pytest.mark.parametrize("announced", [SIZE - 1, SIZE + 1, 612])
def test_a_wrong_content_length_is_an_error(announced: int, hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(headers={"Content-Length": str(announced)})] * download.tries
    with pytest.raises(ToolError, match=f"expected {SIZE} bytes, the server announces {announced}; gave up"):
        download()
    assert WEIGHTS not in download.visible()


def test_a_captive_portal_does_not_cost_what_arrived(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(cut=0.6), Fault(status=200, ignore_range=True, body=b"<html>log in</html>")]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=60000-", "bytes=60000-"]


def test_a_compressed_answer_is_not_taken_for_the_file(hub: FakeHub, download: Downloader) -> None:
    hub.faults["config.json"] = [Fault(headers={"Content-Encoding": "gzip"})]
    download()
    download.require_complete()
    assert "compresses" in download.notes[0]
    assert {request.headers["Accept-Encoding"] for request in hub.requests} == {"identity"}


def test_a_body_without_a_length_is_taken(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(headers={"Content-Length": None})]
    download()
    download.require_complete()


def test_a_body_without_a_length_that_ends_early_is_resumed(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(headers={"Content-Length": None}, cut=0.5)]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=50000-"]


def test_silence_is_a_stall(hub: FakeHub, download: Downloader) -> None:
    download.timeout_s = 0.2
    hub.faults[WEIGHTS] = [Fault(cut=0.6, stall_s=1.0)]
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=60000-"]
    assert "timed out after 60000 bytes" in download.notes[0]


def test_a_trickle_is_a_stall(hub: FakeHub, download: Downloader) -> None:
    """A byte now and then keeps a socket's timeout from ever firing."""
    download.timeout_s = 0.3
    hub.faults[WEIGHTS] = [Fault(trickle_s=0.02, cut=0.001)]
    download()
    download.require_complete()
    assert "stalled" in download.notes[0]


def test_a_server_that_accepts_and_says_nothing(hub: FakeHub, download: Downloader) -> None:
    download.timeout_s = 0.2
    download.tries = 2
    hub.faults["api"] = [Fault(cut=0.0, stall_s=0.6), Fault(cut=0.0, stall_s=0.6)]
    with pytest.raises(ToolError, match=r"timed out.*gave up after 2 tries"):
        download()


def test_429_waits_as_long_as_the_server_asks(hub: FakeHub, download: Downloader) -> None:
    hub.faults["api"] = [Fault(status=429, headers={"Retry-After": "7"})]
    hub.faults[WEIGHTS] = [Fault(status=503, headers={"Retry-After": "11"})]
    download()
    download.require_complete()
    assert download.waits == [7, 11]


def test_retry_after_as_a_date(hub: FakeHub, download: Downloader) -> None:
    date = email.utils.format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30))
    hub.faults["api"] = [Fault(status=429, headers={"Retry-After": date})]
    download()
    assert 25 < download.waits[0] <= 30


def test_429_with_the_hubs_own_header(hub: FakeHub, download: Downloader) -> None:
    hub.faults["api"] = [Fault(status=429, headers={"RateLimit": '"api";r=0;t=55'})]
    download()
    assert download.waits == [55]


def test_a_wait_of_hours_is_left_to_the_user(hub: FakeHub, download: Downloader) -> None:
    hub.faults["api"] = [Fault(status=429, headers={"Retry-After": "7200"})]
    with pytest.raises(ToolError, match=r"429; the server asks to come back in 7200 s"):
        download()
    assert download.waits == []


def test_5xx_backs_off_and_gives_up(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(status=503, body=b"")] * 10
    with pytest.raises(ToolError, match=r"HTTP status 503; gave up after 4 tries\. What arrived is kept"):
        download()
    assert download.waits == [1, 2, 4]


def test_progress_renews_the_tries(hub: FakeHub, download: Downloader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.hub.client, "PROGRESS_BYTES", 10_000)
    hub.faults[WEIGHTS] = [Fault(cut=0.3)] * 7  # each brings 30 % of what is missing
    download.tries = 2
    with pytest.raises(ToolError, match="gave up after 2 tries"):
        download()
    assert len(hub.ranges(WEIGHTS)) == 5  # the last one brought 7,203 bytes
    hub.faults.clear()
    download()
    download.require_complete()


def test_a_server_that_begins_again_and_again_makes_no_progress(hub: FakeHub, download: Downloader,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.hub.client, "PROGRESS_BYTES", 10_000)
    hub.faults[WEIGHTS] = [Fault(cut=0.6, ignore_range=True), Fault(cut=0.3, ignore_range=True)] * 25
    with pytest.raises(ToolError, match="gave up"):
        download()
    assert len(hub.ranges(WEIGHTS)) == download.tries


def test_a_full_disk_keeps_what_arrived(hub: FakeHub, download: Downloader, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write, room = os.write, [70_000]

    def write(fd: int, data: bytes) -> int:
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(f"{WEIGHTS}.partial"):
            return real_write(fd, data)
        if room[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real_write(fd, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(ToolError, match=r"\.model\.safetensors\.partial: writing failed: No space left on device\. "):
        download()
    monkeypatch.undo()
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS) == [None, "bytes=70000-"]


def test_a_size_limit_of_the_system_keeps_what_arrived(hub: FakeHub, download: Downloader) -> None:
    """The same with a real failure of the kernel, in a child because the limit cannot be lifted again."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            download()
        except ToolError as error:
            os._exit(0 if "File too large" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    download()
    download.require_complete()
    assert hub.ranges(WEIGHTS)[-1] == "bytes=50000-"


def test_too_little_space_is_said_first(hub: FakeHub, download: Downloader, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs("/")
    fields = list(real)
    fields[4] = 0  # f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(fields))
    with pytest.raises(ToolError, match=r"model: needs 120\.06 kB, the file system has 0 B free"):
        download()
    assert hub.paths() == [TINY.revision]


def test_a_folder_that_cannot_be_written_is_an_error(hub: FakeHub, download: Downloader) -> None:
    """In a child, since root may write everywhere."""
    child = os.fork()
    if child == 0:
        download.folder.parent.chmod(0o555)
        if os.geteuid() == 0:
            os.seteuid(65534)
        try:
            download()
        except PermissionError as error:
            os._exit(0 if str(download.folder.parent) in str(error.filename) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
