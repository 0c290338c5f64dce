"""A stand-in of the cloud's HTTP API on loopback that can be told to misbehave. It knows what still exists."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

CLIENT_ID, CLIENT_SECRET = "client-of-the-test", "s3cret-of-the-test"
TYPE = "1H100.80S.30V"
OTHERS = "somebody-else"
Answer = tuple[int, object]


@dataclasses.dataclass
class Fault:
    """What happens instead of an answer to requests of a method whose path begins so, `times` times."""

    method: str
    path: str
    status: int = 0  # 0: the connection is cut
    effect: bool = False  # whether the request takes effect all the same
    body: bytes | None = None  # with a status: this instead of an error
    hang: bool = False  # answers only when the server ends
    times: int = 1


class FakeVerda:
    """One account. A context manager. What belongs to somebody else must be there in the end."""

    def __init__(self) -> None:
        self.instances: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.trash: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.faults: list[Fault] = []
        self.price: object = "2.50"
        self.price_of_the_instance: object = 2.5
        self.locations = [{"location_code": "FIN-01", "availabilities": ["1V100.6V"]},
                          {"location_code": "FIN-03", "availabilities": ["1V100.6V", TYPE]}]
        self.looks_until_running: float = 0
        self.final_status = "running"
        self.looks_until_deleted = 0
        self.refused_deletes = 0
        self.volume_on_delete = "as asked"  # or "detached", "trash"
        self.trash_remembers = False  # the trash also lists what is gone, marked so
        self.undeletable: set[str] = set()  # "instance", "volume", "key"
        self.hidden_from_lists = False
        self.late_s = 0.0  # a new instance and its volume are to be seen only then
        self.id_as = "text"  # or "json", "object"
        self.token_uses: float = float("inf")
        self.expires_in: object = 3600
        self.tokens: dict[str, float] = {}
        self._ended = threading.Event()
        self._lock = threading.Lock()
        for kind in (self.instances, self.volumes, self.trash, self.keys):
            kind[str(uuid.uuid4())] = {"name": OTHERS, "hostname": OTHERS, "status": "running", "from": 0.0}
        self._server = _Server(self)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def left(self) -> list[str]:
        """What the tests' script made and did not delete; fails if it touched what is not its own."""
        kinds = {"instance": self.instances, "volume": self.volumes, "trash": self.trash, "key": self.keys}
        for entries in kinds.values():
            assert any(entry["name"] == OTHERS for entry in entries.values())
        return [f"{kind} {name}" for kind, entries in kinds.items() for name, entry in entries.items()
                if entry["name"] != OTHERS and not entry.get("is_permanently_deleted")]

    def made(self, path: str) -> list[Any]:
        """The bodies of the POSTs to a path."""
        return [body for method, target, body in self.requests if (method, target) == ("POST", path)]

    def handle(self, method: str, path: str, body: Any, token: str) -> Answer | None:
        """Status and body; None cuts the connection."""
        with self._lock:
            self.requests.append((method, path, body))
            fault = next((fault for fault in self.faults
                          if fault.times > 0 and fault.method == method and path.startswith(fault.path)), None)
            if fault is None:
                return self._answer(method, path, body, token)
            fault.times -= 1
            if fault.effect:
                self._answer(method, path, body, token)
        if fault.hang:
            self._ended.wait()
        if fault.status == 0:
            return None
        return fault.status, {"code": "server_error", "message": "made up"} if fault.body is None else fault.body

    def _answer(self, method: str, path: str, body: Any, token: str) -> Answer:
        if path == "/oauth2/token":
            return self._log_in(body)
        if self.tokens.get(token, 0) <= 0:
            return 401, {"code": "unauthorized_request", "message": "no token"}
        self.tokens[token] -= 1
        head, _, tail = path.partition("?")[0].strip("/").partition("/")
        answer = getattr(self, f"_{method.lower()}_{head.replace('-', '_')}", None)
        return answer(tail, body) if answer is not None else (404, {"code": "not_found", "message": path})

    def _log_in(self, body: Any) -> Answer:
        if body != {"grant_type": "client_credentials", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}:
            return 401, {"code": "unauthorized_request", "message": f"wrong: {body}"}
        token = f"token-{uuid.uuid4()}"
        self.tokens[token] = self.token_uses
        return 200, {"access_token": token, "expires_in": self.expires_in, "token_type": "Bearer"}

    def _get_instance_types(self, _tail: str, _body: Any) -> Answer:
        return 200, [{"instance_type": "1V100.6V", "price_per_hour": "0.14"},
                     {"instance_type": TYPE, "price_per_hour": self.price, "currency": "usd"}]

    def _get_instance_availability(self, _tail: str, _body: Any) -> Answer:
        return 200, self.locations

    def _id(self, status: int, identifier: str) -> Answer:
        forms = {"text": identifier.encode(), "json": identifier, "object": {"id": identifier}}
        return status, forms[self.id_as]

    def _post_ssh_keys(self, _tail: str, body: Any) -> Answer:
        identifier = str(uuid.uuid4())
        self.keys[identifier] = {"name": body["name"], "key": body["key"]}
        return self._id(201, identifier)

    def _get_ssh_keys(self, _tail: str, _body: Any) -> Answer:
        return 200, [{"id": name, **key} for name, key in self.keys.items()]

    def _delete_ssh_keys(self, tail: str, _body: Any) -> Answer:
        if tail not in self.keys:
            return 404, {"code": "not_found", "message": tail}
        if "key" not in self.undeletable:
            del self.keys[tail]
        return 200, b""

    def _post_instances(self, _tail: str, body: Any) -> Answer:
        missing = {"instance_type", "image", "hostname", "description", "ssh_key_ids", "os_volume"} - body.keys()
        if missing or not set(body["ssh_key_ids"]) <= self.keys.keys():
            return 400, {"code": "invalid_request", "message": f"missing: {missing}"}
        identifier, volume, seen_from = str(uuid.uuid4()), str(uuid.uuid4()), time.time() + self.late_s
        self.volumes[volume] = {"name": body["os_volume"]["name"], "status": "attached", "from": seen_from}
        self.instances[identifier] = {"name": body["hostname"], "hostname": body["hostname"], "status": "provisioning",
                                      "volume": volume, "looks": itertools.count(1), "from": seen_from}
        return self._id(202, identifier)

    def _look(self, identifier: str) -> bool:
        """Time passes with each look at an instance; whether it is there to be seen."""
        entry = self.instances.get(identifier)
        if entry is None or time.time() < entry["from"]:
            return False
        if entry["status"] == "provisioning" and next(entry["looks"]) > self.looks_until_running:
            entry["status"] = self.final_status
        elif entry["status"] == "deleting":
            entry["left"] -= 1
            if entry["left"] < 0:
                self._remove(identifier)
                return False
        return True

    def _show(self, identifier: str) -> dict[str, Any]:
        entry = self.instances[identifier]
        up = entry["status"] == "running"
        return {"id": identifier, "hostname": entry["hostname"], "status": entry["status"],
                "ip": "127.0.0.1" if up else None, "os_volume_id": entry.get("volume") if up else None,
                "price_per_hour": self.price_of_the_instance}

    def _get_instances(self, tail: str, _body: Any) -> Answer:
        if tail:
            return (200, self._show(tail)) if self._look(tail) else (404, {"code": "not_found", "message": tail})
        if self.hidden_from_lists:
            return 200, []
        return 200, [self._show(name) for name in list(self.instances) if self._look(name)]

    def _put_instances(self, _tail: str, body: Any) -> Answer:
        assert body["action"] == "delete" and isinstance(body["id"], list)
        if self.refused_deletes > 0:
            self.refused_deletes -= 1
            return 400, {"code": "forbidden_action", "message": "not now"}
        for identifier in body["id"]:
            entry = self.instances.get(identifier)
            if entry is None:
                return 404, {"code": "not_found", "message": identifier}
            if entry["status"] != "deleting" and "instance" not in self.undeletable:
                entry |= {"status": "deleting", "left": self.looks_until_deleted, "body": body}
        return 202, [{"action": "delete", "instanceId": identifier, "status": "success"} for identifier in body["id"]]

    def _remove(self, identifier: str) -> None:
        entry = self.instances.pop(identifier)
        volume = self.volumes[entry["volume"]]
        volume["status"] = "detached"
        asked = entry["body"].get("volume_ids")
        if "volume" in self.undeletable or self.volume_on_delete == "detached":
            return
        del self.volumes[entry["volume"]]
        permanent = asked == [entry["volume"]] and entry["body"].get("delete_permanently") is True
        if not permanent or self.volume_on_delete == "trash":
            self.trash[entry["volume"]] = volume | {"status": "deleted"}

    def _get_volumes(self, tail: str, _body: Any) -> Answer:
        if tail == "trash":
            return 200, [{"id": name, **volume} for name, volume in self.trash.items()]
        if not tail:
            volumes = {} if self.hidden_from_lists else self.volumes
            return 200, [{"id": name, **volume} for name, volume in volumes.items() if time.time() >= volume["from"]]
        found = {**self.volumes, **self.trash}.get(tail)
        return (404, {"code": "not_found", "message": tail}) if found is None else (200, {"id": tail, **found})

    def _put_volumes(self, _tail: str, body: Any) -> Answer:
        assert body["action"] == "delete" and body["is_permanent"] is True
        volume = self.volumes.get(body["id"]) or self.trash.get(body["id"])
        if volume is None:
            return 404, {"code": "not_found", "message": body["id"]}
        if volume["status"] == "attached":
            return 400, {"code": "forbidden_action", "message": "attached"}
        if "volume" not in self.undeletable:
            self.volumes.pop(body["id"], None)
            self.trash.pop(body["id"], None)
            if self.trash_remembers:
                self.trash[body["id"]] = volume | {"status": "deleted", "is_permanently_deleted": True}
        return 202, b""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, verda: FakeVerda) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.verda = verda


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _serve(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        path, body = self.path.removeprefix("/v1"), json.loads(data or b"null")
        answer = self.server.verda.handle(self.command, path, body, token)
        if answer is None:
            return
        status, document = answer
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass
