# SPDX-License-Identifier: MIT

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.errors import Error
from dnnsuite.importers._text import (
    BadFile,
    fields_of,
    has_decimal_comma,
    lines_of,
    numbers,
    read_bytes,
    read_lines,
    read_rows,
    to_base,
)

HERE = Path("file.csv")


def parsed(*texts):
    return numbers(HERE, pd.Series(texts, range(1, len(texts) + 1)))


def test_numbers_as_tools_write_them():
    values, words = parsed("1,234", "-1,234,567.5", "8.00", "n/a", "", "CachePreferNone", "1e3", "72.1 (1; 2; 3)")
    np.testing.assert_array_equal(values, [1234, -1234567.5, 8, np.nan, np.nan, np.nan, 1000, 72.1])
    assert words.tolist() == [False, False, False, False, False, True, False, False]


@pytest.mark.parametrize("text", ["1,5", "12,34", "1,234,5", "1.234,5"])
def test_a_decimal_comma_is_refused_and_not_off_by_a_thousand(text):
    with pytest.raises(BadFile, match=r"file.csv:2: .* grouped digits"):
        parsed("1.0", text)


def test_rows_are_checked_and_the_line_is_named():
    good = ['"a","b"', "c,d", '"e, f",g', '"say ""x""",y']
    table = read_rows(HERE, good, [3, 4, 5, 6], ["one", "two"])
    assert table["one"].tolist() == ["a", "c", "e, f", 'say "x"']
    for bad, why in (
        ('"a"', "1 fields"),
        ("a,b,c", "3 fields"),
        ("a" * 200_000 + ',"b"', "larger than"),
        ('"a","b', "left open"),
    ):
        with pytest.raises(BadFile, match=f"file.csv:9: .*{why}"):
            read_rows(HERE, [good[0], bad], [3, 9], ["one", "two"])


@pytest.mark.parametrize("bad", ['a,"', ' a","b', 'a,"b""', '""a","', 'a""","b', '""a","b'])
def test_a_quote_left_open_is_found_however_many_quotes_there_are(bad):
    with pytest.raises(BadFile, match=r"file\.csv:1: .*left open"):
        read_rows(HERE, [bad, "c,d"], [1, 2], ["one", "two"])


def test_a_lone_carriage_return_ends_no_line(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b'"a"\r,"b"\r\nc,d')
    lines = read_lines(path)
    assert lines == ['"a" ,"b"', "c,d"]
    assert len(read_rows(path, lines, [1, 2], ["one", "two"])) == 2


@given(st.lists(st.lists(st.text('ab",', max_size=4), min_size=3, max_size=3), min_size=1, max_size=6), st.data())
def test_rows_are_those_of_the_csv_module(rows, data):
    """Whatever is quoted, and however; a line that has not three fields is refused."""
    lines = []
    for row in rows:
        always = data.draw(st.booleans())
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL if always else csv.QUOTE_MINIMAL, lineterminator="").writerow(row)
        lines.append(text.getvalue())
    at = range(1, len(lines) + 1)
    assert read_rows(HERE, lines, at, ["x", "y", "z"]).astype(object).values.tolist() == rows
    bad = data.draw(st.text('a",', max_size=12))
    if bad.count('"') % 2 or len(fields_of(bad)) != 3:
        with pytest.raises(BadFile, match=rf"file.csv:{len(lines) + 1}: "):
            read_rows(HERE, [*lines, bad], [*at, len(lines) + 1], ["x", "y", "z"])


def test_files_are_read_whatever_their_ends_and_bytes(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo \xff\n")
    assert read_lines(path) == ["one", "two \ufffd", ""]
    path.write_bytes(gzip.compress(b"packed"))
    assert read_bytes(path) == b"packed"


@pytest.mark.parametrize("content", [b"", b" \n", gzip.compress(b"packed" * 100, mtime=0)[:-12], b"\x1f\x8bno"])
def test_what_cannot_be_read_is_a_typed_error_with_the_files_name(tmp_path, content):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=r"x\.csv") as caught:
        read_bytes(path)
    assert isinstance(caught.value, Error)
    assert caught.value.line == 0
    with pytest.raises(BadFile, match="No such file"):
        read_bytes(tmp_path / "gone")
    with pytest.raises(BadFile, match="directory"):
        read_bytes(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_texts_of_windows(encoding):
    assert lines_of("a,b\r\n1,2\r\n".encode(encoding)) == ["a,b", "1,2", ""]


@pytest.mark.parametrize(
    ("texts", "counts", "expected"),
    [
        (["1.234,56"], [], True),
        (["117.344", "0,5"], [], True),
        (["117.344"], [], False),  # microseconds with three decimals, say
        (["117.344"], ["117.344"], True),  # but nobody counts thousandths
        (["117.344", "1.5"], ["117.344"], False),
        (["1,234.5", "117.344"], [], False),
        (["1.234.567"], [], True),
        (["1,234,567"], [], False),
    ],
)
def test_decimal_commas_are_told_by_the_whole_file(texts, counts, expected):
    assert has_decimal_comma(texts, counts) is expected


@pytest.mark.parametrize(
    ("unit", "factor", "base"),
    [
        ("%", 1, "%"), ("", 1, ""), ("cycle", 1, "cycle"), ("Kcycle", 1e3, "cycle"),
        ("nsecond", 1, "ns"), ("usecond", 1e3, "ns"), ("msecond", 1e6, "ns"), ("second", 1e9, "ns"),
        ("us", 1e3, "ns"), ("ms", 1e6, "ns"), ("s", 1e9, "ns"),
        ("byte", 1, "byte"), ("Kbyte", 1e3, "byte"), ("Gbyte", 1e9, "byte"), ("KB", 1e3, "byte"), ("B", 1, "byte"),
        ("MiB", 2**20, "byte"), ("Gbyte/second", 1e9, "byte/s"), ("Mbyte/s", 1e6, "byte/s"),
        ("byte/nsecond", 1e9, "byte/s"), ("GB/s", 1e9, "byte/s"), ("Kbyte/block", 1e3, "byte/block"),
        ("cycle/nsecond", 1e9, "Hz"), ("cycle/usecond", 1e6, "Hz"), ("Ghz", 1e9, "Hz"), ("MHz", 1e6, "Hz"),
        ("register/thread", 1, "register/thread"), ("inst/cycle", 1, "inst/cycle"), ("Msector", 1e6, "sector"),
        ("furlong", 1, "furlong"),
    ],
)  # fmt: skip
def test_base_units(unit, factor, base):
    found, name = to_base(unit)
    assert found == pytest.approx(factor)
    assert name == base
