# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.data._origin import FAKE_FILE, Origin, named, root_of
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


def test_a_set_that_was_made_to_try_a_reader_is_named_so(tmp_path):
    place = tmp_path / "COCO/images/train"
    place.mkdir(parents=True)
    assert named("COCO", place) == "COCO"
    (tmp_path / "COCO" / FAKE_FILE).write_text("noise")
    assert named("COCO", place) == "fake: COCO"
    assert named("MNIST", tmp_path / "mnist") == "MNIST"
