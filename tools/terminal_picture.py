"""Turns the text of a terminal with its colours (SGR sequences, ECMA-48) into an SVG picture that refers to nothing.

    tmux capture-pane -e -p > docs/chat.ansi
    python -m tools.terminal_picture docs/chat.ansi --title "kipp chat" --output docs/chat.svg

Every run of characters is put at its own columns, so that the picture is the same in any monospaced font.
"""

from __future__ import annotations

import argparse
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.atomic_file import write_file
from tools.command import run_command
from tools.errors import ToolError, mismatch

FOREGROUND = "#d5d9e0"
BACKGROUND = "#1b1e24"
PALETTE = ("#3a3f4b", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4",
           "#6b7280", "#ff8f99", "#b5e08f", "#ffd98a", "#8ac6ff", "#e0a0f5", "#7fd8e3", "#ffffff")
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
CELL_WIDTH = 8.4  # 0.6 of the font size, as most monospaced fonts have it; textLength corrects the others
FONT_SIZE = 14
LINE_HEIGHT = 20
BASELINE = 15  # from the top of a line
PADDING = 16

SGR = re.compile(r"\x1b\[([0-9;]*)m")
ATTRIBUTES = {1: ("bold", True), 2: ("dim", True), 3: ("italic", True), 4: ("underline", True), 7: ("inverse", True),
              23: ("italic", False), 24: ("underline", False), 27: ("inverse", False),
              39: ("foreground", None), 49: ("background", None)}


@dataclass(frozen=True)
class Style:
    foreground: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    inverse: bool = False

    def colours(self) -> tuple[str, str | None]:
        """Of the text, and of what is behind it."""
        if self.inverse:
            return self.background or BACKGROUND, self.foreground or FOREGROUND
        return self.foreground or FOREGROUND, self.background

    def shows_blanks(self) -> bool:
        return self.underline or self.colours()[1] is not None


@dataclass(frozen=True)
class Run:
    """Neighbours in one row that look alike."""

    column: int
    width: int  # in columns
    text: str
    style: Style


def colour_of(index: int) -> str:
    """Of the 256: 16 named ones, a cube of 6 × 6 × 6, 24 greys."""
    if index < 16:
        return PALETTE[index]
    if index < 232:
        levels = (0, 95, 135, 175, 215, 255)
        red, green, blue = (levels[(index - 16) // step % 6] for step in (36, 6, 1))
        return f"#{red:02x}{green:02x}{blue:02x}"
    return "#" + f"{8 + 10 * (index - 232):02x}" * 3


def extended_colour(codes: list[int]) -> str | None:
    """What follows 38 or 48, taken from the front of codes; None if it is no colour."""
    kind = codes.pop(0) if codes else -1
    count = {5: 1, 2: 3}.get(kind, 0)
    values = [codes.pop(0) for _ in range(min(count, len(codes)))]
    if not count or len(values) != count or max(values) > 255:
        return None
    return colour_of(values[0]) if kind == 5 else "#" + "".join(f"{value:02x}" for value in values)


def one_code(style: Style, code: int, codes: list[int]) -> Style | None:
    """The style after one code; codes are those behind it. None if the code is unknown."""
    if code == 0:
        return Style()
    if code == 22:
        return replace(style, bold=False, dim=False)
    if code in ATTRIBUTES:
        name, value = ATTRIBUTES[code]
        return replace(style, **{name: value})
    colour = None
    if code in (38, 48):
        colour = extended_colour(codes)
    elif code // 10 in (3, 4, 9, 10) and code % 10 < 8:
        colour = PALETTE[code % 10 + (8 if code >= 90 else 0)]
    if colour is None:
        return None
    return replace(style, **{"background" if code // 10 in (4, 10) else "foreground": colour})


def restyle(style: Style, parameters: str) -> Style | None:
    codes = [int(code or 0) for code in parameters.split(";")]
    result: Style | None = style
    while codes and result is not None:
        result = one_code(result, codes.pop(0), codes)
    return result


def char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def trim(runs: list[Run]) -> list[Run]:
    """Without the blanks at the end of a row that nobody sees."""
    while runs and not runs[-1].style.shows_blanks():
        last = runs.pop()
        text = last.text.rstrip(" ")
        if text:
            return [*runs, replace(last, text=text, width=last.width - (len(last.text) - len(text)))]
    return runs


def parse_row(file: Path, number: int, line: str, style: Style) -> tuple[list[Run], Style]:
    """The runs of one row, and the style in which the next one begins."""
    runs: list[Run] = []
    column = 0
    for i, part in enumerate(SGR.split(line)):
        if i % 2:
            changed = restyle(style, part)
            if changed is None:
                raise mismatch(file, f"line {number}", "an SGR sequence", f"ESC[{part}m")
            style = changed
            continue
        bad = next((char for char in part if unicodedata.category(char) == "Cc"), None)
        if bad is not None:
            raise mismatch(file, f"line {number}", "text and SGR sequences", f"control character 0x{ord(bad):02x}")
        width = sum(map(char_width, part))
        if part and runs and runs[-1].style == style:
            runs[-1] = replace(runs[-1], text=runs[-1].text + part, width=runs[-1].width + width)
        elif part:
            runs.append(Run(column, width, part, style))
        column += width
    return trim(runs), style


def parse(file: Path, text: str) -> list[list[Run]]:
    """The rows of a terminal; blank ones at the end left out."""
    style = Style()
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        runs, style = parse_row(file, number, line, style)
        rows.append(runs)
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        raise ToolError(f"{file}: shows nothing")
    return rows


def drawn(run: Run, row: int) -> Iterator[str]:
    """The elements of one run: what is behind it, and its text."""
    colour, behind = run.style.colours()
    x = PADDING + run.column * CELL_WIDTH
    y = PADDING + row * LINE_HEIGHT
    width = f"{run.width * CELL_WIDTH:g}"
    if behind is not None:
        yield f'<rect x="{x:g}" y="{y}" width="{width}" height="{LINE_HEIGHT}" fill="{behind}"/>'
    if not run.text.strip(" ") and not run.style.underline:
        return
    attributes = f'x="{x:g}" y="{y + BASELINE}" textLength="{width}"'
    for wanted, attribute in ((colour != FOREGROUND, f'fill="{colour}"'), (run.style.dim, 'fill-opacity=".6"'),
                              (run.style.bold, 'font-weight="bold"'), (run.style.italic, 'font-style="italic"'),
                              (run.style.underline, 'text-decoration="underline"')):
        attributes += f" {attribute}" if wanted else ""
    yield f"<text {attributes}>{escape(run.text)}</text>"


def picture(rows: list[list[Run]], title: str) -> str:
    columns = max(run.column + run.width for runs in rows for run in runs)
    width = f"{2 * PADDING + columns * CELL_WIDTH:g}"
    height = 2 * PADDING + len(rows) * LINE_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label={quoteattr(title)}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        f'<g font-family="{FONT}" font-size="{FONT_SIZE}" fill="{FOREGROUND}" xml:space="preserve">',
        *(element for row, runs in enumerate(rows) for run in runs for element in drawn(run, row)),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise mismatch(file, f"byte {error.start}", "UTF-8", f"0x{error.object[error.start]:02x}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path, help="the captured text, UTF-8")
    parser.add_argument("--title", default="A terminal", help="what the picture shows, for those who do not see it")
    parser.add_argument("--output", type=Path, required=True, help="the SVG file to write")
    args = parser.parse_args()
    write_file(args.output, picture(parse(args.capture, read_text(args.capture)), args.title).encode())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
