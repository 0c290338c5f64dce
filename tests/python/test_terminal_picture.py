"""The picture of a terminal shows each character at its columns with its colours, and the committed one is current."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tiny_snapshots import REPOSITORY

from tools import terminal_picture
from tools.errors import ToolError
from tools.terminal_picture import BACKGROUND, CELL_WIDTH, FOREGROUND, PADDING, PALETTE, parse, picture

SVG = "{http://www.w3.org/2000/svg}"
CAPTURE = REPOSITORY / "docs" / "chat.ansi"
PICTURE = REPOSITORY / "docs" / "chat.svg"


def drawn(text: str) -> ET.Element:
    return ET.fromstring(picture(parse(Path("capture"), text), "title"))


def texts(text: str) -> list[tuple[str | None, dict[str, str]]]:
    """Each text element with the attributes that say how it looks."""
    places = {"x", "y", "textLength"}
    return [(element.text, {key: value for key, value in element.attrib.items() if key not in places})
            for element in drawn(text).iter(f"{SVG}text")]


def backgrounds(text: str) -> list[str]:
    return [element.attrib["fill"] for element in drawn(text).iter(f"{SVG}rect")][1:]  # the first is the window


@pytest.mark.parametrize(("codes", "look"), [
    ("", {}),
    ("0", {}),
    ("1", {"font-weight": "bold"}),
    ("2", {"fill-opacity": ".6"}),
    ("3", {"font-style": "italic"}),
    ("4", {"text-decoration": "underline"}),
    ("1;2;22", {}),
    ("3;4;23;24", {}),
    ("36", {"fill": PALETTE[6]}),
    ("96", {"fill": PALETTE[14]}),
    ("36;39", {}),
    ("38;5;3", {"fill": PALETTE[3]}),
    ("38;5;16", {"fill": "#000000"}),
    ("38;5;208", {"fill": "#ff8700"}),
    ("38;5;255", {"fill": "#eeeeee"}),
    ("38;2;1;2;3;1", {"fill": "#010203", "font-weight": "bold"}),
    ("1;;36", {"fill": PALETTE[6]}),
    ("7", {"fill": BACKGROUND}),
    ("7;27", {}),
])
def test_attributes(codes: str, look: dict[str, str]) -> None:
    assert texts(f"\x1b[{codes}mx") == [("x", look)]


def test_backgrounds() -> None:
    assert backgrounds("\x1b[41m \x1b[49m \x1b[103mx") == [PALETTE[1], PALETTE[11]]
    assert backgrounds("\x1b[7;36mx") == [PALETTE[6]]
    assert backgrounds("\x1b[7mx") == [FOREGROUND]
    assert backgrounds("\x1b[48;5;232mx\x1b[0m y") == ["#080808"]


def test_a_style_goes_on_in_the_next_row() -> None:
    assert texts("\x1b[2ma\n\nb\x1b[0mc") == [("a", {"fill-opacity": ".6"}), ("b", {"fill-opacity": ".6"}), ("c", {})]


def test_places_are_columns() -> None:
    """A Chinese character takes two, a combining accent none."""
    elements = list(drawn("世界\x1b[1me\u0301\x1b[0mx\n\n y").iter(f"{SVG}text"))
    places = [(float(element.attrib["x"]), float(element.attrib["textLength"])) for element in elements]
    columns = [(0, 4), (4, 1), (5, 1), (0, 2)]
    assert places == [(pytest.approx(PADDING + start * CELL_WIDTH), pytest.approx(width * CELL_WIDTH))
                      for start, width in columns]
    assert int(elements[3].attrib["y"]) - int(elements[0].attrib["y"]) == 2 * terminal_picture.LINE_HEIGHT


def test_blanks_that_nobody_sees_are_left_out() -> None:
    plain = picture(parse(Path("capture"), "a b"), "title")
    assert picture(parse(Path("capture"), "a b  \x1b[1m  \x1b[0m \n \n\n"), "title") == plain
    assert texts("a\x1b[4m  ") == [("a", {}), ("  ", {"text-decoration": "underline"})]


def test_text_is_escaped() -> None:
    assert texts('<b> & "c"') == [('<b> & "c"', {})]
    assert 'aria-label="a &lt; b"' in picture(parse(Path("capture"), "x"), "a < b")


@pytest.mark.parametrize(("text", "message"), [
    ("a\nb\x1b[5mc", "capture: line 2: expected an SGR sequence, found ESC[5m"),
    ("\x1b[38;5;256mx", "found ESC[38;5;256m"),
    ("\x1b[38;2;1;2mx", "found ESC[38;2;1;2m"),
    ("\x1b[48mx", "found ESC[48m"),
    ("\x1b[38;9;1mx", "found ESC[38;9;1m"),
    ("\x1b[98mx", "found ESC[98m"),
    ("a\x1b[2Jb", "capture: line 1: expected text and SGR sequences, found control character 0x1b"),
    ("a\tb", "control character 0x09"),
    ("a\r\n", "control character 0x0d"),
    (" \n\n", "capture: shows nothing"),
])
def test_what_is_no_capture_is_refused(text: str, message: str) -> None:
    with pytest.raises(ToolError, match=re.escape(message)):
        parse(Path("capture"), text)


def test_command_line(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    command = [sys.executable, REPOSITORY / "tools" / "terminal_picture.py", capture, "--output", tmp_path / "a.svg"]
    capture.write_bytes(b"a\xffb")
    failed = subprocess.run(command, capture_output=True, text=True)
    assert (failed.returncode, failed.stderr) == (1, f"error: {capture}: byte 1: expected UTF-8, found 0xff\n")
    assert not (tmp_path / "a.svg").exists()
    capture.write_text("Hi", encoding="utf-8")
    assert subprocess.run([*command, "--title", "T"]).returncode == 0
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == picture(parse(capture, "Hi"), "T")


def test_the_picture_of_the_chat_is_that_of_its_capture() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    title = ET.fromstring(text).findtext(f"{SVG}title")
    assert title
    assert text == picture(parse(CAPTURE, CAPTURE.read_text(encoding="utf-8")), title)


def test_the_picture_of_the_chat_stands_alone() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text.encode()) < 20_000
    assert re.findall(r"https?://[^\s\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|url\(|@import|<script|<image|<style", text)
