# SPDX-License-Identifier: MIT
"""What broken implementations of the jobs of today reach: `python benchmarks/training/broken_jobs.py [JOB ...]`.

Each job trains its whole preset quick with one thing broken: no update, the wrong sign of the loss, or labels that are
shuffled over the samples of a batch. Prints the metric of each as CSV, and the CPU seconds of a training.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import torch

from dnnsuite import jobs
from dnnsuite.suites import SUITES

WAYS = ("untrained", "wrong_sign", "shuffled")
# Tensors of a batch that say what is right, by their places; of the others the last one does.
_LABELS = {"dcnv2": (1,), "detector": (1, 2, 3), "dit": (2, 3), "ppo": (4, 5)}


def shuffled(name: str, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """A batch in which what is right says nothing of the rest."""
    if name == "dpo":  # either answer of a pair may be the preferred one
        good, bad = batch
        swap = torch.rand(len(good), 1) < 0.5
        return torch.where(swap, bad, good), torch.where(swap, good, bad)
    if name == "dino":  # the crops of a row are of as many pictures
        large, small = batch
        return _mixed(large), _mixed(small)
    if name in ("gpt", "lora", "mamba", "moe"):  # the next token is any of the batch
        tokens, following = batch
        return tokens, following.flatten()[torch.randperm(following.numel())].view_as(following)
    labels, order = _LABELS.get(name, (len(batch) - 1,)), torch.randperm(len(batch[-1]))
    return tuple(x[order] if place in labels else x for place, x in enumerate(batch))


def _mixed(crops: torch.Tensor) -> torch.Tensor:
    return torch.stack([crops[torch.randperm(len(crops)), place] for place in range(crops.shape[1])], 1)


def broken(name: str, way: str, data: str = "auto") -> dict[str, Any]:
    """Train a job's preset quick with one thing broken; return the metric and its target, as a report has them."""
    workload = jobs.get(name).workload
    loss = workload.loss
    losses = {
        "wrong_sign": lambda model, *batch: -loss(model, *batch),
        "shuffled": lambda model, *batch: loss(model, *shuffled(name, batch)),
    }
    changed = dataclasses.replace(workload, loss=losses.get(way, loss))
    kind = type(name, (jobs.DeclaredJob,), {"workload": changed, "name": name})
    options = changed.settings("quick")
    steps = options.pop("repeat") * options.pop("number")
    config = jobs.JobConfig(batch_size=options.pop("batch_size"), options=options, steps=steps, data=data)
    job: Any = kind(config)
    job.setup()
    for _ in range(0 if way == "untrained" else steps):
        job.step()
    found = job.quality("quick", job.metrics())
    job.close()
    assert found is not None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="jobs of the suite 2026; all by default")
    torch.set_num_threads(1)
    print("job,train_s," + ",".join(WAYS))
    for name in parser.parse_args().jobs or SUITES["2026"]:
        values = []
        for way in WAYS:
            began = time.process_time()
            values.append(f"{broken(name, way)['value']:.4g}")
        print(f"{name},{time.process_time() - began:.0f},{','.join(values)}", flush=True)


if __name__ == "__main__":
    main()
