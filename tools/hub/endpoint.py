"""Where the hub is and who may see the token: URLs, origins and the environment's HF_* variables. No network here."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Mapping

from tools.errors import ToolError

DEFAULT_ENDPOINT = "https://huggingface.co"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_TRUE_WORDS = {"1", "ON", "YES", "TRUE"}  # as the hub's own client reads its switches
_KEEP_IN_URL = "%/:=&?~#+!$,;'@()*[]"  # a Location may hold characters that a request line must not


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what two URLs must share for the token to go to both."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ToolError(f"{url!r:.200}: not a URL: {error}") from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ToolError(f"{url!r:.200}: expected an http or https URL")
    if "@" in parts.netloc:
        raise ToolError(f"{parts.scheme}://…@{parts.hostname}: a user name in a URL is not accepted")
    return parts.scheme, parts.hostname.lower(), _DEFAULT_PORTS[parts.scheme] if port is None else port


def without_query(url: str) -> str:
    """For messages: the query of a storage URL is a signature."""
    return url.split("?", 1)[0].split("#", 1)[0]


def redirect_target(url: str, location: str | None) -> str:
    """Where a redirect leads; never to another kind of URL, and never from https to http."""
    if not location:
        raise ToolError(f"{without_query(url)}: a redirect without a Location")
    try:
        target = urllib.parse.urljoin(url, urllib.parse.quote(location, safe=_KEEP_IN_URL, encoding="latin-1"))
    except ValueError as error:
        raise ToolError(f"{without_query(url)}: redirects to {location!r:.200}: {error}") from error
    scheme = origin(target)[0]  # also refuses what is not http at all
    if origin(url)[0] == "https" and scheme != "https":
        raise ToolError(f"{without_query(url)}: redirects to {without_query(target)}, which is not https")
    return target


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A hub: the real one, a mirror or a test's."""

    url: str = DEFAULT_ENDPOINT
    token: str | None = dataclasses.field(default=None, repr=False)
    offline: bool = False

    def api_url(self, repository: str, revision: str) -> str:
        """The listing of one revision, with size and hash of every file."""
        return f"{self.url}/api/models/{_quoted(repository)}/revision/{_quoted(revision)}?blobs=true"

    def file_url(self, repository: str, revision: str, name: str) -> str:
        return f"{self.url}/{_quoted(repository)}/resolve/{_quoted(revision)}/{_quoted(name)}"

    def authorization(self, url: str) -> dict[str, str]:
        """The header with the token, for the endpoint's own origin and for no other."""
        if self.token is None or origin(url) != origin(self.url):
            return {}
        return {"Authorization": f"Bearer {self.token}"}


def _quoted(path: str) -> str:
    return urllib.parse.quote(path, safe="/")


def endpoint_from(environment: Mapping[str, str]) -> Endpoint:
    """The endpoint that HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE describe."""
    url = environment.get("HF_ENDPOINT", "").strip().rstrip("/") or DEFAULT_ENDPOINT
    try:
        origin(url)
    except ToolError as error:
        raise ToolError(f"HF_ENDPOINT: {error}") from error
    if re.search(r"[?#\s]", url):
        raise ToolError(f"HF_ENDPOINT: {without_query(url)}: expected scheme, host and perhaps a path, nothing more")
    token = environment.get("HF_TOKEN", "").strip() or None
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise ToolError("HF_TOKEN: holds a blank or a character that no token has")
    return Endpoint(url, token, environment.get("HF_HUB_OFFLINE", "").strip().upper() in _TRUE_WORDS)
