"""Who sees the token, where redirects may lead, what the listing may say, and the words for every refusal."""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message

import pytest
from download_fixtures import WEIGHTS, Downloader
from fake_hub import FakeHub, Fault
from tiny_snapshots import TINY

from tools.errors import ToolError
from tools.hub.client import retry_after
from tools.hub.endpoint import Endpoint, endpoint_from, redirect_target

TOKEN = "hf_secret"


@pytest.mark.parametrize(("url", "sent"), [
    ("https://hub.example/api/models/a/b", True),
    ("https://hub.example:443/x", True),
    ("https://HUB.example/x", True),
    ("http://hub.example/x", False),
    ("https://hub.example:8443/x", False),
    ("https://cdn.hub.example/x", False),
    ("https://hub.example.evil/x", False),
    ("https://evil/https://hub.example/", False),
])
def test_the_token_goes_to_one_origin(url: str, sent: bool) -> None:
    headers = Endpoint("https://hub.example/", TOKEN).authorization(url)
    assert headers == ({"Authorization": f"Bearer {TOKEN}"} if sent else {})


def test_the_token_does_not_follow_a_redirect(hub: FakeHub, download: Downloader) -> None:
    download.token = TOKEN
    download()
    download.require_complete()
    seen = {request.server: request.headers["Authorization"] for request in hub.requests}
    assert seen == {"hub": f"Bearer {TOKEN}", "cdn": None}


def test_the_token_follows_a_redirect_at_home(hub: FakeHub, download: Downloader) -> None:
    """As the hub does for renamed repositories; the location is relative."""
    download.token = TOKEN
    path = f"/{TINY.repository}/resolve/{TINY.revision}/{WEIGHTS}"
    hub.hub_faults[WEIGHTS] = [Fault(status=307, headers={"Location": path})]
    download()
    download.require_complete()
    assert [request.headers["Authorization"] for request in hub.requests[-3:]] == [f"Bearer {TOKEN}"] * 2 + [None]


def test_a_redirect_loop_ends(hub: FakeHub, download: Downloader) -> None:
    path = f"/{TINY.repository}/resolve/{TINY.revision}/{WEIGHTS}"
    hub.hub_faults[WEIGHTS] = [Fault(headers={"Location": path})] * 100
    with pytest.raises(ToolError, match=r"model\.safetensors: more than 10 redirects"):
        download()
    assert hub.paths("hub").count(WEIGHTS) == 11


def test_the_url_of_a_message_has_no_signature(hub: FakeHub, download: Downloader) -> None:
    hub.faults[WEIGHTS] = [Fault(status=503)] * 4
    with pytest.raises(ToolError) as caught:
        download()
    assert "signature" not in str(caught.value) + "".join(download.notes)


@pytest.mark.parametrize("location", [None, "file:///etc/passwd", "ftp://host/x", "https:///x", "http://[::1/x",
                                      "http://user:word@host/", "http://host:port/", "mailto:x"])
def test_a_redirect_to_nowhere_is_an_error(location: str | None) -> None:
    with pytest.raises(ToolError):
        redirect_target("http://hub.example/x", location)


def test_a_redirect_never_leaves_https() -> None:
    assert redirect_target("https://hub.example/a/b", "/c d") == "https://hub.example/c%20d"
    assert redirect_target("http://hub.example/a", "https://cdn.example/b?x=%2F") == "https://cdn.example/b?x=%2F"
    with pytest.raises(ToolError, match=r"redirects to http://hub\.example/b, which is not https"):
        redirect_target("https://hub.example/a", "http://hub.example/b?signature=1")


def test_the_environment() -> None:
    assert endpoint_from({}) == Endpoint("https://huggingface.co", None, False)
    assert endpoint_from({"HF_ENDPOINT": " https://mirror.example/hf/ ", "HF_TOKEN": " t\n", "HF_HUB_OFFLINE": "yes"}) \
        == Endpoint("https://mirror.example/hf", "t", True)
    assert endpoint_from({"HF_ENDPOINT": "", "HF_TOKEN": "", "HF_HUB_OFFLINE": "0"}) == endpoint_from({})
    assert endpoint_from({"HF_ENDPOINT": "https://m/hf"}).file_url("a/b", "c", "d e") == "https://m/hf/a/b/resolve/c/d%20e"
    assert TOKEN not in repr(endpoint_from({"HF_TOKEN": TOKEN}))


@pytest.mark.parametrize(("name", "value"), [
    ("HF_ENDPOINT", "mirror.example"), ("HF_ENDPOINT", "ftp://mirror.example"), ("HF_ENDPOINT", "https://"),
    ("HF_ENDPOINT", "https://m.example/?x=1"), ("HF_ENDPOINT", "https://user:word@m.example"),
    ("HF_ENDPOINT", "https://m.example:99999"), ("HF_TOKEN", "two words"), ("HF_TOKEN", "t\r\nX-Evil: 1"),
    ("HF_TOKEN", "töken"),
])
def test_a_broken_environment_is_named(name: str, value: str) -> None:
    with pytest.raises(ToolError, match=name) as caught:
        endpoint_from({name: value})
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(("status", "token", "words"), [
    (401, None, r"test/tiny at revision 1{40}: .* answers 401: a token is needed \(set HF_TOKEN\)"),
    (403, None, r"answers 403: a token is needed \(set HF_TOKEN\)"),
    (401, TOKEN, "answers 401: the token in HF_TOKEN was refused"),
    (403, TOKEN, "answers 403: the token in HF_TOKEN was refused"),
    (404, None, r"test/tiny at revision 1{40}: http://127\.0\.0\.1:\d+ does not have it \(HTTP status 404\)"),
    (400, None, "HTTP status 400"),
    (501, None, "HTTP status 501"),
    (304, None, "HTTP status 304"),
])
def test_a_refusal_says_why(status: int, token: str | None, words: str, hub: FakeHub, download: Downloader) -> None:
    download.token = token
    hub.faults["api"] = [Fault(status=status, body=b"")]
    with pytest.raises(ToolError, match=words) as caught:
        download()
    assert len(hub.requests) == 1
    assert TOKEN not in str(caught.value)


