# SPDX-License-Identifier: MIT
"""`dnnsuite.advise` and `dnnsuite advise`: measure, predict, and say what to use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument, did_you_mean
from .advice import Advice, Measured, concluded
from .measurement import BS, JobSubject, Measurement, ModelsSubject, measure

if TYPE_CHECKING:
    import torch

_TRIALS, _STEPS = 16, 1000


def advise(
    models: Sequence[torch.nn.Module] | Callable[[], torch.nn.Module],
    batch: Any,
    loss: Callable[..., torch.Tensor],
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    *,
    trials: int = _TRIALS,
    steps: int = _STEPS,
    threads: int | None = None,
) -> Advice:
    """Recommend the fastest way to train many such models on this machine and their number; predict the cost of a
    sweep.

    A few steps of one plain model and of arrays of 1, 2 and 4 models are measured on copies, which takes seconds.

    Args:
        models: plain torch modules of one architecture (one is enough), or a function that makes one.
        batch: a tensor `[N, ...]`, a dict of tensors, or a tuple of such, on the models' device.
        loss: `(model, *batch)` → the loss `[]` of one model.
        optimizer: function that takes the parameters and returns a `torch.optim` optimizer; SGD by default.
        trials: number of models in the sweep.
        steps: training steps of each model of the sweep.
        threads: number of CPU threads; torch's number by default.

    Returns:
        The advice, with rates in steps of a model per second; `print` shows its table and the reason.

    Raises:
        InvalidArgument: `models` are not models, or they cannot be fused; the message gives the reason.
    """
    import torch

    def sgd(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-3)

    _check(trials, steps, threads)
    with _repeatable():
        subject = ModelsSubject(models, batch, loss, optimizer or sgd)
        found = measure(subject, threads or torch.get_num_threads())
    return _concluded(found, trials, steps)


def advise_job(
    job: str, *, trials: int = _TRIALS, steps: int | None = None, threads: int | None = None, **options: Any
) -> Advice:
    """Recommend the fastest way to train many models of a job, as :func:`advise` does for a user's models.

    Args:
        job: a fused job.
        trials: number of models in the sweep.
        steps: training steps of each model; by default those of the job's preset.
        threads: CPU threads; by default all.
        options: `preset`, `device`, `precision`, `batch_size`, `seed`, `data` and `options` of the job.
    """
    from .. import host

    _check(trials, steps, threads)
    subject, own_steps = _subject(job, options)
    with _repeatable():
        found = measure(subject, threads or host.num_threads())
    return _concluded(found, trials, own_steps if steps is None else steps)


def verified(job: str, B: int, threads: int | None = None, **options: Any) -> tuple[Advice, Measured]:
    """Return (advice, the measured step of B models), to check the prediction for a job.

    The larger array takes turns with the small ones, so all see the same machine; the prediction knows only the small.
    """
    from .. import host

    _check(_TRIALS, None, threads)
    subject, steps = _subject(job, options)
    with _repeatable():
        found = measure(subject, threads or host.num_threads(), (*BS, B))
    arrays = {b: found.arrays[b] for b in BS}
    known = replace(found, arrays=arrays)
    return _concluded(known, _TRIALS, steps), found.arrays[B]


def _check(trials: int, steps: int | None, threads: int | None) -> None:
    for name, value in (("trials", trials), ("steps", steps), ("threads", threads)):
        if value is not None and value < 1:
            raise InvalidArgument(f"{name} must be at least 1, got {value}")


def _concluded(found: Measurement, trials: int, steps: int) -> Advice:
    return concluded(
        found.plain, found.arrays, found.alone, found.threads, found.limits, trials, steps, str(found.cores),
        found.unknown,
    )  # fmt: skip


def _subject(job: str, given: Mapping[str, Any]) -> tuple[JobSubject, int]:
    """Return (the job as its preset has it, steps of a run)."""
    from .. import jobs
    from .._runs.words import choose_device

    asked = {name: value for name, value in given.items() if value is not None}
    device = choose_device(asked.pop("device", "auto"))
    kind = jobs.get(job, swept=True)
    preset = kind.preset(asked.pop("preset", "quick"), device)
    offered = kind.precisions(device)
    precision = asked.pop("precision", "fp32")
    if precision not in offered:
        raise InvalidArgument(
            f"unknown precision {precision!r}{did_you_mean(precision, offered)}; job {job} has {', '.join(offered)}"
            f"{'; amp needs a GPU' if precision == 'amp' else ''}"
        )
    config = jobs.JobConfig(
        device=device, precision=precision, batch_size=asked.pop("batch_size", preset.get("batch_size", 32)),
        seed=asked.pop("seed", 1), data=asked.pop("data", "auto"), dataroot=asked.pop("dataroot", None),
        options={**preset.get("options", {}), **asked.pop("options", {})},
    )  # fmt: skip
    if asked:
        raise InvalidArgument(f"advise has no option {next(iter(asked))!r}")
    return JobSubject(job, config), preset["epochs"] * preset["iters_per_epoch"]


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """Context manager: leave torch's random numbers as they were."""
    import torch

    with torch.random.fork_rng(devices=[]):
        yield
