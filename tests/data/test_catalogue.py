# SPDX-License-Identifier: MIT
import re
from pathlib import Path

import pytest

from dnnsuite import jobs
from dnnsuite.data.catalogue import DATA_SETS, data_set
from dnnsuite.errors import InvalidArgument


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_set_says_everything(name: str, tmp_path: Path) -> None:
    data = DATA_SETS[name]
    assert all(
        [data.title, data.folder, data.layout, data.size, data.licence, data.page, data.jobs, data.without]
    )
    assert all(re.fullmatch("[0-9a-f]{32}|", archive.md5) for archive in data.archives)
    assert {job for job in data.jobs if " " not in job} <= set(jobs.names())
    assert data.find(tmp_path) is None


def test_a_typo_gets_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="no data set 'imagnet' \\(did you mean 'imagenet'"):
        data_set("imagnet")