def test_a_file_that_the_hub_lists_and_does_not_have(hub: FakeHub, download: Downloader) -> None:
    hub.faults["config.json"] = [Fault(status=404)]
    with pytest.raises(ToolError, match=r"test/tiny at revision 1{40}, config\.json: .*404"):
        download()


def test_the_cdns_403_is_not_the_tokens_fault(hub: FakeHub, download: Downloader) -> None:
    download.token = TOKEN
    hub.faults[WEIGHTS] = [Fault(status=403)]
    with pytest.raises(ToolError, match=r"http://localhost:\d+/\S+ answers with HTTP status 403$"):
        download()


def test_nobody_there(hub: FakeHub, download: Downloader) -> None:
    with FakeHub("a", "b", {}) as other:
        closed = other
    download.hub = closed
    with pytest.raises(ToolError, match=r"Connection refused; gave up after 4 tries"):
        download()
    assert download.waits == [1, 2, 4]


def change_file(name: str, **fields: object) -> Callable[[dict], dict]:
    def change(document: dict) -> dict:
        entry = next(entry for entry in document["siblings"] if entry["rfilename"] == name)
        entry.update(fields)
        return document
    return change


def add_file(name: object) -> Callable[[dict], dict]:
    return lambda document: document | {"siblings": [*document["siblings"], {"rfilename": name}]}


HOSTILE = [
    (lambda _document: b"<html>", "not valid JSON"),
    (lambda _document: b'{"sha": "1", "sha": "2"}', "duplicate key 'sha'"),
    (lambda _document: b"[]", "expected a JSON object"),
    (lambda _document: b"[" * 100_000, "not valid JSON"),
    (lambda _document: b'{"sha": ' + b"1" * 5000 + b"}", "not valid JSON"),
    (lambda _document: b" " * ((8 << 20) + 1), "expected at most 8388608 bytes"),
    (lambda document: document | {"sha": "2" * 40}, r"sha: expected 1{40}, found 2{40}"),
    (lambda document: document | {"sha": "line\nfeed\x1b[2J"}, r"found line\\nfeed\\x1b\[2J"),
    (lambda document: document | {"siblings": {}}, "siblings: expected a list"),
    (lambda document: document | {"siblings": [1]}, "siblings: expected a list"),
    (add_file("../evil"), r"expected a relative path, found '\.\./evil'"),
    (add_file("/etc/passwd"), "expected a relative path"),
    (add_file("a//b"), "expected a relative path"),
    (add_file("a/./b"), "expected a relative path"),
    (add_file("a\\..\\b"), "expected a relative path"),
    (add_file("a\0b"), "expected a relative path"),
    (add_file("\ud800"), "expected a relative path"),
    (add_file(""), "expected a relative path"),
    (add_file("a" * 1001), "expected a relative path"),
    (add_file(7), "expected a relative path"),
    (add_file("config.json"), r"file config\.json: expected one entry, found two"),
    (add_file("model.safetensors.index.json"), "files: expected model.safetensors or .*, found both"),
    (change_file("config.json", size=None), r"config\.json: size"),
    (change_file("config.json", size=-1), r"config\.json: size"),
    (change_file("config.json", size=True), r"config\.json: size"),
    (change_file("config.json", size=1e3), r"config\.json: size"),
    (change_file("config.json", size=1 << 60), r"config\.json: size"),
    (change_file("config.json", blobId=None), r"config\.json: blobId: expected 40 hex"),
    (change_file("config.json", blobId="A" * 40), r"config\.json: blobId: expected 40 hex"),
    (change_file(WEIGHTS, lfs=[]), r"model\.safetensors: lfs: expected an object"),
    (change_file(WEIGHTS, lfs={"size": 100_000}), r"lfs\.sha256: expected 64 hex"),
    (change_file(WEIGHTS, lfs={"size": 5, "sha256": "0" * 64}), r"lfs\.size: expected 100000, found 5"),
]


@pytest.mark.parametrize(("change", "words"), HOSTILE)
def test_a_hostile_listing_is_refused(change: Callable[[dict], object], words: str, hub: FakeHub,
                                      download: Downloader) -> None:
    hub.listing = change
    with pytest.raises(ToolError, match=words) as caught:
        download()
    assert "\n" not in str(caught.value)
    assert download.visible() == set()


def test_a_listing_that_is_cut_is_asked_for_again(hub: FakeHub, download: Downloader) -> None:
    hub.faults["api"] = [Fault(cut=0.5)]
    download()
    download.require_complete()


@pytest.mark.parametrize(("status", "fields", "seconds"), [
    (429, {"Retry-After": "3"}, 3.0),
    (503, {"Retry-After": " 3 "}, 3.0),
    (429, {"Retry-After": "-3"}, None),
    (429, {"Retry-After": "soon"}, None),
    (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 -0000"}, 0.0),
    (429, {"RateLimit": '"api";r=0;t=55'}, 55.0),
    (500, {"RateLimit": '"api";r=400;t=55'}, None),
    (429, {}, None),
])
def test_retry_after(status: int, fields: dict[str, str], seconds: float | None) -> None:
    headers = Message()
    for name, value in fields.items():
        headers[name] = value
    assert retry_after(status, headers) == seconds
