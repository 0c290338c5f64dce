"""The arithmetic of bench/server_goodput.py: prompts and arrivals from a seed, sums over streams, the next rate.

No clock, no socket.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from stream_reading import Limits, Read

# Each is one token of Qwen3's, with a space before it and without: a prompt has as many tokens as words.
WORDS = [
    "time", "river", "stone", "music", "quiet", "forest", "coin", "apple", "window", "never", "story",
    "light", "house", "water", "green", "paper", "under", "after", "before", "little", "great", "small",
    "world", "night", "summer", "winter", "spring", "bread", "horse", "road", "bridge", "sea", "ship",
    "letter", "book", "page", "line", "word", "voice", "song", "dance", "door", "key", "table", "chair",
    "clock", "bell", "fire", "snow", "rain", "wind", "cloud", "star", "moon", "sun", "earth", "field", "farm",
    "corn", "salt", "silver", "gold", "iron", "glass",
]  # fmt: skip


def prompt(seed: str, num_words: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=num_words))


def arrivals(seed: str, rate: float, window: float) -> list[float]:
    """Moments of a Poisson process within the window, in seconds from its beginning."""
    draw = random.Random(seed)
    moments = []
    now = draw.expovariate(rate)
    while now < window:
        moments.append(now)
        now += draw.expovariate(rate)
    return moments


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def percentiles_ms(values: Sequence[float]) -> dict[str, float | None]:
    """Null: what never came is among them."""
    found = {name: percentile(values, share) if values else math.inf
             for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return {name: None if math.isinf(value) else round(value * 1e3, 3) for name, value in found.items()}


def faults(reads: Sequence[Read]) -> dict[str, int]:
    """The most frequent ones."""
    return dict(Counter(read.fault[:100] for read in reads if read.fault).most_common(8))


def open_loop_figures(reads: Sequence[Read], rate: float, window: float, limits: Limits) -> dict[str, Any]:
    """Of all requests that were sent within the window."""
    whole = [read for read in reads if not read.fault]
    good = sum(read.meets(limits) for read in reads)
    return {
        "rate": rate,
        "offered": len(reads),
        "offered_per_second": round(len(reads) / window, 3),
        "completed": len(whole),
        "completed_per_second": round(len(whole) / window, 3),
        "good": good,
        "goodput_per_second": round(good / window, 3),
        "goodput_share": round(good / len(reads), 4) if reads else 0.0,
        "ttft_ms": percentiles_ms([read.to_first for read in reads]),
        "tpot_ms": percentiles_ms([read.per_token for read in whole]),
        "prompt_tokens": sorted({read.prompt_tokens for read in whole}),
        "tokens": sorted({read.tokens for read in whole}),
        "faults": faults(reads),
    }


class Steady(NamedTuple):
    """Streams between the moment when the last of them has its first token and that when the first one ends."""

    seconds: float
    tokens: float  # of all streams
    gaps: list[float]  # between two pieces of text of one stream


def steady(reads: Sequence[Read]) -> Steady | None:
    """None: there is no such time. Tokens without text of their own (half a character) count by their share."""
    firsts = [read.first for read in reads if read.first is not None]
    ends = [read.finished for read in reads if read.finished is not None]
    if len(firsts) < len(reads) or len(ends) < len(reads) or not reads or min(ends) <= max(firsts):
        return None
    begin, end = max(firsts), min(ends)
    tokens, gaps = 0.0, []
    for read in reads:
        within = [when for when in read.texts if begin < when <= end]
        tokens += len(within) * read.tokens / max(1, len(read.texts))
        gaps += [later - before for before, later in itertools.pairwise(within)]
    return Steady(end - begin, tokens, gaps)


def round_figures(reads: Sequence[Read]) -> dict[str, Any]:
    """Of streams that were begun together. Without a steady time there are no figures but the faults."""
    found = None if any(read.fault for read in reads) else steady(reads)
    figures: dict[str, Any] = {"faults": faults(reads)}
    if found is None or found.tokens == 0:
        return figures
    span = max(read.finished or 0.0 for read in reads) - min(read.begun for read in reads)
    return figures | {
        "tokens_per_second": round(found.tokens / found.seconds, 3),
        "ms_between_tokens": round(found.seconds * len(reads) / found.tokens * 1e3, 4),
        "gaps_ms": percentiles_ms(found.gaps),
        "steady_seconds": round(found.seconds, 3),
        "share_of_tokens_with_text": round(sum(len(r.texts) for r in reads) / sum(r.tokens for r in reads), 4),
        "whole_tokens_per_second": round(sum(read.tokens for read in reads) / span, 3),
        "ttft_ms": percentiles_ms([read.to_first for read in reads]),
    }


def beside_the_engine(server: Sequence[Sequence[dict[str, Any]]], engine: Sequence[float]) -> dict[str, Any]:
    """server: the rounds of each turn; engine: its tokens a second before the first turn, between any two, and after.

    Each turn's median is compared with the mean of the two figures around it.
    """
    ratios = []
    for turn, rounds in enumerate(server):
        rates = [one["tokens_per_second"] for one in rounds if "tokens_per_second" in one]
        if rates:
            ratios.append(statistics.median(rates) / statistics.mean(engine[turn : turn + 2]))
    ratio = statistics.median(ratios) if ratios else None
    return {"throughput_over_engine": ratio and round(ratio, 4),
            "added_to_the_time_between_tokens": ratio and round(1 / ratio - 1, 4),
            "throughput_over_engine_of_each_turn": [round(one, 4) for one in ratios]}


# Which rate comes next.


class Rates(NamedTuple):
    rising: Sequence[float]
    enough: float  # share of good requests that a rate needs
    collapse: float  # below this share nothing higher is tried
    refinements: int  # rates tried between the highest good one and the lowest that is not


def highest_good_rate(shares: dict[float, float], enough: float) -> float | None:
    """The highest rate that was tried and good, below the lowest that was not."""
    best = None
    for rate in sorted(shares):
        if shares[rate] < enough:
            break
        best = rate
    return best


def next_rate(shares: dict[float, float], rates: Rates) -> float | None:
    """shares: of the rates tried so far. None: that was all."""
    left = [rate for rate in rates.rising if rate not in shares]
    if left and all(share >= rates.collapse for share in shares.values()):
        return left[0]
    good = highest_good_rate(shares, rates.enough)
    bad = min((rate for rate, share in shares.items() if share < rates.enough), default=None)
    tried = sum(rate not in rates.rising for rate in shares)
    if good is None or bad is None or tried >= rates.refinements:
        return None
    between = float(f"{math.sqrt(good * bad):.3g}")
    return between if good < between < bad else None
