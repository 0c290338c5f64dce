"""bench/server_goodput.py: its sums on made-up streams, the rates that it tries, and short whole runs on the demo."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from examples import ROOT
from kipp_process import Kipp

sys.path.append(str(ROOT / "bench"))
import server_goodput
from goodput_figures import (
    WORDS,
    Rates,
    arrivals,
    beside_the_engine,
    highest_good_rate,
    next_rate,
    open_loop_figures,
    percentile,
    percentiles_ms,
    prompt,
    round_figures,
)
from server_process import serving, without_folders, words_of
from stream_reading import Limits, Read

LIMITS = Limits(first_token=2.0, per_token=0.2)


def read_of(begun: float, first: float, step: float, tokens: int, fault: str = "") -> Read:
    """A stream with a piece of text for every token."""
    texts = tuple(first + i * step for i in range(tokens))
    return Read(fault, begun, first, texts[-1], texts, 180, tokens)


# Prompts and arrivals.


def test_the_same_seed_gives_the_same_prompts_and_arrivals() -> None:
    assert prompt("1/a", 180) == prompt("1/a", 180) != prompt("2/a", 180)
    assert arrivals("1/a", 8.0, 20.0) == arrivals("1/a", 8.0, 20.0) != arrivals("2/a", 8.0, 20.0)
    assert prompt("1/open/8/0", 6) == "gold bell field gold before small", "in every process"
    moments = [round(moment, 6) for moment in arrivals("1/open/8", 8.0, 0.5)]
    assert moments == [0.037721, 0.039868, 0.152875, 0.344084, 0.447128, 0.487498]


def test_every_word_is_one_token(demo: Kipp) -> None:
    assert len(set(WORDS)) == len(WORDS) == 64
    texts = [*WORDS, " ".join([*WORDS, *reversed(WORDS)])]
    *alone, together = demo.lines("tokenize", [{"text": text} for text in texts])
    assert [len(answer["ids"]) for answer in alone] == [1] * 64 and len(together["ids"]) == 2 * 64


def test_arrivals_are_poisson() -> None:
    rate, window = 50.0, 400.0
    moments = arrivals("x", rate, window)
    assert moments == sorted(moments) and moments[0] > 0 and moments[-1] < window
    assert len(moments) == pytest.approx(rate * window, abs=5 * (rate * window) ** 0.5)
    gaps = [later - before for before, later in itertools.pairwise(moments)]
    assert sum(gap > 1 / rate for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.02)  # 1/e
    counts = Counter(int(moment) for moment in moments)
    per_second = [counts[second] for second in range(int(window))]
    mean = sum(per_second) / len(per_second)
    assert sum((count - mean) ** 2 for count in per_second) / len(per_second) / mean == pytest.approx(1, abs=0.3)


# Sums.


def test_percentiles_are_values_that_were_there() -> None:
    values = [float(i) for i in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.0, 0.01, 0.5, 0.9, 0.99, 1.0)] == [1, 1, 50, 90, 99, 100]
    assert percentile([7.0], 0.99) == 7 and percentile([1.0, 2.0], 0.5) == 1 and percentile([1.0, 2.0], 0.51) == 2
    assert percentiles_ms([0.001, 0.002, float("inf")]) == {"p50": 2.0, "p90": None, "p99": None}
    assert percentiles_ms([]) == {"p50": None, "p90": None, "p99": None}


def test_goodput_counts_whole_requests_within_both_limits() -> None:
    good = [read_of(0, 1.9, 0.1, 64)] * 5
    late, slow = read_of(0, 2.1, 0.1, 64), read_of(0, 1.0, 0.21, 64)
    broken, refused = read_of(0, 1.0, 0.1, 10, "no [DONE]"), Read("status 429", 0.0)
    figures = open_loop_figures([*good, late, slow, broken, refused, refused], 1.0, 10.0, LIMITS)
    assert (figures["offered"], figures["completed"], figures["good"]) == (10, 7, 5)
    assert (figures["offered_per_second"], figures["goodput_per_second"], figures["goodput_share"]) == (1.0, 0.5, 0.5)
    assert figures["ttft_ms"] == {"p50": 1900.0, "p90": None, "p99": None}, "two never had a token"
    assert figures["tpot_ms"] == {"p50": 100.0, "p90": 210.0, "p99": 210.0}, "of the seven that were complete"
    assert figures["faults"] == {"status 429": 2, "no [DONE]": 1}
    assert (figures["prompt_tokens"], figures["tokens"]) == ([180], [64])
    assert open_loop_figures([], 1.0, 10.0, LIMITS)["goodput_share"] == 0.0


def test_a_round_is_measured_where_all_streams_run() -> None:
    """Three streams of 0.1 s a token, of which one begins 1 s before and one 0.5 s after the first."""
    streams = [read_of(0, 2.0, 0.1, 101), read_of(0, 1.0, 0.1, 101), read_of(0, 2.5, 0.1, 101)]
    figures = round_figures(streams)  # from 2.5 s to 11 s
    assert figures["steady_seconds"] == pytest.approx(8.5)
    assert figures["tokens_per_second"] == pytest.approx(30, rel=0.02)
    assert figures["ms_between_tokens"] == pytest.approx(100, rel=0.02)
    assert figures["gaps_ms"]["p50"] == pytest.approx(100)
    assert figures["whole_tokens_per_second"] == pytest.approx(303 / 12.5, rel=1e-3)
    assert figures["share_of_tokens_with_text"] == 1 and figures["faults"] == {}


def test_tokens_without_text_are_not_lost() -> None:
    streams = [stream._replace(texts=stream.texts[::2]) for stream in [read_of(0, 1.0, 0.1, 101)] * 4]
    figures = round_figures(streams)
    assert figures["tokens_per_second"] == pytest.approx(40, rel=0.02)
    assert figures["share_of_tokens_with_text"] == pytest.approx(0.505, abs=0.001)


def test_a_round_with_a_fault_or_without_a_common_time_has_no_figures() -> None:
    whole = read_of(0, 1.0, 0.1, 10)
    for other in (read_of(0, 1.0, 0.1, 10, "no [DONE]"), read_of(0, 3.0, 0.1, 10), Read("status 503", 0.0)):
        figures = round_figures([whole, other])
        assert "tokens_per_second" not in figures
        assert len(figures["faults"]) == (1 if other.fault else 0)


def test_a_turn_is_compared_with_the_engine_around_it() -> None:
    turns = [[{"tokens_per_second": value} for value in values] for values in ([90.0, 95.0, 99.0], [120.0])]
    found = beside_the_engine(turns, [100.0, 90.0, 110.0])
    assert found["throughput_over_engine_of_each_turn"] == [1.0, 1.2]
    assert found["throughput_over_engine"] == 1.1
    assert found["added_to_the_time_between_tokens"] == pytest.approx(1 / 1.1 - 1, abs=1e-4)
    nothing = beside_the_engine([[{"faults": {"status 503": 1}}]], [1.0, 1.0])
    assert nothing["throughput_over_engine"] is None and nothing["added_to_the_time_between_tokens"] is None


# Rates.


def tried(capacity: float, rates: Rates, limit: int = 20) -> dict[float, float]:
    """On a server whose share of good requests is what it can do of what it is asked for."""
    shares: dict[float, float] = {}
    while (rate := next_rate(shares, rates)) and len(shares) < limit:
        shares[rate] = min(1.0, capacity / rate)
    return shares


def test_rates_rise_until_goodput_collapses_and_close_in() -> None:
    shares = tried(10.0, Rates([1, 2, 4, 8, 16, 32, 64], 0.9, 0.5, 3))
    assert list(shares) == [1, 2, 4, 8, 16, 32, 11.3, 9.51, 10.4]
    assert highest_good_rate(shares, 0.9) == 10.4


def test_rates_end() -> None:
    assert list(tried(1e9, Rates([1, 2], 0.9, 0.5, 3))) == [1, 2], "all are good"
    assert list(tried(0.1, Rates([1, 2], 0.9, 0.5, 3))) == [1], "none is"
    assert list(tried(1.0, Rates([1, 1.01, 4], 0.9999, 0.5, 9))) == [1, 1.01, 4], "as near as three digits are"
    assert highest_good_rate({}, 0.9) is None and highest_good_rate({1: 0.2}, 0.9) is None


def test_a_good_rate_above_a_bad_one_does_not_count() -> None:
    assert highest_good_rate({8: 0.95, 1: 1.0, 2: 0.91, 4: 0.8}, 0.9) == 2


# Arguments, and servers that do not start.


@pytest.mark.parametrize("wrong", [
    [], ["--kipp", "k"], ["--kipp", "k", "--model", "m", "--peer-command", "c"],
    ["--peer-command", "c", "--rates", "2,1"], ["--peer-command", "c", "--streams", "0,1"],
    ["--peer-command", "c", "--parts", "both"], ["--peer-command", "c", "--tokens", "1"],
    ["--kipp", "k", "--model", "m", "--streams", "65"],
])  # fmt: skip
def test_arguments_that_make_no_sense(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        server_goodput.parse(wrong)
    assert "usage" in capsys.readouterr().err


def test_commands() -> None:
    arguments = server_goodput.parse(["--kipp", "kipp", "--model", "m.gguf", "--kipp-flag=--threads=1",
                                      "--serve-flag=--max-sequences=8", "--bench-flag=--sample", "--streams", "1,8"])
    serve, bench = server_goodput.server_words(arguments), server_goodput.engine_command(arguments)
    assert serve[1] == "serve" and serve[-2:] == ["--threads=1", "--max-sequences=8"] and "{port}" in serve
    assert bench[1] == "bench" and bench[-2:] == ["--threads=1", "--sample"]
    assert (bench[bench.index("--batch") + 1], bench[bench.index("--depth") + 1]) == ("1,8", "180")
    assert words_of("llama-server -m 'a b.gguf' --port {port}")[2] == "a b.gguf"
    assert without_folders(["/x/y/llama-server", "--model=/x/m.gguf", "-c", "8"]) == [
        "llama-server", "--model=m.gguf", "-c", "8"]
    with pytest.raises(SystemExit, match=r"no \{port\}"):
        words_of("llama-server")


@pytest.mark.parametrize(("command", "seconds", "message"), [
    (["no-such-program", "{port}"], 60, "no-such-program: cannot be started"),
    ([sys.executable, "-c", "print('no memory'); raise SystemExit(3)", "{port}"], 60, "ended with code 3:\nno memory"),
    ([sys.executable, "-c", "import time; time.sleep(60)", "{port}"], 0.5, "not ready after 0.5 s"),
])  # fmt: skip
def test_a_server_that_does_not_start_says_why(command: list[str], seconds: float, message: str) -> None:
    with pytest.raises(SystemExit, match=message), serving(command, seconds):
        pass


def test_a_script_that_is_ended_takes_its_server_along(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    program = f"import os, time; print(os.getpid(), file=open({str(note)!r}, 'w'), flush=True); time.sleep(600)"
    peer = f"{sys.executable} -c {shlex.quote(program)} {{port}}"
    script = subprocess.Popen([sys.executable, str(ROOT / "bench" / "server_goodput.py"), "--peer-command", peer])
    while not note.exists() or not note.read_text():
        assert script.poll() is None
        time.sleep(0.05)
    script.terminate()
    assert script.wait(timeout=60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


# Whole runs, with everything as small as can be.

SMALL = ["--words", "8", "--tokens", "4", "--window", "1", "--warm-up", "1,2"]


def run(*flags: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "bench" / "server_goodput.py"), *SMALL, *flags],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def own(demo: Kipp, *flags: str) -> list[str]:
    return ["--kipp", str(demo.binary), "--model", demo.environment["KIPP_MODEL"], *flags]


def test_a_whole_run_on_the_demo(demo: Kipp, tmp_path: Path) -> None:
    output = tmp_path / "new" / "record.json"
    run(*own(demo), "--kipp-flag=--threads=1", "--streams", "1,4", "--closed-tokens", "32", "--repetitions", "1",
        "--turns", "1", "--rates", "2,4", "--refinements", "0", "--ttft", "60", "--output", str(output))
    record = json.loads(output.read_text(encoding="utf-8"))
    one, four = record["results"]["closed"]
    assert [len(one["rounds"]), len(one["rounds"][0]), len(one["engine"])] == [1, 1, 2]
    assert four["streams"] == 4 and four["rounds"][0][0]["faults"] == {}
    assert 0 < four["throughput_over_engine"] < 20, "a busy machine; a record has the number"
    points = record["results"]["open"]["rates"]
    assert points[0]["rate"] == 2 and points[0]["offered"] == len(arrivals("1/open/2", 2.0, 1.0))
    assert points[0]["completed"] == points[0]["offered"] and points[0]["faults"] == {}
    assert points[0]["prompt_tokens"] == [8] and points[0]["tokens"] == [4]
    assert record["server"]["command"][:2] == ["kipp", "serve"] and record["artifact"]["checkpoint"] == "kipp-demo"
    assert record["commit"] and record["settings"]["seed"] == 1 and "/" not in " ".join(record["server"]["command"])


def test_a_peer_is_any_command(demo: Kipp, tmp_path: Path) -> None:
    peer = f"{demo.binary} serve -m {demo.environment['KIPP_MODEL']} --port {{port}} --max-sequences 2"
    run("--peer-command", peer, "--parts", "open", "--rates", "2,4", "--limit", "1", "--output", str(tmp_path / "r"))
    record = json.loads((tmp_path / "r").read_text(encoding="utf-8"))
    assert record["results"]["open"]["stopped"] == "the next rate could have exceeded --limit"
    assert record["results"]["open"]["rates"] == [] and record["engine_command"] is None
    assert any(line.startswith("kipp ") for line in record["server"]["version"])


def test_a_server_that_cannot_keep_up_is_noticed(demo: Kipp) -> None:
    """Limits that nothing meets: what is late is cut, and the server is there again afterwards."""
    arguments = server_goodput.parse(own(demo, *SMALL, "--tokens", "1500", "--ttft", "0.001", "--tpot", "0.0001"))
    with serving(server_goodput.server_words(arguments), 60) as server:
        point = asyncio.run(server_goodput.requests_at(server, 4.0, arguments))
        asyncio.run(server_goodput.wait_until_calm(server, arguments))
    assert point["good"] == 0 and point["goodput_share"] == 0 and point["offered"] > 0
    assert set(point["faults"]) == {"not complete in time"}
