# SPDX-License-Identifier: MIT
import multiprocessing

import pytest
import torch

from dnnsuite import jobs
from dnnsuite._files import cache_folder
from dnnsuite.data import photographs
from dnnsuite.errors import InvalidArgument
from job_runs import losses, make


@pytest.fixture
def job():
    job = make("loader", batch_size=3, workers=1, images=8)
    yield job
    job.close()


def test_batches_come_from_running_workers_over_epochs(job):
    assert multiprocessing.active_children()
    assert losses(job, 6) == []  # more than two epochs, and nothing that could be a loss
    images, classes = job.batch()
    assert images.shape == (3, 3, 224, 224)
    assert classes.shape == (3,)
    assert images.min() < 0 < images.max()
    assert job.data_wait_ns > 0


def test_the_workers_end_with_the_job(job):
    workers = multiprocessing.active_children()
    job.close()
    job.close()
    assert not any(worker.is_alive() for worker in workers)


def test_copies_with_other_seeds_share_their_files(tmp_path, monkeypatch):
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path))
    made = [make("loader", seed=seed, data_seed=seed, workers=0, images=9) for seed in (100, 200)]
    assert made[0].provenance() == made[1].provenance()
    assert len(list(cache_folder().glob("jpeg-*/class-0/000008.jpg"))) == 1  # of nine images, the last


def test_same_seed_same_images():
    runs = []
    for seed in (1, 1, 2):
        job = make("loader", seed=seed, workers=1, images=8)
        runs.append(job.batch()[0])
        job.close()
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_the_units_and_the_record(job):
    assert job.items_per_step == 3
    assert job.provenance()["data"]["count"] == 8
    assert job.provenance()["data"]["source"].startswith("synthetic: JPEG files 500 x 375")


def test_the_images_of_a_user(tmp_path):
    folder, _ = photographs.jpeg_folder(8)
    (tmp_path / "ImageNet").mkdir()
    (tmp_path / "ImageNet/train").symlink_to(folder)
    job = make("loader", dataroot=str(tmp_path), data="real", workers=0)
    assert job.provenance()["data"]["source"].endswith("ImageNet/train: JPEG files in 8 classes")
    job.close()


def test_bad_workers():
    with pytest.raises(InvalidArgument, match="workers -1 is negative"):
        jobs.get("loader")(jobs.JobConfig(options={"workers": -1}))
