"""tools/ops/verda_cuda_gate.sh against a stand-in of the cloud: in the end nothing is left, or it says what is."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_verda import CLIENT_ID, CLIENT_SECRET, TYPE, FakeVerda, Fault
from verda_gate_run import RECORD, Finished, GateRun, add_program, finish, git, wait_until


@pytest.fixture
def verda() -> Iterator[FakeVerda]:
    with FakeVerda() as fake:
        yield fake


@pytest.fixture
def gate(tmp_path: Path, verda: FakeVerda) -> GateRun:
    return GateRun(tmp_path, verda)


def nothing_left(verda: FakeVerda, gate: GateRun, done: Finished) -> None:
    assert verda.left() == [], done.stderr
    assert gate.states() == []
    assert "are gone" in done.stderr and "WARNING" not in done.stderr
    assert list(Path(gate.environment["TMPDIR"]).iterdir()) == []


def nothing_made(verda: FakeVerda, gate: GateRun, done: Finished) -> None:
    assert verda.made("/ssh-keys") == verda.made("/instances") == [] and gate.states() == [], done.stderr


def test_a_passed_gate_for_exactly_enough_money(verda: FakeVerda, gate: GateRun) -> None:
    verda.looks_until_running = 3
    done = gate.run("--max-minutes", "30", "--volume-gb", "77", accept="1.67", KIPP_VERDA_TEARDOWN_S="600")
    assert done.status == 0, done.stderr
    nothing_left(verda, gate, done)
    [key], [body] = verda.made("/ssh-keys"), verda.made("/instances")
    assert re.fullmatch(r"kipp-gate-\d{14}-[0-9a-f]{8}", key["name"]) and key["key"].startswith("ssh-ed25519 ")
    assert body["hostname"] == key["name"] and body["os_volume"] == {"name": key["name"], "size": 77}
    assert (body["instance_type"], body["location_code"], body["is_spot"]) == (TYPE, "FIN-03", False)
    [deletion] = [body for method, path, body in verda.requests if (method, path) == ("PUT", "/instances")]
    assert len(deletion["volume_ids"]) == 1 and deletion["delete_permanently"] is True
    assert json.loads((gate.output / RECORD).read_text(encoding="utf-8")) == {"verdict": "x"}
    assert "the gate's own output" in done.stdout
    assert (gate.vm / "commit").read_text(encoding="utf-8") == git(gate.repository, "rev-parse", "HEAD")
    timer, *ran = gate.ran()
    assert "shutdown -P" in timer and 33 <= int(timer.rsplit("+", 1)[1]) <= 35
    assert [line.split(" -")[0] for line in ran] == ["setup run", "cmake", "cmake"]


def test_secrets_are_in_no_command_line_environment_or_output(verda: FakeVerda, gate: GateRun) -> None:
    log = gate.watch("curl", "git", "ssh-keygen", "fake-ssh", "fake-scp")
    done = gate.run()
    assert done.status == 0, done.stderr
    seen = log.read_text(encoding="utf-8") + done.stdout + done.stderr
    assert "/oauth2/token" in seen
    for secret in (CLIENT_ID, CLIENT_SECRET, *verda.tokens):
        assert secret not in seen


@pytest.mark.parametrize(("accept", "words"), [
    (None, ["2.5 USD an hour", "90 minutes of work and 10 to delete it: 4.17 USD", "--accept-cost-of 4.17"]),
    ("4.16", ["4.16 is less than 4.17"])])
def test_without_enough_money_the_price_is_shown_and_nothing_made(verda: FakeVerda, gate: GateRun, accept: str | None,
                                                                  words: list[str]) -> None:
    done = gate.run(accept=accept, KIPP_VERDA_TEARDOWN_S="600")
    assert done.status == 2
    nothing_made(verda, gate, done)
    for word in ["4.17 USD", *words]:
        assert word in done.stdout + done.stderr


@pytest.mark.parametrize(("variables", "message"), [
    ({"VERDA_CLIENT_ID": ""}, "VERDA_CLIENT_ID"), ({"VERDA_CLIENT_SECRET": ""}, "VERDA_CLIENT_SECRET"),
    ({"KIPP_VERDA_API": "http://api.example.org/v1"}, "must be an https"),
    ({"KIPP_VERDA_API": "http://localhost.example.org/v1"}, "must be an https")])
def test_no_request_without_credentials_or_to_an_open_line(verda: FakeVerda, gate: GateRun,
                                                           variables: dict[str, str], message: str) -> None:
    done = gate.run(**variables)
    assert (done.status, verda.requests) == (2, []) and message in done.stderr


@pytest.mark.parametrize("arguments", [("--max-minutes", "0"), ("--max-minutes", "soon"), ("--volume-gb", "1.5"),
                                       ("--accept-cost-of", "all"), ("--location",), ("--spot",)])
def test_wrong_arguments(verda: FakeVerda, gate: GateRun, arguments: tuple[str, ...]) -> None:
    done = gate.run(*arguments)
    assert (done.status, verda.requests) == (2, [])
    assert done.stderr.count("\n") == 1 and arguments[0] in done.stderr


def test_help(gate: GateRun) -> None:
    done = gate.run("--help")
    assert done.status == 0 and done.stdout.startswith("usage: ")


def test_wrong_credentials(verda: FakeVerda, gate: GateRun) -> None:
    done = gate.run(VERDA_CLIENT_SECRET="other-s3cret")
    assert done.status == 1 and "HTTP 401" in done.stderr
    assert "s3cret" not in done.stderr + done.stdout
    nothing_made(verda, gate, done)


def test_changes_that_would_not_be_tested(verda: FakeVerda, gate: GateRun) -> None:
    (gate.repository / "new.cc").touch()
    done = gate.run()
    assert (done.status, verda.requests) == (2, []) and "has changes" in done.stderr
    done = gate.run("--allow-dirty")
    assert done.status == 0, done.stderr
    assert not (gate.vm / "kipp" / "new.cc").exists()


@pytest.mark.parametrize("location", [None, "FIN-01"])
def test_no_machine_to_be_had(verda: FakeVerda, gate: GateRun, location: str | None) -> None:
    verda.locations = verda.locations[:1] if location is None else verda.locations
    done = gate.run(*(["--location", location] if location else []))
    assert done.status == 1 and "is not available" in done.stderr
    nothing_made(verda, gate, done)


@pytest.mark.parametrize("price", [None, "free", 0])
def test_no_price_no_machine(verda: FakeVerda, gate: GateRun, price: object) -> None:
    verda.price = price
    done = gate.run()
    assert done.status == 2 and "names no price" in done.stderr
    nothing_made(verda, gate, done)


@pytest.mark.parametrize("statuses", [(500, 0), (429, 401)])
def test_failures_that_pass(verda: FakeVerda, gate: GateRun, statuses: tuple[int, ...]) -> None:
    verda.faults = [Fault(method, path, status) for status in statuses for method, path in [
        ("POST", "/oauth2"), ("GET", "/instance-types"), ("GET", "/instances/"), ("PUT", "/instances"),
        ("GET", "/volumes"), ("PUT", "/volumes"), ("DELETE", "/ssh-keys"), ("GET", "/ssh-keys")]]
    verda.volume_on_delete = "detached"
    done = gate.run()
    assert done.status == 0, done.stderr
    assert not any(fault.times for fault in verda.faults)
    nothing_left(verda, gate, done)


@pytest.mark.parametrize(("path", "fault"), [
    ("/ssh-keys", Fault("POST", "", 500)),
    ("/ssh-keys", Fault("POST", "", 0, effect=True)),
    ("/instances", Fault("POST", "", 0, effect=True)),
    ("/instances", Fault("POST", "", 502, effect=True)),
    ("/instances", Fault("POST", "", 202, effect=True, body=b"<p>")),
    ("/instances", Fault("POST", "", 402, body=b'{"code":"insufficient_funds","message":"no"}')),
], ids=["key, 500", "key, cut, made", "cut, made", "502, made", "made, no id", "no money"])
def test_an_order_that_fails_or_whose_answer_is_lost(verda: FakeVerda, gate: GateRun, path: str, fault: Fault) -> None:
    verda.faults = [dataclasses.replace(fault, path=path)]
    done = gate.run()
    assert done.status == 1
    assert len(verda.made(path)) == 1  # never ordered twice
    nothing_left(verda, gate, done)
    if fault.status == 402:
        assert "insufficient_funds: no" in done.stderr


def test_a_lost_order_that_shows_late(verda: FakeVerda, gate: GateRun) -> None:
    verda.faults, verda.late_s = [Fault("POST", "/instances", 0, effect=True)], 1.5
    done = gate.run(KIPP_VERDA_SETTLE_S="3")
    assert done.status == 1
    nothing_left(verda, gate, done)


@pytest.mark.parametrize("status", ["provisioning", "error"])
def test_a_machine_that_never_comes_up(verda: FakeVerda, gate: GateRun, status: str) -> None:
    verda.final_status, verda.refused_deletes = status, 2
    done = gate.run(KIPP_VERDA_BOOT_S="2")
    assert done.status == 1 and "did not come up" in done.stderr and status in done.stderr
    nothing_left(verda, gate, done)


def test_a_machine_that_costs_more_than_was_said(verda: FakeVerda, gate: GateRun) -> None:
    verda.price_of_the_instance = "2.6"
    done = gate.run()
    assert done.status == 1 and "costs more" in done.stderr
    nothing_left(verda, gate, done)


@pytest.mark.parametrize(("uses", "expires_in"), [(3, 3600), (float("inf"), 1)])
def test_tokens_that_expire(verda: FakeVerda, gate: GateRun, uses: float, expires_in: object) -> None:
    verda.token_uses, verda.expires_in = uses, expires_in
    done = gate.run()
    assert done.status == 0, done.stderr
    assert len(verda.tokens) > 3
    nothing_left(verda, gate, done)


def test_a_slow_deletion_is_waited_for(verda: FakeVerda, gate: GateRun) -> None:
    verda.looks_until_deleted = 8
    done = gate.run()
    assert done.status == 0, done.stderr
    nothing_left(verda, gate, done)


@pytest.mark.parametrize(("kind", "form"), [("detached", "json"), ("trash", "object")])  # form: of ids, by the way
def test_a_volume_that_outlives_its_machine(verda: FakeVerda, gate: GateRun, kind: str, form: str) -> None:
    verda.volume_on_delete, verda.id_as, verda.trash_remembers = kind, form, kind == "trash"
    done = gate.run()
    assert done.status == 0, done.stderr
    nothing_left(verda, gate, done)


def test_what_lists_leave_out_is_asked_for_by_its_id(verda: FakeVerda, gate: GateRun) -> None:
    verda.hidden_from_lists, verda.volume_on_delete = True, "detached"
    done = gate.run()
    assert done.status == 0, done.stderr
    nothing_left(verda, gate, done)


@pytest.mark.parametrize("kind", ["instance", "volume"])
def test_what_cannot_be_deleted_is_said_and_can_be_cleaned_up_later(verda: FakeVerda, gate: GateRun, kind: str) -> None:
    verda.undeletable = {kind}
    done = gate.run(KIPP_VERDA_TEARDOWN_S="1")
    assert done.status == 4 and "MAY STILL COST MONEY" in done.stderr
    [left] = [entry for entry in verda.left() if entry.startswith(kind)]
    [state] = gate.states()
    assert left.split()[1] in done.stderr and f"--cleanup {state}" in done.stderr
    verda.undeletable = set()
    done = gate.clean_up(state)
    assert done.status == 0, done.stderr
    nothing_left(verda, gate, done)


@pytest.mark.parametrize("fault", [
    Fault("GET", "/volumes", 500, times=10**6),
    Fault("GET", "/volumes/trash", 200, body=b'{"error":"x"}', times=10**6),
    Fault("GET", "/ssh-keys", 200, body=b"{}", times=10**6)], ids=["500", "an error", "no list"])
def test_a_service_that_does_not_say_is_not_believed(verda: FakeVerda, gate: GateRun, fault: Fault) -> None:
    verda.faults = [fault]
    done = gate.run(KIPP_VERDA_TEARDOWN_S="1")
    assert done.status == 4 and f"{fault.path}: the service did not say" in done.stderr
    verda.faults = []
    done = gate.clean_up(gate.states()[0])
    assert done.status == 0, done.stderr
    nothing_left(verda, gate, done)


def test_a_deletion_whose_answer_is_lost(verda: FakeVerda, gate: GateRun) -> None:
    verda.faults = [Fault("PUT", "/instances", 0, effect=True), Fault("DELETE", "/ssh-keys", 0, effect=True)]
    done = gate.run()
    assert done.status == 0, done.stderr
    nothing_left(verda, gate, done)


@pytest.mark.parametrize(("place", "number", "status"), [
    ("boot", signal.SIGINT, 130), ("build", signal.SIGHUP, 129), ("gate", signal.SIGTERM, 143)])
def test_signals(verda: FakeVerda, gate: GateRun, place: str, number: signal.Signals, status: int) -> None:
    variables = {"boot": {}, "build": {"FAKE_HANG": "setup.sh"}, "gate": {"FAKE_HANG": "run_full_size"}}[place]
    if place == "boot":
        verda.looks_until_running = float("inf")
    process = gate.start(**variables)
    wait_until(lambda: verda.instances if place == "boot" else (gate.vm / "hangs").exists())
    wait_until(lambda: len(verda.left()) > 1)
    done = finish(process, number)
    assert done.status == status
    nothing_left(verda, gate, done)


def test_a_second_interrupt_does_not_stop_the_deletion(verda: FakeVerda, gate: GateRun) -> None:
    verda.looks_until_deleted = 6
    process = gate.start(FAKE_HANG="run_full_size")
    wait_until((gate.vm / "hangs").exists)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: any(method == "PUT" for method, _, _ in verda.requests))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    done = finish(process)
    assert done.status == 130
    nothing_left(verda, gate, done)


def test_a_reader_that_went_away(verda: FakeVerda, gate: GateRun) -> None:
    process = gate.start(FAKE_HANG="run_full_size")
    wait_until((gate.vm / "hangs").exists)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60) == 129
    assert verda.left() == [] and gate.states() == []


def test_the_time_limit(verda: FakeVerda, gate: GateRun) -> None:
    done = gate.run("--max-minutes", "0.05", FAKE_HANG="true")
    assert done.status == 3 and "time limit" in done.stderr
    assert verda.left() == [] and gate.states() == []


@pytest.mark.parametrize(("broken", "message"), [
    ("true", "no login"), ("kipp.tar.gz", "copy the source"), ("setup.sh", "build failed"),
    ("run_full_size", "the gate failed: exit 255"), ("record/*.json", "record could not be fetched")])
def test_a_connection_that_breaks(verda: FakeVerda, gate: GateRun, broken: str, message: str) -> None:
    done = gate.run(FAKE_FAIL=broken, KIPP_VERDA_BOOT_S="2" if broken == "true" else "60")
    assert done.status == 1 and message in done.stderr
    nothing_left(verda, gate, done)


def test_a_failed_gate_and_its_record(verda: FakeVerda, gate: GateRun) -> None:
    done = gate.run(FAKE_GATE="fails")
    assert done.status == 1 and "the gate failed: exit 1" in done.stderr
    assert (gate.state_folder / RECORD).exists() and not (gate.output / RECORD).exists()
    nothing_left(verda, gate, done)


def test_a_gate_without_a_record_has_not_passed(verda: FakeVerda, gate: GateRun) -> None:
    done = gate.run(FAKE_GATE="no record")
    assert done.status == 1 and "record could not be fetched" in done.stderr
    assert not list(gate.output.glob("*nvidia*"))
    nothing_left(verda, gate, done)


def test_another_command(verda: FakeVerda, gate: GateRun) -> None:
    command = """echo "it's $((1 + 1))"; echo '{}' > bench/results/cuda-x-gates.json # the end"""
    done = gate.run("--command", command, "--output", str(gate.vm))
    assert done.status == 0 and "it's 2" in done.stdout, done.stderr
    assert (gate.vm / "cuda-x-gates.json").exists()


