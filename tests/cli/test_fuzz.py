# SPDX-License-Identifier: MIT
"""Commands that read results, on files that are damaged in every way: a status, a sentence, no ESC, and no wait."""

import gzip
import itertools
import os
import random
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import status
from dnnsuite.cli.hfta import dcgm_parser, timing_parser
from dnnsuite.cli.report import mlbench_report
from result_tables import FIXTURES


def numbers_replaced(content: bytes, by: bytes, seed: int = 0) -> bytes:
    """Every third number is another one."""
    draw = random.Random(seed)
    return re.sub(rb"-?\d+\.?\d*", lambda found: by if draw.random() < 0.3 else found[0], content)


def zipped(path: Path) -> None:
    content = path.read_bytes()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a", content)


def replaced(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(change(path.read_bytes())), None)[1]


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else in the place of the file."""

    def put(path: Path) -> None:
        path.unlink()
        make(path)

    return put


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": replaced(lambda content: content[: len(content) // 2]),
    "empty": replaced(lambda content: b""),
    "nested": replaced(lambda content: b"[" * 100_000),
    "binary": replaced(lambda content: bytes(range(256)) * 9),
    "UTF-16": replaced(lambda content: content.decode().encode("utf-16")),
    "NULs": replaced(lambda content: content.replace(b'"', b'"\0', 5)),
    "ESC": replaced(lambda content: re.sub(rb'": "([^"])', rb'": "\\u001b[31m\1', content)),
    "ESC byte": replaced(lambda content: content.replace(b"toy", b"\x1b[31mtoy")),
    "huge": replaced(lambda content: numbers_replaced(content, b"1e308")),
    "endless": replaced(lambda content: numbers_replaced(content, b"1e999")),
    "digits": replaced(lambda content: numbers_replaced(content, b"9" * 400)),
    "negative": replaced(lambda content: numbers_replaced(content, b"-3")),
    "words": replaced(lambda content: numbers_replaced(content, b'"x"')),
    "null": replaced(lambda content: numbers_replaced(content, b"null")),
    "gzip": replaced(gzip.compress),
    "zip": zipped,
    "folder": instead(Path.mkdir),
    "dangling link": instead(lambda path: path.symlink_to("nowhere")),
    "link to itself": instead(lambda path: path.symlink_to(path.name)),
    "pipe": instead(os.mkfifo),
}  # fmt: skip
KINDS = {
    "suite": ("suite.json", "toy-nap-r0-d0/run.json", "toy-nap-r0-d0/samples.csv"),
    "workflow": ("workflow.json", "B1-fp32-r0/run.json", "results.csv"),
}


def parser(command: Callable[[], None], *arguments: object) -> int:
    """Exit status of a console command."""
    before, sys.argv = sys.argv, ["x", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as ended:
            command()
    finally:
        sys.argv = before
    return int(ended.value.code or 0)


def commands(out: Path, at: Path) -> list[Callable[[], int]]:
    hfta = ("--outdirs", out, "--device", "cpu", "--device-model", "CPU", "--save", at / "t")
    return [
        lambda: status("report", str(out), "--allow-unlike", "--out", str(at / "r.html")),
        lambda: status("compare", str(out), str(FIXTURES / "suite")),
        lambda: status("report", str(out), "--gpu-model", "V100"),
        lambda: status("baseline", "save", str(out), "-b", str(at / "b.csv")),
        lambda: status("plot", str(out), "--save", str(at / "f.svg")),
        lambda: parser(mlbench_report, "--reports", out, "--name", "baselines", "--gpu-model", "V100"),
        lambda: parser(timing_parser, *hfta),
        lambda: parser(dcgm_parser, *hfta),
    ]


CASES = [
    (damage, kind, KINDS[kind][place], number)
    for number, (damage, place) in enumerate(itertools.product(DAMAGES, range(3)))
    for kind in [("suite", "workflow")[number % 2]]
]


@pytest.mark.parametrize(("damage", "kind", "file", "number"), CASES)
def test_damaged_results(damage, kind, file, number, tmp_path, capsys):
    """Each damage of each file, met by the commands in turn."""
    out = tmp_path / "out"
    shutil.copytree(FIXTURES / kind, out)
    DAMAGES[damage](next(path for path in sorted(out.rglob("*")) if str(path).endswith(file)))
    every = commands(out, tmp_path)
    assert every[number % len(every)]() in (0, 1, 2)
    told = "".join(capsys.readouterr())
    assert "\x1b" not in told
    assert "Traceback" not in told
    for page in tmp_path.glob("r.*"):
        assert "\x1b" not in page.read_text()
