# SPDX-License-Identifier: MIT
"""Validation images are put into class folders: all of them, by any of the lists in use, and nothing is lost."""

from pathlib import Path

import pytest

from dnnsuite.data import valprep
from dnnsuite.errors import InvalidArgument

CLASSES = ["n01440764", "n01443537", "n01440764", "n01484850"]  # of images 1 to 4


def name(number: int) -> str:
    return f"ILSVRC2012_val_{number:08d}.JPEG"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "val"
    made.mkdir()
    for number in range(1, 5):
        (made / name(number)).write_text(str(number))
    return made


def listed(tmp_path: Path, text: str, file: str = "labels.txt") -> Path:
    path = tmp_path / file
    path.write_text(text)
    return path


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


WHOLE = {f"{label}/{name(number)}": str(number) for number, label in enumerate(CLASSES, 1)}

FORMS = {
    "in order": "\n".join(CLASSES),
    "by name": "".join(f"{name(n)} {label}\n" for n, label in reversed(list(enumerate(CLASSES, 1)))),
    "valprep.sh": "#!/bin/bash\nmkdir -p n01440764\n"
    + "".join(f"mv {name(n)} {label}/\n" for n, label in enumerate(CLASSES, 1)),
    "Kaggle's": "ImageId,PredictionString\n"
    + "".join(f"{Path(name(n)).stem},{label} 1 2 3 4 {label} 5 6 7 8 \n" for n, label in enumerate(CLASSES, 1)),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_list_puts_every_image_into_its_class(tmp_path: Path, folder: Path, form: str) -> None:
    labels = valprep.read_labels(listed(tmp_path, FORMS[form]))
    told: list[int] = []
    valprep.carry_out(valprep.plan(folder, labels), told.append)
    assert tree(folder) == WHOLE
    assert told == [1, 2, 3, 4]


def test_numbers_are_named_by_the_synsets(tmp_path: Path, folder: Path) -> None:
    numbers = listed(tmp_path, "2\n3\n2\n1\n")
    synsets = listed(tmp_path, "n01440764 2 tench\nn01443537 3 goldfish\nn01484850 1 shark\n", "map.txt")
    labels = valprep.read_labels(numbers, synsets)
    valprep.carry_out(valprep.plan(folder, labels))
    assert tree(folder) == WHOLE
    with pytest.raises(InvalidArgument, match="numbers: name their synsets with --synsets"):
        valprep.read_labels(numbers)
    with pytest.raises(InvalidArgument, match="line 2: the list of synsets has no number 3"):
        valprep.read_labels(numbers, listed(tmp_path, "a 1\nb 2\n", "map.txt"))


def test_synsets_by_name_are_no_numbering_of_imagenet(tmp_path: Path) -> None:
    names = "\n".join(f"n{number:08d}" for number in range(1000))
    with pytest.raises(InvalidArgument, match="numbers them otherwise"):
        valprep.read_labels(listed(tmp_path, "1"), listed(tmp_path, names, "synsets.txt"))


def test_the_development_kit_numbers_classes(tmp_path: Path, folder: Path) -> None:
    import numpy as np
    from scipy.io import savemat

    kind = [("ILSVRC2012_ID", "i4"), ("WNID", "U9")]
    rows = np.array([(1, "n01484850"), (2, "n01440764"), (3, "n01443537")], dtype=kind)
    savemat(tmp_path / "meta.mat", {"synsets": rows})
    labels = valprep.read_labels(listed(tmp_path, "2 \n3\n2\n1\n"), tmp_path / "meta.mat")
    assert list(labels) == CLASSES


@pytest.mark.parametrize("done", range(5))
def test_it_goes_on_where_it_was_ended(tmp_path: Path, folder: Path, done: int) -> None:
    labels = valprep.read_labels(listed(tmp_path, FORMS["in order"]))

    def end(number: int) -> None:
        if number == done:
            raise KeyboardInterrupt

    if done:
        with pytest.raises(KeyboardInterrupt):
            valprep.carry_out(valprep.plan(folder, labels), end)
        assert not any(path.name.startswith("n0") for path in folder.iterdir())  # no class is half there
        assert len(tree(folder)) == 4
    valprep.carry_out(valprep.plan(folder, labels))
    assert tree(folder) == WHOLE
    again = valprep.plan(folder, labels)
    assert (again.todo, again.done) == ((), 4)


def test_an_end_among_the_last_renames_is_gone_on_from(tmp_path: Path, folder: Path) -> None:
    """As a power cut would leave it: a class in place, the others not, one of them begun by valprep.sh."""
    labels = valprep.read_labels(listed(tmp_path, FORMS["in order"]))
    for number, label in enumerate(CLASSES, 1):
        place = folder / (label if number in (1, 2) else f".tmp-valprep/{label}")
        place.mkdir(parents=True, exist_ok=True)
        (folder / name(number)).rename(place / name(number))
    moves = valprep.plan(folder, labels)
    assert moves.done == 2
    valprep.carry_out(moves)
    assert tree(folder) == WHOLE
    assert not (folder / ".tmp-valprep").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / name(2)).unlink(), "does not have 1 of 4 images that have a label, ILSVRC2012"),
        (lambda folder: (folder / "cat.jpg").touch(), "cat.jpg has no label|has 5 images, and the list 4"),
        (lambda folder: (folder / name(5)).touch(), "00000005 has no label: the list has 4"),
        (
            lambda folder: ((folder / "n01").mkdir(), (folder / name(2)).rename(folder / "n01" / name(2))),
            "lies in n01, and its class is n01443537",
        ),
        (lambda folder: ((folder / CLASSES[1]).mkdir(), (folder / CLASSES[1] / name(2)).touch()), "have one name"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_moved(tmp_path: Path, folder: Path, change, said) -> None:
    change(folder)
    before = tree(folder)
    with pytest.raises(InvalidArgument, match=said):
        valprep.plan(folder, valprep.read_labels(listed(tmp_path, FORMS["in order"])))
    assert tree(folder) == before


def test_a_part_of_the_images_is_accepted_where_that_is_said(tmp_path: Path, folder: Path) -> None:
    (folder / name(2)).unlink()
    moves = valprep.plan(folder, valprep.read_labels(listed(tmp_path, FORMS["in order"])), partial=True)
    assert [(path.name, label) for path, label in moves.todo] == [
        (name(number), CLASSES[number - 1]) for number in (1, 3, 4)
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no labels"),
        ("n01 n02 n03\n", "line 1: 'n01 n02 n03' is neither a class"),
        ("n01\na.jpg n02\n", "line 2"),
        ("a.jpg n01\na.jpg n02\n", "line 2: a has the class n01 above, here n02"),
        ("../x\n", "cannot be the name of a class's folder"),
    ],
)
def test_a_damaged_list_names_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as caught:
        valprep.read_labels(listed(tmp_path, text))
    assert str(tmp_path / "labels.txt") in str(caught.value)


def test_lists_are_found_beside_the_images(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"no list of labels in .*: name one with --labels"):
        valprep.find_labels(folder)
    path = listed(tmp_path, FORMS["Kaggle's"], "LOC_val_solution.csv")
    assert valprep.find_labels(folder) == path
