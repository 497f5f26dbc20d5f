# SPDX-License-Identifier: MIT
"""Text files of other tools: read whole, cut into lines, numbers and units, with errors that name file and line.

Units become base units: ns, byte, Hz, a count. ncu scales what it prints (`Kbyte`, `msecond`, `Gbyte/second`; in newer
versions `Mbyte/s`, `us`, `Ghz`); its prefixes of bytes are decimal. A rate is per second.
"""

from __future__ import annotations

import codecs
import csv
import functools
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .._files import regular
from .._lazy import numpy as np
from .._lazy import pandas as pd
from ..errors import Error, reason

if TYPE_CHECKING:
    from numpy.typing import NDArray


_REMEDY = "; without the line the rest can be imported"
# Of these the last are ratios to nothing.
_NOTHING = [
    *["", "n/a", "na", "nan", "-nan", "-", "no data", "(!) n/a", "not supported", "<overflow>", "inf", "+inf", "-inf"]
]
_GROUPED = r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?"
# What can be a number with one sign for decimals only: {0} is that of groups, {1} that of decimals.
_ONLY = (
    r"-?(?:\d{{1,3}}(?:{0}\d{{3}})+{1}\d+|\d{{1,3}}(?:{0}\d{{3}}){{2,}}"
    r"|0{1}\d+|\d{{4,}}{1}\d+|\d+{1}(?:\d{{1,2}}|\d{{4,}}))"
)
_POINT, _COMMA = (re.compile(_ONLY.format(*signs)) for signs in ((",", r"\."), (r"\.", ",")))
_THOUSANDS = re.compile(r"-?\d{1,3}(?:\.\d{3})+")


class BadFile(Error):
    """Raised for a damaged file, or one of another kind; the message names it, and the line where there is one.

    Args:
        path: the file.
        why: defect of the file, and the way out.
        line: counted from 1; 0 when it is not about one line.
        kind_is_known: True for a damaged file of a kind that is read.
    """

    def __init__(self, path: Path | str, why: str, line: int = 0, kind_is_known: bool = True) -> None:
        self.path, self.why, self.line, self.kind_is_known = Path(path), why, line, kind_is_known
        super().__init__(path, why, line)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}" if self.line else f"{self.path}: {self.why}"


def is_packed(path: Path) -> bool:
    """Return True for a file that gzip packed. Raises OSError as `open` does, also for what is no regular file."""
    with open(regular(path), "rb") as file:
        return file.read(2) == b"\x1f\x8b"