@pytest.mark.parametrize("place", ["boot", "order"])
def test_a_killed_run_is_cleaned_up(verda: FakeVerda, gate: GateRun, place: str) -> None:
    verda.looks_until_running = float("inf")
    if place == "order":
        verda.late_s = 1.5
        verda.faults = [Fault("POST", "/instances", 202, effect=True, hang=True)]
    process = gate.start()
    wait_until(lambda: len(verda.left()) == 3)
    if place == "boot":
        wait_until(lambda: any(path.startswith("/instances/") for _, path, _ in verda.requests))
    process.kill()
    process.wait()
    assert len(verda.left()) == 3
    [state] = gate.states()
    done = gate.clean_up(state, KIPP_VERDA_SETTLE_S="3")
    assert done.status == 0, done.stderr
    assert verda.left() == [] and gate.states() == []
    assert oct(state.parent.stat().st_mode & 0o077) == "0o0"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"api": "@", "name": "somebody-else"}',
                                  '{"api": "@", "name": "kipp-gate-1-a", "instance": "../x"}',
                                  '{"api": "https://example.org", "name": "kipp-gate-1-a"}'])
def test_what_is_not_a_state_file_deletes_nothing(verda: FakeVerda, gate: GateRun, text: str, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(text.replace("@", verda.url), encoding="utf-8")
    done = gate.clean_up(state)
    assert (done.status, verda.requests) == (2, []) and state.exists()
    assert verda.left() == []


def test_a_missing_program_is_named(verda: FakeVerda, gate: GateRun, tmp_path: Path) -> None:
    add_program(tmp_path / "few" / "bash", 'exec /bin/bash "$@"')
    for name in ("dirname", "env"):
        (tmp_path / "few" / name).symlink_to(f"/usr/bin/{name}")
    done = gate.run(PATH=str(tmp_path / "few"))
    assert (done.status, verda.requests) == (2, []) and "is missing" in done.stderr
