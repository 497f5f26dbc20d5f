# SPDX-License-Identifier: MIT
"""TBD's ResNet-50 as a job: through its loader where there are images, from memory where there are none."""

from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from dnnsuite.training.workload import ImageNetResNet50

SMALL = {"width": 2, "image_size": 64, "num_data_workers": 0}


def job(**changes: object) -> ImageNetResNet50:
    return ImageNetResNet50(jobs.JobConfig(**{"batch_size": 2, "options": SMALL, **changes}))


def test_it_is_found_by_its_name() -> None:
    assert jobs.get("imagenet-resnet50") is ImageNetResNet50


def test_without_images_it_trains_on_noise_and_says_so() -> None:
    with closing(job()) as made:
        made.setup()
        images, labels = made.batch()
        assert (images.shape, labels.shape) == ((2, 3, 64, 64), (2,))
        made.step()
        before = made.losses()
        made.step()
        assert made.losses() != before
        assert "uniform noise" in made.provenance()["data"]["source"]


def test_images_come_through_the_loader(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (70, 70)).save(tmp_path / part / name / "x.jpg")
    with closing(job(batch_size=3, dataroot=str(tmp_path), precision="bf16")) as made:
        made.setup()
        made.step()  # more than there are images: they come again
        assert made.batch()[0].shape == (3, 3, 64, 64)
        source = made.provenance()["data"]["source"]
        assert "2 classes" in source


def test_synthetic_data_are_taken_where_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (70, 70)).save(tmp_path / "a" / "x.jpg")
    with closing(job(data="synthetic", dataroot=str(tmp_path))) as made:
        made.setup()
        assert made.provenance()["data"]["source"].startswith("synthetic")


def test_the_whole_model_has_as_many_parameters_as_the_original() -> None:
    with closing(job(batch_size=1, options={"image_size": 64})) as made:
        made.setup()
        assert made.provenance()["model"]["parameters"] == 25_557_032


def test_what_it_does_not_take() -> None:
    with pytest.raises(InvalidArgument, match="trains one plain model"):
        job(B=2)
    with pytest.raises(InvalidArgument, match="unknown key 'widht'"):
        job(options={"widht": 2})