@contextmanager
def unpacked(path: Path) -> Iterator[gzip.GzipFile | io.BufferedReader]:
    """Open a file, through gzip where it is packed. An error of reading becomes BadFile, also in the block."""
    try:
        with gzip.open(path) if is_packed(path) else open(path, "rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(path, reason(error)) from error


def read_bytes(path: Path, most: int = -1) -> bytes:
    """Return a file's bytes, `most` of them where that is not negative, unpacked if it is gzip's.

    Raises:
        BadFile: it cannot be read, is empty, or its packing is damaged.
    """
    with unpacked(path) as file:
        data = file.read(most)
    if not data or (len(data) != most and data.isspace()):
        raise BadFile(path, "the file is empty")
    return data


def read_lines(path: Path) -> list[str]:
    """Read a text file and split it as :func:`lines_of` does; raises BadFile as :func:`read_bytes` does."""
    return lines_of(read_bytes(path))


def encoding_of(data: bytes) -> str:
    """Return the encoding of a text: UTF-16 by its mark, as PowerShell's `>` writes it, or by its NULs; else UTF-8."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = data[:4000]
    for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if len(head) > 3 and zeros.count(0) > 0.9 * len(zeros):
            return encoding
    return "utf-8-sig"


def lines_of(data: bytes) -> list[str]:
    """Split text into lines without their ends; bytes that are no text become U+FFFD, NULs and lone CRs blanks."""
    text = data.decode(encoding_of(data), errors="replace").replace("\r\n", "\n")
    # pandas would end a line at a CR, and csv would not.
    return text.replace("\0", " ").replace("\r", " ").split("\n")


def fields_of(line: str) -> list[str]:
    """Split one line of CSV into its fields; into none where one is longer than any that a tool writes (128 KiB)."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def csv_line(fields: Sequence[str], quoting: Literal[0, 1] = csv.QUOTE_MINIMAL) -> str:
    """Join fields to one line of CSV, without an end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="", quoting=quoting).writerow(fields)
    return text.getvalue()


def read_rows(
    path: Path, lines: Sequence[str], at: Sequence[int], columns: Sequence[str], wanted: list[str] | None = None
) -> pd.DataFrame:
    """Parse lines of CSV into a table of text, indexed by the number of the line; repeated texts are kept once.

    Args:
        path: path of the file, for messages.
        lines: one record each, without a header.
        at: the number in the file of each line, counted from 1.
        columns: names in the header; a row must have as many fields, and none may be repeated.
        wanted: the columns to keep; all by default.

    Raises:
        BadFile: a row with more or fewer fields, or an open quote: the first such line is named.
    """
    text = "\n".join([*lines, ""])
    for number in _not_plain(lines, text, len(columns)):
        _check_row(path, lines[number], at[number], len(columns))
    table = pd.read_csv(
        io.BytesIO(text.encode()),
        header=None,
        names=list(columns),
        usecols=wanted,
        dtype="category",
        na_filter=False,
        skip_blank_lines=False,
        index_col=False,
        low_memory=False,
    )
    for column in table:  # pandas makes categories that look like numbers numbers
        table[column] = table[column].cat.rename_categories(str)
    return table.set_axis(pd.Index(at))


def _not_plain(lines: Sequence[str], text: str, fields: int) -> Sequence[int]:
    """Find lines, counted from 0, that may be other than `fields` quoted fields without a quote inside.

    A line of `2 * fields` quotes that begins and ends with a quote, and with `","` at neither end, has at most
    `fields - 1` of these; where all lines together have as many as they can, each one has.
    """
    odd = [number for number, line in enumerate(lines) if line.count('"') != 2 * fields]
    between = text.count('","') - sum(lines[number].count('","') for number in odd)
    begins = text.startswith('","') or '\n","' in text
    ends = '","\n' in text
    quoted_begins = text.startswith('"') + text.count('\n"') - sum(lines[number].startswith('"') for number in odd)
    quoted_ends = text.count('"\n') - sum(lines[number].endswith('"') for number in odd)
    count = len(lines) - len(odd)
    full = (between, quoted_begins, quoted_ends) == ((fields - 1) * count, count, count)
    return odd if full and not begins and not ends else range(len(lines))


def _check_row(path: Path, line: str, number: int, fields: int) -> None:
    try:
        records = list(csv.reader([line, "next"]))  # an open quote takes the next line into the record
    except csv.Error as error:
        raise BadFile(path, f"{error}: the line is damaged{_REMEDY}", number) from error
    if line.count('"') % 2 or len(records) < 2:
        raise BadFile(path, f"a quote is left open: the file is cut short here{_REMEDY}", number)
    found = len(records[0])
    if found != fields:
        raise BadFile(path, f"{found} fields where the header has {fields}: the line is damaged{_REMEDY}", number)


def has_decimal_comma(texts: Iterable[str], counts: Iterable[str] = ()) -> bool:
    """True if the numbers of a file are written as `1.234,56`, which a locale makes of `1,234.56`.

    Args:
        texts: the numbers of the whole file: some may be read both ways, `117.344`, and others tell.
        counts: those that have no decimals by their nature: `117.344` of them is grouped.

    Files in which both are found are left to :func:`numbers`, which refuses what is no number.
    """
    words = [*map(str.strip, texts)]
    if any(map(_POINT.fullmatch, words)):
        return False
    return any(map(_COMMA.fullmatch, words)) or any(_THOUSANDS.fullmatch(text.strip()) for text in counts)


def with_points(texts: pd.Series) -> pd.Series:
    """Rewrite numbers with a decimal comma as `1,234.56`, each distinct one once."""
    if hasattr(texts, "cat"):
        categories = texts.cat.categories
        changed = [text.translate(_SWAPPED) if _LIKE_A_NUMBER.fullmatch(text) else text for text in categories]
        return texts.cat.rename_categories(changed)
    return texts.map(lambda text: text.translate(_SWAPPED) if _LIKE_A_NUMBER.fullmatch(text) else text)


_SWAPPED = str.maketrans(".,", ",.")
_LIKE_A_NUMBER = re.compile(r"\s*-?[\d.,]+(?:\s*\(.*\))?\s*")


def numbers(path: Path, texts: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Convert texts to numbers `[N]`; also return which of them are words instead, whose numbers are NaN.

    The index of the texts has the numbers of their lines, for messages.

    Grouped digits are one number (`1,234.5`); what follows a number in parentheses is left out, as the instances that
    ncu lists; what tools write for "nothing", or for a ratio to nothing, is NaN.

    Raises:
        BadFile: digits and commas that are no grouped number: another country's decimal comma would be off by 1000.
    """
    codes, distinct = pd.factorize(texts)
    words = pd.Series(list(map(str, distinct)), dtype=object).str.strip()
    words = words.str.replace(r"(?<=[\d.]) +\(.*\)$", "", regex=True)
    plain = words.where(~words.str.fullmatch(_GROUPED), words.str.replace(",", ""))
    odd = plain.str.fullmatch(r"-?[\d.]*,[\d.,]*").to_numpy(bool)
    if odd.any():
        line = texts.index[odd[codes]][0]
        raise BadFile(path, f"{texts[line]!r} is not a number with grouped digits; export with LC_ALL=C", int(line))
    values = pd.to_numeric(plain, errors="coerce").to_numpy(float, copy=True)
    values[np.isinf(values)] = np.nan  # digits that no number holds are a word
    words_only = np.isnan(values) & ~plain.str.lower().isin(_NOTHING).to_numpy(bool)
    return values[codes], words_only[codes]


_SECONDS = {
    "second": 1e9, "msecond": 1e6, "usecond": 1e3, "nsecond": 1.0,
    "s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0,
}  # fmt: skip
_HERTZ = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}
_PREFIXES = {
    "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip
_WORDS = {
    "byte": "byte", "bytes": "byte", "b": "byte", "bit": "bit", "cycle": "cycle", "inst": "inst", "sector": "sector",
    "request": "request", "warp": "warp", "thread": "thread", "block": "block", "op": "op", "flop": "flop",
    "transaction": "transaction", "w": "W", "j": "J",
}  # fmt: skip


@functools.cache
def to_base(unit: str) -> tuple[float, str]:
    """Factor of a value in `unit`, and the base unit of the product.

    >>> to_base("Kbyte"), to_base("msecond"), to_base("cycle/nsecond")
    ((1000.0, 'byte'), (1000000.0, 'ns'), (1000000000.0, 'Hz'))

    A unit that is not known stays, with a factor of 1.
    """
    unit = unit.strip()
    above, slash, below = unit.partition("/")
    if slash and below in _SECONDS:
        factor, base = _simple(above)
        scale = factor * (1e9 / _SECONDS[below])
        return (scale, "Hz") if base == "cycle" else (scale, f"{base}/s")
    factor, base = _simple(above)
    return factor, f"{base}/{below}" if slash else base


def _simple(unit: str) -> tuple[float, str]:
    if unit in _SECONDS:
        return _SECONDS[unit], "ns"
    if unit.lower() in _HERTZ:
        return _HERTZ[unit.lower()], "Hz"
    if unit.lower() in _WORDS:
        return 1.0, _WORDS[unit.lower()]
    for prefix, factor in _PREFIXES.items():
        rest = unit.removeprefix(prefix)
        if rest != unit and rest.lower() in _WORDS:
            return factor, _WORDS[rest.lower()]
    return 1.0, unit
