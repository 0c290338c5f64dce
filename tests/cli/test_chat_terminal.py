"""`kipp chat` and its terminal: signals, crashes, screens, history files, and pipes that end early."""

from __future__ import annotations

import json
import re
import signal
import stat
import time
from pathlib import Path

import pytest
from chat_session import ENDLESS, PROMPT, start, wait_until
from kipp_process import FAILURE, INTERRUPTED, MODEL, OK, USAGE, Kipp
from terminal import Terminal, plain


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_killed_in_an_answer_it_leaves_no_colours_and_keeps_the_lines(
    twin: Kipp, tmp_path: Path, ending: signal.Signals
) -> None:
    path = tmp_path / "history"
    with start(twin, "--seed", "1", "--history", str(path), *ENDLESS) as chat:
        for _ in range(20):  # a second Ctrl-C may come when the first has ended the answer already
            chat.wait_for(PROMPT)
            chat.type("go on\n")
            time.sleep(1)
            chat.kill(ending)
            if ending == signal.SIGINT:
                time.sleep(0.002)
                chat.kill(ending)
                time.sleep(0.5)
            if chat.process.poll() is not None or ending != signal.SIGINT:
                break
        assert chat.end() == -ending
        assert chat.raw.endswith("\x1b[0m")
        assert chat.modes_are_as_before()
    assert "on" in path.read_text()


def test_signals_leave_the_terminal_as_it_was(demo: Kipp) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        with start(demo) as chat:
            chat.wait_for(PROMPT)
            wait_until(lambda: not chat.modes_are_as_before())  # now the editor has it
            chat.kill(number)
            assert chat.end() == -number
            assert chat.modes_are_as_before()


def test_stopped_and_continued_it_edits_on(demo: Kipp) -> None:
    # A shell with job control is the parent: without one nothing could be stopped.
    kipp = demo.command("chat", "--greedy", "--thinking", "off")
    script = '"$@"; stty -a | tr " " "\\n" | grep -x "icanon;*"; echo halted; fg >/dev/null'
    shell = ["bash", "-mc", script, "bash", *kipp]
    with Terminal(shell, demo.environment | {"TERM": "xterm"}) as chat:
        chat.wait_for(PROMPT)
        chat.type("What is the capital")
        chat.wait_for("capital")
        chat.type("\x1a")  # Ctrl-Z
        assert "icanon" in chat.wait_for("halted")  # the terminal as it was
        wait_until(lambda: not chat.modes_are_as_before())  # the editor's again
        chat.type(" of France?\n")
        assert "Paris" in chat.wait_for("tok/s]")


def test_a_resized_window_is_no_interrupt(chat: Terminal) -> None:
    chat.type("What is the capital")
    chat.wait_for("capital")
    chat.resize(60)
    chat.kill(signal.SIGWINCH)
    time.sleep(0.3)
    chat.type(" of France?\n")
    assert "Paris" in chat.wait_for("tok/s]")


def test_an_interrupt_of_a_piped_chat_ends_it(twin: Kipp) -> None:
    process = twin.popen("chat", *ENDLESS, stdin=-1, stdout=-1, stderr=-1, start_new_session=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"go on\n")
    process.stdin.flush()
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED


def test_base_checkpoints_have_no_chat(bare: Kipp, base_twin_path: Path) -> None:
    done = bare("chat", "--allow-synthetic", "--model", base_twin_path, stdin=b"Hi\n")
    assert done.returncode == MODEL and "base checkpoint" in done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--tools", "-"), "standard input"), (("--top-p", "2"), "top_p"), (("--history", ""), "expected a value"),
     (("--decode", "0"), "from 1"), (("Hi",), "unexpected argument")],
)
def test_wrong_flags(bare: Kipp, arguments: tuple[str, ...], words: str) -> None:
    done = bare("chat", *arguments)
    assert done.returncode == USAGE and words in done.stderr.decode()


