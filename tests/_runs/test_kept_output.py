# SPDX-License-Identifier: MIT
from pathlib import Path

from dnnsuite._runs.limits import free_middle, keep_ends


def test_what_is_short_stays(tmp_path: Path) -> None:
    path = tmp_path / "stdout.txt"
    keep_ends(path)
    path.write_bytes(b"0123456789")
    keep_ends(path, 5)
    assert path.read_bytes() == b"0123456789"


def test_the_beginning_and_the_end_of_what_is_long_stay(tmp_path: Path) -> None:
    path = tmp_path / "stdout.txt"
    path.write_bytes(b"abc" + bytes(100) + b"xyz")
    keep_ends(path, 3)
    assert path.read_bytes() == b"abc\n[... 100 bytes left out ...]\nxyz"


def test_a_file_that_is_written_keeps_its_size_and_gives_its_middle_back(tmp_path: Path) -> None:
    path = tmp_path / "stdout.txt"
    block = 1 << 16
    with open(path, "wb") as file:
        file.write(b"a" * block + b"m" * 14 * block)
        file.flush()
        free_middle(path, block)
        file.write(b"z" * block)
    about = path.stat()
    assert about.st_size == 16 * block
    assert about.st_blocks * 512 <= 5 * block
    keep_ends(path, block)
    content = path.read_bytes()
    assert content == b"a" * block + b"\n[... %d bytes left out ...]\n" % (14 * block) + b"z" * block


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    free_middle(tmp_path / "none")
    keep_ends(tmp_path / "none")
