# SPDX-License-Identifier: MIT
"""TBD's ResNet-50 as a workload: through its loader where there are images, from memory where there are none."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dnnsuite import jobs
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs.imagenet import images

SMALL = {"width": 2, "image_size": 64, "num_data_workers": 0}


def job(**changes: Any) -> Any:
    kind = jobs.get("imagenet-resnet50")
    made = kind(jobs.JobConfig(**{"batch_size": 2, "options": SMALL, **changes}))
    made.setup()
    return made


def test_without_images_it_trains_on_noise_and_says_so() -> None:
    with closing(job(options={**SMALL, "width": 8, "enable_nhwc": True})) as made:
        images, labels = made.batch(0)
        assert (images.shape, labels.shape) == ((2, 3, 64, 64), (2,))
        assert images.stride(1) == 1
        made.step()
        before = made.losses()
        made.step()
        assert made.losses() != before
        assert "uniform noise" in made.provenance()["data"]["source"]
        assert 0 <= made.metrics()["accuracy"] <= 1


def test_images_come_through_the_loader(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (70, 70)).save(tmp_path / part / name / "x.jpg")
    with closing(job(batch_size=3, dataroot=str(tmp_path), precision="bf16")) as made:
        made.step()  # more than there are images: they come again
        assert made.batch(1)[0].shape == (3, 3, 64, 64)
        assert made.provenance()["data"]["classes"] == 2
    asked = jobs.JobConfig(batch_size=2, dataroot=str(tmp_path), data="synthetic")
    assert images(asked, made.options).record["source"].startswith("synthetic")


def test_an_array_is_equal_to_models_alone() -> None:
    kind = jobs.get("imagenet-resnet50", swept=True)
    config = jobs.JobConfig(B=2, batch_size=2, precision="fp64", options=SMALL, hyper={"lr": [0.01, 0.02]})
    assert kind.check_equality(config, steps=2)["passed"]


def test_the_whole_model_has_as_many_parameters_as_the_original() -> None:
    with closing(job(batch_size=1, options={"image_size": 64})) as made:
        assert made.provenance()["parameters_per_model"] == 25_557_032


def test_what_it_does_not_take() -> None:
    with pytest.raises(InvalidArgument, match="has no option 'widht'"):
        job(options={"widht": 2})
