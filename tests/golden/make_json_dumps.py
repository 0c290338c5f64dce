"""Writes json_dumps.jsonl: JSON texts and what Python's json.loads and json.dumps(ensure_ascii=False) make of them."""

import argparse
import json
import math
import random
import struct
from decimal import Decimal
from pathlib import Path

SEED = 20261129
FLOATS_PER_LINE = 40


def hard_floats() -> list[float]:
    """Powers of two and ten, the borders of the printed layouts, the ends of the range, and their neighbours."""
    centres = [math.ldexp(1.0, exponent) for exponent in range(-1074, 1024, 7)]
    centres += [float(f"1e{exponent}") for exponent in range(-323, 309, 3)]
    centres += [float(f"{digit}e{exponent}") for digit in (1, 9.999, 123456789) for exponent in range(-8, 20)]
    centres += [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740992.0, 9007199254740993.0]
    values = []
    for centre in centres:
        values += [centre, math.nextafter(centre, 0.0), math.nextafter(centre, math.inf)]
    return [value for value in values if math.isfinite(value)]


def random_floats(rng: random.Random, count: int) -> list[float]:
    """Half of them any bit pattern, half of the kind that people write."""
    values = []
    while len(values) < count:
        value = struct.unpack("<d", rng.randbytes(8))[0]
        if math.isfinite(value):
            values.append(value)
        values.append(round(rng.uniform(-1000, 1000), rng.randrange(6)))
    return values


def spell(rng: random.Random, value: float) -> str:
    """One of many literals whose nearest double is this value."""
    form = rng.choice(["{!r}", "{!r}", "{:.17g}", "{:.16e}", "{:.25E}", "exact"])
    text = format(Decimal(value), "f") if form == "exact" and 1e-30 < abs(value) < 1e25 else ""
    text = text or (form if form != "exact" else "{!r}").format(value)
    return text if any(c in text for c in ".eE") else text + rng.choice([".0", ".000", "e0", "E+00", "e-0"])


def texts(rng: random.Random) -> list[str]:
    floats = hard_floats() + random_floats(rng, 1500)
    spelled = [spell(rng, rng.choice([1.0, -1.0]) * value) for value in floats]
    lines = [f"[{','.join(spelled[i : i + FLOATS_PER_LINE])}]" for i in range(0, len(spelled), FLOATS_PER_LINE)]
    lines.append("[-0, 0, -0.0, 0e5, -0E-7, 1E5, 1.50, 1e-400, -1e-400, 0.0e999999999999, 1e-99999999999999999999]")
    lines.append(f"[0.{'0' * 400}1e390, {'9' * 40}e-39, 1{'0' * 400}e-400, 0.{'0' * 330}1]")
    lines.append(f"[9223372036854775807, -9223372036854775808, 18446744073709551615, {'7' * 300}, -{'8' * 308}]")
    lines.append(json.dumps({chr(c): chr(c) for c in [*range(0x00A0), 0x2028, 0x2029, 0xFFFD, 0xFFFF, 0x1F600]}))
    lines.append('"\\u0041\\/\\ud83d\\ude00\\u00e9\\u2028"')
    lines.append(' {"b" : [ ] , "a":{ },"":[null,true,false,"",[[[{}]]]],"é":"\x7f日本"}\r\n\t')
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("json_dumps.jsonl"))
    output: Path = parser.parse_args().output
    with output.open("w", encoding="ascii") as file:
        for text in texts(random.Random(SEED)):
            file.write(json.dumps({"text": text, "dumps": json.dumps(json.loads(text), ensure_ascii=False)}) + "\n")


if __name__ == "__main__":
    main()
