# SPDX-License-Identifier: MIT
"""The cache of prepared data: whole or absent, shared, and never needed."""

from pathlib import Path

import pytest

from dnnsuite.data import _origin


class Entry:
    """A value with its `build`, `write` and `read`, counting how often it was built."""

    def __init__(self) -> None:
        self.built = 0

    def build(self) -> str:
        self.built += 1
        return "text"

    @staticmethod
    def write(value: str, folder: Path) -> None:
        (folder / "value").write_text(value)

    @staticmethod
    def read(folder: Path) -> str:
        value = (folder / "value").read_text()
        if not value:
            raise ValueError("empty")
        return value

    def get(self) -> str:
        return _origin.cached("entry", self.build, self.write, self.read)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name not in ("entry", "entry.lock")]


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DNNSUITE_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert _origin.cache_folder() == Path("/home/someone/.cache/dnnsuite")
    monkeypatch.setenv("DNNSUITE_CACHE", "/own")
    assert _origin.cache_folder() == Path("/own")


def test_second_time_is_read(root: Path) -> None:
    entry = Entry()
    assert [entry.get(), entry.get()] == ["text", "text"]
    assert entry.built == 1
    assert leftovers(root) == []


@pytest.mark.parametrize("damage", ["", None])
def test_damaged_entry_is_made_again(root: Path, damage: str | None) -> None:
    entry = Entry()
    entry.get()
    if damage is None:
        (root / "entry" / "value").unlink()
    else:
        (root / "entry" / "value").write_text(damage)
    assert entry.get() == "text"
    assert entry.get() == "text"
    assert entry.built == 2
    assert leftovers(root) == []


def test_cache_that_cannot_be_made_is_done_without(root: Path) -> None:
    root.write_text("a file where the folder would be")
    entry = Entry()
    assert [entry.get(), entry.get()] == ["text", "text"]
    assert entry.built == 2


def test_failure_while_writing_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(value: str, folder: Path) -> None:
        (folder / "value").write_text(value[:1])
        raise OSError(28, "No space left on device")

    entry = Entry()
    monkeypatch.setattr(entry, "write", full)
    assert entry.get() == "text"
    assert entry.built == 1
    assert not (root / "entry").exists()
    assert leftovers(root) == []


def test_error_of_the_builder_is_passed_on(root: Path) -> None:
    def build() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _origin.cached("entry", build, Entry.write, Entry.read)
    assert not (root / "entry").exists()
