# SPDX-License-Identifier: MIT
import re
from pathlib import Path

import pytest

from dnnsuite import jobs
from dnnsuite.data import import_torchvision
from dnnsuite.data.catalogue import DATA_SETS, data_set
from dnnsuite.errors import InvalidArgument


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_set_says_everything(name: str, tmp_path: Path) -> None:
    data = DATA_SETS[name]
    assert all([data.title, data.folder, data.layout, data.size, data.licence, data.page, data.jobs, data.without])
    assert all(re.fullmatch("[0-9a-f]{32}|", archive.md5) for archive in data.archives)
    assert all(bool(archive.md5) == bool(archive.stated_by) for archive in data.archives)
    assert {job for job in data.jobs if " " not in job} <= set(jobs.names())
    assert data.find(tmp_path) is None


def test_a_typo_gets_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="no data set 'imagnet' \\(did you mean 'imagenet'"):
        data_set("imagnet")


def test_what_nobody_publishes_a_hash_of_is_unverified() -> None:
    checked = {name: data.checked for name, data in DATA_SETS.items()}
    assert {name for name, by in checked.items() if by == "unverified"} == {"bsds500", "shapenet"}
    assert checked["wmt16"] == "-"
    assert DATA_SETS["bsds500"].archives[0].hash_text.startswith("unverified")


def test_hashes_are_those_that_libraries_check_by() -> None:
    """torchvision's own table, not ours: a digit that was mistyped here would refuse the true file."""
    datasets = import_torchvision().datasets
    known = {url.rpartition("/")[2]: md5 for url, md5 in datasets.MNIST.resources}
    known |= dict(datasets.imagenet.ARCHIVE_META[part] for part in ("train", "val"))
    ours = {archive.name: archive.md5 for name in ("mnist", "imagenet") for archive in DATA_SETS[name].archives}
    assert ours == known
