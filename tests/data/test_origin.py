# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.data._origin import Origin, root_of
from dnnsuite.errors import InvalidArgument


def test_the_record_has_what_is_known():
    assert Origin("a", "MIT", 3).record() == {"source": "a", "licence": "MIT", "count": 3}
    assert Origin("a", "MIT", 3, "ff").record()["sha256"] == "ff"


def test_a_root_is_looked_in_only_where_files_are_wanted(tmp_path):
    assert root_of("auto", tmp_path) == root_of("real", str(tmp_path)) == tmp_path
    assert root_of("synthetic", tmp_path) is None
    assert root_of("auto", None) is None


def test_what_is_no_folder_or_no_kind_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="nowhere' is not a folder"):
        root_of("auto", tmp_path / "nowhere")
    with pytest.raises(InvalidArgument, match="data 'fake' is not one of auto, real, synthetic"):
        root_of("fake", None)
