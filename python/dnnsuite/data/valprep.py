# SPDX-License-Identifier: MIT
"""ImageNet's validation images, which come in one folder, moved into a folder per class."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._files import TEMPORARY, OutputError
from ..errors import InvalidArgument, Unavailable, reason
from . import photographs

# Lists that say the class of each validation image, as their publishers call them.
LABEL_FILES = (
    "imagenet_2012_validation_synset_labels.txt", "LOC_val_solution.csv", "valprep.sh",
    "ILSVRC2012_validation_ground_truth.txt",
)  # fmt: skip
_STAGE = f"{TEMPORARY}valprep"
_NUMBER = re.compile(r"_val_0*(\d+)$")  # in the name ILSVRC2012_val_00000293
_MOVE = re.compile(r"^\s*mv\s+(\S+)\s+(\S+?)/?\s*$")  # a line of valprep.sh
_SYNSET = re.compile(r"n\d{8}")

Labels = Mapping[str, str] | Sequence[str]  # classes by the image's name without extension, or in order


@dataclass(frozen=True)
class Moves:
    """Images to be put into class folders.

    Attributes:
        folder: folder that they lie in, and that gets the class folders.
        todo: (where the image is, its class), in order of names.
        done: number of images that lie in their class's folder already.
    """

    folder: Path
    todo: tuple[tuple[Path, str], ...]
    done: int

    @property
    def classes(self) -> int:
        """Number of classes to which an image is moved."""
        return len({label for _, label in self.todo})


def find_labels(folder: Path) -> Path:
    """Return the list of labels in `folder` or the one above it.

    Raises:
        InvalidArgument: there is none; the message names what was looked for.
    """
    for place in (folder, folder.parent):
        for name in LABEL_FILES:
            if (place / name).is_file():
                return place / name
    raise InvalidArgument(
        f"no list of labels in {folder} or {folder.parent}: name one with --labels, or put there one of "
        f"{', '.join(LABEL_FILES)}"
    )


def read_labels(path: Path, synsets: Path | None = None) -> Labels:
    """Classes of the validation images, by name where the list says names, else in order.

    Args:
        path: a line per image: a class; or a name and a class; or `mv NAME CLASS/`, as in valprep.sh; or a number from
            1 on, as in ILSVRC2012_validation_ground_truth.txt; or the CSV file of the competition at Kaggle.
        synsets: names the classes that are numbers: the development kit's meta.mat, or lines `CLASS NUMBER ...`, or a
            line per class in the order of their numbers.

    Raises:
        InvalidArgument: a file cannot be read, or a line in it is none of these; the message names both.
    """
    named, ordered = _rows(path)
    if named:
        return named
    if all(label.isdigit() for label in ordered):
        if synsets is None:
            raise InvalidArgument(
                f"{path} gives classes as numbers: name their synsets with --synsets meta.mat or map_clsloc.txt"
            )
        return _by_number(path, [int(label) for label in ordered], _numbered(synsets))
    return ordered


def _rows(path: Path) -> tuple[dict[str, str], list[str]]:
    """Read (classes by name, classes in order), one of which is empty."""
    named: dict[str, str] = {}
    ordered: list[str] = []
    for number, line in enumerate(_lines(path), 1):
        words = _words(line)
        if not words:
            continue
        if len(words) > 2 or (named if len(words) == 1 else ordered):
            raise InvalidArgument(f"{path} line {number}: {line.strip()[:60]!r} is neither a class nor name and class")
        if len(words) == 1:
            ordered.append(words[0])
            continue
        name = Path(words[0]).stem
        if named.setdefault(name, words[1]) != words[1]:
            raise InvalidArgument(f"{path} line {number}: {name} has the class {named[name]} above, here {words[1]}")
    for label in {*named.values(), *ordered}:
        if label in (".", "..") or "/" in label or label.startswith(TEMPORARY):
            raise InvalidArgument(f"{path}: {label!r} cannot be the name of a class's folder")
    if not named and not ordered:
        raise InvalidArgument(f"{path} holds no labels")
    return named, ordered


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error


def _words(line: str) -> list[str]:
    """Parse a line: a class, or a name and a class; empty for a comment, a heading or another shell command."""
    if found := _MOVE.match(line):
        return [*found.groups()]
    text = line.strip()
    if not text or text.startswith(("#", "wget", "mkdir", "ImageId,")):
        return []
    if "," in text:  # Kaggle's: NAME,CLASS x y x y CLASS x y x y, with a box per object of the one class
        name, *rest = next(csv.reader([text]))
        return [name, *" ".join(rest).split()[:1]]
    return text.split()


def _numbered(path: Path) -> dict[int, str]:
    """Classes by their number in ILSVRC2012."""
    if path.suffix == ".mat":
        return _meta(path)
    lines = [line.split() for line in _lines(path) if line.strip()]
    if all(len(words) > 1 and words[1].isdigit() for words in lines):
        return {int(words[1]): words[0] for words in lines}
    names = [words[0] for words in lines]
    if len(names) == 1000 and all(map(_SYNSET.fullmatch, names)) and names == sorted(names):
        raise InvalidArgument(
            f"{path} lists the synsets by name, and ILSVRC2012 numbers them otherwise: give meta.mat or map_clsloc.txt"
        )
    return dict(enumerate(names, 1))


def _meta(path: Path) -> dict[int, str]:
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise Unavailable("SciPy, which reads meta.mat", "this Python", "pip install scipy") from error
    try:
        rows = loadmat(str(path), squeeze_me=True)["synsets"]
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidArgument(f"{path} is not a meta.mat of ILSVRC2012's development kit: {error}") from error


def _by_number(path: Path, numbers: Sequence[int], synsets: Mapping[int, str]) -> list[str]:
    for line, number in enumerate(numbers, 1):
        if number not in synsets:
            raise InvalidArgument(f"{path} line {line}: the list of synsets has no number {number}")
    return [synsets[number] for number in numbers]


def plan(folder: Path, labels: Labels, partial: bool = False) -> Moves:
    """Plan the moves of a folder's images into class folders; nothing is changed.

    Args:
        folder: folder with the images, or some of them in their class folders already.
        labels: result of :func:`read_labels`.
        partial: accept that images are missing of which the list has a label.

    Raises:
        InvalidArgument: an image has no label or lies in another class's folder, or one is there twice or missing.
    """
    if not folder.is_dir():
        raise InvalidArgument(f"{folder} is not a folder")
    images = _images(folder)
    known = _by_name(folder, labels, sorted(images), partial)
    missing = [name for name in known if name not in images]
    if missing and not partial:
        raise InvalidArgument(
            f"{folder} does not have {len(missing)} of {len(known)} images that have a label, {missing[0]} first: "
            "complete it, or accept that with --partial"
        )
    todo, done = [], 0
    for name, path in sorted(images.items()):
        if name not in known:
            raise InvalidArgument(f"{path} has no label in the list")
        place = path.parent.relative_to(folder).parts
        if place == (known[name],):
            done += 1
        elif place and place != (_STAGE, known[name]):
            raise InvalidArgument(f"{path} lies in {place[-1]}, and its class is {known[name]}")
        else:
            todo.append((path, known[name]))
    return Moves(folder, tuple(todo), done)


def _images(folder: Path) -> dict[str, Path]:
    """Images by name without extension: in the folder, in class folders, and where an earlier run left them."""
    places = [folder, *(path for path in sorted(folder.iterdir()) if path.is_dir() and path.name != _STAGE)]
    if (folder / _STAGE).is_dir():
        places += sorted((folder / _STAGE).iterdir())
    found: dict[str, Path] = {}
    for path in (image for place in places for image in photographs.files(place)):
        if (other := found.setdefault(path.stem, path)) != path:
            raise InvalidArgument(f"{other} and {path} have one name: keep one of them")
    if not found:
        raise InvalidArgument(f"{folder} has no images ({', '.join(photographs.EXTENSIONS)})")
    return found


def _by_name(folder: Path, labels: Labels, names: Sequence[str], partial: bool) -> Mapping[str, str]:
    """Labels in order belong to the images by their number, else by the order of their names."""
    if isinstance(labels, Mapping):
        return labels
    numbers = [found and int(found[1]) for found in map(_NUMBER.search, names)]
    if None not in numbers:
        last = len(labels)
        if wrong := [name for name, number in zip(names, numbers, strict=True) if not 1 <= (number or 0) <= last]:
            raise InvalidArgument(f"{folder} / {wrong[0]} has no label: the list has {last}")
        form = re.sub(r"\d+$", "", names[0])
        digits = len(names[0]) - len(form)
        return {f"{form}{number:0{digits}d}": label for number, label in enumerate(labels, 1)}
    if len(names) != len(labels):
        why = "; --partial needs images called ..._val_NUMBER, or a list with names" if partial else ""
        raise InvalidArgument(f"{folder} has {len(names)} images, and the list {len(labels)} labels{why}")
    return dict(zip(names, labels, strict=True))


def carry_out(moves: Moves, tell: Callable[[int], None] = lambda done: None) -> None:
    """Move the images by renaming, which copies and deletes nothing.

    They are gathered in a hidden folder, and the class folders appear at the end. After an early end, plan and carry
    out again: it continues.

    Args:
        tell: function that is called with the number of images gathered so far.

    Raises:
        OutputError: one cannot be moved; the message names it.
    """
    stage = moves.folder / _STAGE
    for number, (path, label) in enumerate(moves.todo, 1):
        if path.parent != stage / label:
            _rename(path, stage / label / path.name)
        tell(number)
    if not stage.is_dir():
        return
    for gathered in sorted(stage.iterdir()):
        final = moves.folder / gathered.name
        if final.exists():
            for path in sorted(gathered.iterdir()):
                _rename(path, final / path.name)
            gathered.rmdir()
        else:
            _rename(gathered, final)
    stage.rmdir()


def _rename(path: Path, final: Path) -> None:
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.exists():
            raise FileExistsError("it is there already")
        os.rename(path, final)
    except OSError as error:
        raise OutputError(f"cannot move {path} to {final}: {reason(error)}; run it again to continue") from error