def test_an_empty_history_file_is_a_new_one(demo: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.touch()
    with start(demo, "--decode", "1", "--history", str(path)) as chat:
        chat.wait_for(PROMPT)
        chat.ask("remember me")
        chat.wait_for(PROMPT)  # before it the terminal would take Ctrl-D for itself
        chat.type("\x04")
        assert chat.end() == OK
    assert "remember" in path.read_text()


def test_a_full_disk_is_said_once_and_the_old_history_stays(demo: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "history"
    with start(demo, "--decode", "1", "--history", str(path)) as chat:
        chat.wait_for(PROMPT)
        chat.ask("the first line")
    before = path.read_bytes()
    limited = ["prlimit", "--fsize=20", *demo.command("chat", "--decode", "1", "--history", str(path))]
    with Terminal(limited, demo.environment | {"TERM": "xterm", "HOME": "/nonexistent"}) as chat:
        chat.wait_for(PROMPT)
        assert "cannot" in chat.ask("the second line")
        chat.wait_for(PROMPT)
        assert "kipp: error" not in chat.ask("the third line")
        chat.wait_for(PROMPT)  # before it the terminal would take Ctrl-D for itself
        chat.type("\x04")
        assert chat.end() == FAILURE
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["history"]


def test_lines_from_windows(demo: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    lines = f"What is the capital of \\\r\nFrance?\r\n/save {path}\r\n/quit\r\nnever read\r\n"
    done = demo("chat", "--decode", "1", "-q", stdin=lines.encode())
    assert done.returncode == OK, done.stderr
    messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
    assert len(messages) == 2 and messages[0]["content"] == "What is the capital of \nFrance?"


def test_a_line_that_is_too_long_is_said_and_the_chat_goes_on(demo: Kipp) -> None:
    size = (16 << 20) + 5
    lines = b"/undo\n" + b"x" * size + b"\nWhat is the capital of France?\n"
    done = demo("chat", "--greedy", "--thinking", "off", "-q", stdin=lines)
    assert f"line 2: expected {16 << 20} bytes at most, found {size}" in done.stderr.decode()
    assert done.stdout == b"The capital of France is Paris.\n"
    assert done.returncode == FAILURE


def test_a_saved_chat_is_private_and_written_once(demo: Kipp, tmp_path: Path) -> None:
    path, dangling = tmp_path / "chat.json", tmp_path / "dangling.json"
    dangling.symlink_to(tmp_path / "nothing.json")
    done = demo("chat", stdin=f"/system Hi\n/save {path}\n/save {path}\n/save {dangling}\n".encode())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert done.stderr.decode().count("exists already") == 2 and done.returncode == FAILURE
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["chat.json", "dangling.json"]


def test_control_characters_of_an_answer_do_not_act_on_the_terminal(twin: Kipp) -> None:
    arguments = ("--greedy", "--decode", "2", "--logit-bias", "215=100")  # the token of the byte 0x1B
    assert b"\x1b\x1b\n" in twin("chat", *arguments, stdin=b"Hi\n").stdout
    with start(twin, *arguments) as chat:
        chat.wait_for(PROMPT)
        assert "\\x1b\\x1b" in chat.ask("Hi")


def test_a_history_that_is_none(demo: Kipp, tmp_path: Path) -> None:
    with start(demo, "--history", str(tmp_path)) as chat:
        assert chat.end() == FAILURE
        assert "history of lines" in plain(chat.raw)


LONG_LINES = {
    "wide": ["a世" * 198, *["\x01", "世", "\x05", "世"] * 16],
    "ascii": ["a" * 1000, "\x01\x05", "b" * 100],
    "emoji and moves": ["🙂 word " * 80, "\x01", "\x1bf" * 9, "世" * 30, "\x1b[D\x7f" * 20, "\x05", "🙂" * 90],
    "yanked": ["世" * 250, "\x01\x0b", "\x19" * 6, "\x01", "\x05", "x" * 90],
    "repeated": ["\x1b9\x1b9\x1b9\x1b9世", "\x01", "\x05", "x" * 90],
}


@pytest.mark.parametrize("keys", LONG_LINES.values(), ids=LONG_LINES)
@pytest.mark.parametrize("size", [(10, 60), (5, 40), (2, 10), (1, 2)], ids=str)
def test_a_line_that_outgrows_the_screen_is_edited_on(demo: Kipp, keys: list[str], size: tuple[int, int]) -> None:
    with start(demo, "--decode", "1", size=size) as chat:
        chat.wait_for("Ctrl-D ends.")
        wait_until(lambda: not chat.modes_are_as_before())  # one row of two columns does not show a prompt
        for key in keys:
            chat.type(key)
        chat.resize(30, 3)
        time.sleep(0.1)
        chat.type("\x01世\x05世")
        chat.type("\x03")
        chat.wait_for("^C")
        chat.type("/quit\n")
        assert chat.end() == OK
        assert chat.modes_are_as_before()


def test_a_line_longer_than_the_screen_arrives_whole_and_is_not_recalled(demo: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    text = "a世🙂" * 200 + "z"
    with start(demo, "--decode", "1", size=(6, 40)) as chat:
        chat.wait_for(PROMPT)
        chat.ask("short")
        chat.wait_for(PROMPT)
        chat.ask(text)
        chat.wait_for(PROMPT)
        chat.type("\x1b[A")  # arrow up
        chat.wait_for("short")
        chat.type("\x15")
        chat.ask(f"/save {path}", "saved to")
    saved = json.loads(path.read_text(encoding="utf-8"))["messages"]
    assert [message["content"] for message in saved if message["role"] == "user"] == ["short", text]


def test_a_stop_that_stops_nothing_leaves_the_editor_the_terminal(chat: Terminal) -> None:
    # The process is its session's first and nobody's job: the kernel does not stop it.
    chat.type("What is the capital")
    chat.wait_for("capital")
    chat.kill(signal.SIGTSTP)
    time.sleep(0.3)
    wait_until(lambda: not chat.modes_are_as_before())
    chat.type(" of France?\n")
    assert "Paris" in chat.wait_for("tok/s]")


@pytest.mark.parametrize("ending", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS], ids=lambda number: number.name)
def test_a_crash_leaves_the_terminal_as_it_was(demo: Kipp, ending: signal.Signals) -> None:
    with start(demo) as chat:
        chat.wait_for(PROMPT)
        chat.kill(ending)
        assert chat.end() == -ending
        assert chat.modes_are_as_before()


def test_one_prompt_after_an_answer_with_signals(twin: Kipp) -> None:
    with start(twin, "--seed", "1", "--decode", "600", *ENDLESS) as chat:  # most of a second on any machine
        chat.wait_for(PROMPT)
        chat.type("go on\n")
        chat.wait_for("go on")
        time.sleep(0.1)
        chat.resize(100, 30)
        chat.kill(signal.SIGCONT)
        chat.wait_for("tok/s]", 120)
        while chat.read(0.5):
            pass
        assert plain(chat.raw).count(PROMPT) == 1


def test_ignored_signals_stay_ignored(twin: Kipp) -> None:
    process = twin.popen("chat", "--decode", "3", stdin=-1, stdout=-1, stderr=-1,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"Hi\n")
    process.stdin.flush()
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    process.communicate(b"Hi again\n", timeout=30)
    assert process.returncode == OK


def test_a_history_must_be_a_regular_file_that_can_be_written(demo: Kipp, tmp_path: Path) -> None:
    for path in ("/dev/zero", str(tmp_path / "no folder" / "history")):
        with start(demo, "--history", path) as chat:
            assert chat.end() == FAILURE
            assert path in plain(chat.raw)
    done = demo("chat", "--history", str(tmp_path / "history"), stdin=b"")
    assert done.returncode == OK and b"--history is ignored" in done.stderr
    assert not list(tmp_path.iterdir())


def test_lines_that_are_not_utf8(demo: Kipp) -> None:
    lines = b"a\xff\n/system \xff\nWhat is the capital of France?\n"
    done = demo("chat", "--greedy", "--thinking", "off", "-q", stdin=lines)
    assert done.stdout == b"The capital of France is Paris.\n"
    assert done.stderr.count(b"expected UTF-8, found an invalid byte at offset") == 2
    assert done.returncode == FAILURE
    done = demo("chat", b"--system", b"\xff")
    assert done.returncode == USAGE and b"expected UTF-8" in done.stderr


def test_a_context_without_room_for_an_answer(twin: Kipp) -> None:
    found = re.search(rb"\[(\d+) of", twin("chat", "--decode", "1", stdin=b"Hi\n").stderr)
    assert found
    done = twin("chat", "--context", found[1].decode(), stdin=b"Hi\n")
    assert b"the context has no room for an answer" in done.stderr
