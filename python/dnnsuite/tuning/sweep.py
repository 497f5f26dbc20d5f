# SPDX-License-Identifier: MIT
"""`dnnsuite.sweep`: configurations in, a table and the best models out."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._runs.folder import SWEEP_FILE, default_out, opened
from .._runs.identity import Identity, identity_of
from .._runs.interrupts import Interrupted, interruptible
from .._runs.starters import Share, shares_of
from .._torch_threads import threads_of_caller
from ..adapters.texts import Texts
from ..errors import InvalidArgument, did_you_mean
from .algorithms import Algorithm, Grid, Listed, Random, Setting
from .arrays import Arrays, Processes
from .callbacks import Event, Progress
from .devices import Meeting, OnDevices, Place, followed_place, shared_place
from .engine import Engine
from .feeds import Feeds
from .goal import Goal, at_least_1, check_evaluate, check_factory, check_loss, check_whole, checked_part, sign_of
from .recipe import Recipe
from .result import Sweep
from .space import checked_configs, checked_space, is_finite, named
from .store import Asked
from .trainee import Loss, Measure
from .trial import Width

if TYPE_CHECKING:
    from rich.console import Console

MODES = ("hfta", "serial", "concurrent")
_HELD_OUT_BYTES = 2**18  # of a batch
_LEAST_HELD_OUT, _MOST_HELD_OUT = 64, 1024  # samples of a batch
# Arguments that are not those of the processes on devices.
_OF_ONE_PROCESS = {"device", "devices", "threads", "out", "resume", "share", "callbacks", "console", "quiet"}
Callback = Callable[[Event], None]


def sweep(
    make_model: Callable[..., torch.nn.Module],
    space: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    train: Any,
    *,
    base: torch.nn.Module | None = None,
    evaluate: Any = None,
    loss: Loss | None = None,
    measure: Measure | None = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scheduler_every: str | None = None,
    after_step: Callable[[Any], None] | None = None,
    accumulate: int = 1,
    epochs: int = 1,
    metric: str | None = None,
    goal: str | None = None,
    algorithm: Algorithm | None = None,
    trials: int | None = None,
    patience: int | None = None,
    min_delta: float = 0.0,
    batch_size: int | None = None,
    micro_batch: int | None = None,
    keep: int = 1,
    seed: int = 0,
    mode: str = "hfta",
    width: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    devices: str | Sequence[str] | None = None,
    autocast: torch.dtype | None = None,
    out: str | Path | bool | None = None,
    resume: bool = False,
    allow_changed: Sequence[str] = (),
    share: Any = False,
    callbacks: Iterable[Callback] = (),
    console: Console | None = None,
    quiet: bool = False,
) -> Sweep:
    """Train a model for each configuration, many at once in a fused array that is refilled as trials end.

    Trial k is created and trained as in a plain loop: its weights are those of `make_model` after
    `torch.manual_seed(seed + k)`, and epoch e (from 0) reads `train` after `torch.manual_seed(seed + e)`. If a loss
    draws random numbers from Python, NumPy or torch, it draws them after a seed of the trial and the epoch, and such
    trials train one by one. The history is the same in every mode, at every width, and after `resume`; on a CPU bit for
    bit.

    Args:
        make_model: configuration → a plain torch module. Models of different shapes go into separate arrays. For
            `adapters.Texts` it is configuration → a PEFT config, for adapters on the language model `base`: they share
            one array whatever their ranks and places and the configuration's `batch_size`, `max_length` and `epochs`.
        space: ranges by name (`LogUniform(1e-4, 1e-1)`, a list of choices, a fixed value), or a list of configurations.
            A value named like an argument of the optimizer or scheduler (`lr`, `weight_decay`, `beta1`) is passed to
            it, a `batch_size` to the loader, a `seed` to the model; `make_model` gets all of them.
        train: a DataLoader; a Dataset or a tuple of tensors, with `batch_size`; a list with one per trial; a function
            of the configuration that returns one; or `adapters.Texts`.
        base: a module that all models are built on, for example a pretrained one: `make_model(configuration, base)`
            receives it frozen, to add heads or adapters. An array holds it once; each model has its own copy of the
            layers that `make_model` sets to train.
        evaluate: held-out data in any of these forms, or a function of one plain model that returns a number, or
            several by name. Without it trials are compared by `train_loss`.
        loss: (model, *batch) → the loss `[]` of one model. By default a LightningModule's training step, the loss of a
            Hugging Face model for batches that are dicts, else cross-entropy or squared error of (inputs, targets).
        measure: (model, *batch) → numbers by name, means over a batch of `evaluate`. By default `loss` and `acc`.
        optimizer: a name or class (`"SGD"`), (name, arguments for all), or a function `(parameters, config)` that
            returns a torch optimizer, or (function, {"max_grad_norm": 1.0}) to clip. By default a LightningModule's
            own, else AdamW.
        scheduler: a name or class, (name, arguments for all), or a function `(optimizer, config)` that returns any of
            torch's schedules.
        scheduler_every: "epoch" or "batch", after which the schedule advances; by default batch for OneCycleLR and
            CyclicLR, else epoch. ReduceLROnPlateau follows `metric`.
        after_step: function that is called after each step, without gradients, for example to average weights in place.
            It gets the model, or an array of models, whose parameters are `[B, ...]`.
        accumulate: number of equal parts of a batch whose gradients are added up before a step.
        epochs: largest number of epochs of a trial.
        metric: name of the metric that trials are compared by; `loss` by default.
        goal: min or max; for `loss`, `acc` and the like the name of the metric decides, for others it is required.
        algorithm: one of `dnnsuite.tuning`, for example `Hyperband()`; by default a grid of choices, or `trials` random
            ones.
        trials: number of configurations to draw.
        patience: number of epochs without an improvement (by the fraction `min_delta`) after which a trial ends.
        micro_batch: number of sequences per model that are computed at once, for texts; the gradients of a batch add
            up.
        keep: number of best trials whose weights the result contains.
        seed: seed of weights, order of data and draws.
        mode: hfta (arrays), serial (one trial after another) or concurrent (`width` processes on this machine).
        width: number of trials at once; measured by default.
        threads: number of CPU threads of all devices together; torch's number by default.
        device: cpu or cuda.
        devices: several devices of this machine, each with a process that trains some of the trials: `"all"` GPUs,
            `["cuda:0", "cuda:1"]`, or `["cpu", "cpu"]` for two halves of the CPUs. There is one record and one progress
            display. Functions and data are sent to the processes. Needs `dnnsuite[optuna]`, and a directory.
        autocast: half precision to train in, by torch.autocast.
        out: directory for records and the best weights; by default a new one below `dnnsuite-runs`, False for none.
        resume: continue what is in `out`, or in the last directory. Everything that affects results must be the same:
            arguments, data, and code with the functions and values that it uses.
        allow_changed: names of arguments that may differ when a sweep is resumed, for example `["loss"]`; the records
            of trials that continue say so.
        share: True lets every process that makes the same call with the same `out`, on any machine with access to it,
            train some of the trials; each returns the whole sweep. A process may join, leave or die at any time. They
            communicate through a file in `out`, or through a database; give its URL instead of True.
        callbacks: functions that are called with an `Event`, for example `TensorBoard(folder)`.
        console: console to print progress on; standard error by default.
        quiet: print nothing.

    Returns:
        The `Sweep`; `print` shows the best trials.

    Raises:
        InvalidArgument: an argument is refused; the message names it.
        Error: every trial failed; the message has the first reason.

    >>> import torch, dnnsuite
    >>> data = torch.randn(64, 4), torch.randn(64, 1)
    >>> sweep = dnnsuite.sweep(
    ...     lambda config: torch.nn.Linear(4, 1), {"lr": [0.1, 0.01]}, data,
    ...     batch_size=32, epochs=1, out=False, quiet=True,
    ... )
    >>> len(sweep.trials)
    2
    """
    given = {name: value for name, value in locals().items() if name not in _OF_ONE_PROCESS}
    share, told = (share.storage, share.identity) if isinstance(share, Meeting) else (share, None)
    check_factory(make_model)
    check_loss(loss)
    sign = sign_of(metric, goal)
    aim = Goal(metric, sign, at_least_1("patience", patience), checked_part(min_delta), goal is not None)
    chosen, setting = _search(space, algorithm, trials, epochs, seed, aim.sign < 0)
    width, threads = at_least_1("width", width), at_least_1("threads", threads) or threads_of_caller()
    shares = None if devices is None else _shares(devices, device, mode, threads)
    _check_mode(mode, device)
    where = device if shares is None else shares[0].device
    feeds = Feeds(train, batch_size, seed)
    recipe = (
        _recipe_of_texts(given, device, mode, keep > 1 and (share is not False or shares is not None))
        if isinstance(train, Texts)
        else Recipe(
            make_model,
            feeds,
            optimizer,
            scheduler,
            loss,
            measure,
            device,
            autocast,
            scheduler_every,
            base,
            after_step,
            at_least_1("accumulate", accumulate) or 1,
        )
    )
    identity = told or (Identity() if out is False else identity_of(
        {"make_model": make_model, "space": setting.space or setting.configs, "train": train, "evaluate": evaluate,
         "loss": loss, "measure": measure, "optimizer": optimizer, "scheduler": scheduler, "base": base,
         "autocast": autocast, **({} if after_step is None else {"after_step": after_step}), **chosen.code},
        {"algorithm": chosen.describe(), "epochs": str(epochs), "seed": str(seed), "metric": str(metric),
         "goal": str(goal), "patience": f"{patience}, {min_delta}", "batch_size": str(batch_size),
         "scheduler_every": str(scheduler_every), "device": where.partition(":")[0],
         **({} if keep == 1 else {"keep": str(keep)}),
         **({} if micro_batch is None else {"micro_batch": str(micro_batch)}),
         **({} if accumulate == 1 else {"accumulate": str(accumulate)})},
    ))  # fmt: skip
    trainer = (
        _trainer(mode, recipe, _evaluation(evaluate, batch_size), aim, threads, width)
        if shares is None
        else OnDevices(shares, {**given, "share": Meeting(share or True, identity)})
    )
    began_s = time.monotonic()
    place: Place | None = None
    try:
        with (
            interruptible(),
            _place(out, resume, share, chosen, setting, (identity, tuple(allow_changed)), trainer) as place,
            Progress(console, quiet) as progress,
        ):
            chosen.begin(replace(setting, id=place.id, fits=recipe.fits))
            progress.plan = plan = chosen.plan()
            if isinstance(trainer, Arrays):
                trainer.say = progress.say
            if plan is not None:
                recipe.feeds.check_count(plan.trials)
            store = place.store(_named(make_model), mode, where, chosen.keeps_states)
            engine = place.engine(
                algorithm=chosen, trainer=trainer, goal=aim, admit=recipe.admit, store=store,
                check_configs=lambda configs: recipe.refuse_unread(configs, {*recipe.own, "seed", *feeds.read}),
                tell=_teller(progress, callbacks), seed=seed, keep=keep,
                epochs_of=recipe.epochs_of,
            )  # fmt: skip
            _run(engine)
            result = _result(engine, recipe, time.monotonic() - began_s)
            _finish(engine, result, progress)
    except Interrupted as interrupted:  # the frames between tell a user nothing
        raise Interrupted(interrupted.number, _way_on(place)) from None
    return result


def _way_on(place: Place | None) -> str:
    """Say in a sentence how an interrupted sweep is continued."""
    root = None if place is None else place.root
    if root is None:
        return "nothing is kept without a directory: do not pass out=False"
    return f"the trials are kept in {root}; to continue, repeat the call with out={str(root)!r}, resume=True"


def _search(
    space: Any, algorithm: Algorithm | None, trials: int | None, epochs: int, seed: int, maximize: bool
) -> tuple[Algorithm, Setting]:
    """Return (algorithm, what it searches)."""
    check_whole(1, epochs=epochs)
    at_least_1("trials", trials)
    if isinstance(space, str) or not hasattr(space, "__iter__"):
        raise InvalidArgument(
            f"the space is a {type(space).__name__}: give ranges by name, e.g. {{'lr': LogUniform(1e-4, 1e-1)}}, or a "
            "list of configurations"
        )
    if isinstance(space, Mapping):
        ranges = checked_space(space)
        chosen = algorithm or (Grid() if is_finite(ranges) and trials is None else Random(trials or 16))
        setting = Setting(ranges, (), epochs, seed, maximize)
    else:
        configs = checked_configs(space)
        if trials is not None and algorithm is None:
            raise InvalidArgument(
                f"trials={trials} beside a list of {len(configs)} configurations, which are all tried: give fewer, or "
                f"algorithm=Random({trials})"
            )
        chosen = algorithm or Listed()
        setting = Setting({}, configs, epochs, seed, maximize)
    if not isinstance(chosen, Algorithm):
        raise InvalidArgument(
            f"algorithm is {chosen!r}: give an instance of a class of dnnsuite.tuning, for example Hyperband()"
        )
    if trials is not None and algorithm is not None:
        raise InvalidArgument(f"trials={trials} beside an algorithm: give it there: {type(chosen).__name__}(trials)")
    return chosen, setting


def _check_mode(mode: str, device: str) -> None:
    if mode not in MODES:
        raise InvalidArgument(f"mode is {mode!r}{did_you_mean(mode, MODES)}: give one of {', '.join(MODES)}")
    if not device.startswith(("cpu", "cuda")):
        raise InvalidArgument(f"device is {device!r}: give 'cpu' or 'cuda'")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidArgument(f"device is {device!r}, and there is no CUDA device here: give 'cpu'")


def _shares(devices: str | Sequence[str], device: str, mode: str, threads: int) -> list[Share]:
    if device != "cpu":
        raise InvalidArgument(f"device={device!r} together with devices={devices!r}: give one of them")
    shares = shares_of(devices, threads)
    if mode == "concurrent" and shares[0].device != "cpu":
        raise InvalidArgument(f"mode='concurrent' is for CPUs, and devices is {devices!r}: use mode='hfta'")
    return shares


def _evaluation(evaluate: Any, batch_size: int | None) -> Any:
    """Return a function as it is; data as a feed that is read in order."""
    if evaluate is None or (
        callable(evaluate) and not hasattr(evaluate, "__iter__") and not hasattr(evaluate, "__getitem__")
    ):
        return evaluate
    if isinstance(evaluate, Texts):
        return evaluate
    check_evaluate(evaluate)
    size = _held_out_size(evaluate, batch_size)
    return Feeds(evaluate, size, 0, shuffle=False).of(0, {})


def _held_out_size(evaluate: Any, batch_size: int | None) -> int:
    """Samples of a held-out batch: as in training or more, for what keeps no gradients costs little memory."""
    if not isinstance(evaluate, tuple) or not all(isinstance(part, torch.Tensor) for part in evaluate):
        return batch_size or _MOST_HELD_OUT
    sample = sum(part[:1].numel() * part.element_size() for part in evaluate)
    return max(batch_size or _LEAST_HELD_OUT, min(_MOST_HELD_OUT, _HELD_OUT_BYTES // max(1, sample)))


def _recipe_of_texts(given: dict[str, Any], device: str, mode: str, spread: bool) -> Recipe:
    """Recipe of adapters on a language model.

    Raises:
        InvalidArgument: an argument is given that trials on texts do not take.
    """
    from .text_array import TextRecipe

    own = {"loss": None, "measure": None, "autocast": None, "after_step": None, "accumulate": 1}
    unread = [name for name, usual in own.items() if given[name] != usual]
    if unread:
        raise InvalidArgument(f"{unread[0]} is given beside texts, which use the loss of the next token: leave it out")
    if mode == "concurrent" or spread:
        raise InvalidArgument(
            "mode='concurrent', and keep beside devices or share, are not for texts: give mode='hfta' and keep=1"
        )
    names = ("make_model", "train", "base", "optimizer", "scheduler", "scheduler_every", "batch_size", "epochs", "seed")
    recipe = TextRecipe(**{name: given[name] for name in names}, micro=at_least_1("micro_batch", given["micro_batch"]))
    if torch.device(device).type != torch.device(recipe.device).type:
        raise InvalidArgument(f"device is {device!r}, and the base is on {recipe.device}: move it there before")
    return recipe


def _trainer(mode: str, recipe: Recipe, evaluation: Any, aim: Goal, threads: int, width: int | None) -> Any:
    metric = aim.metric or "loss"
    if mode == "concurrent":
        return Processes(recipe, evaluation, metric, threads, width or threads)
    return Arrays(recipe, evaluation, metric, threads, Width(1 if mode == "serial" else width), recipe.kind)


def _named(given: Any) -> str:
    if isinstance(given, tuple):
        return ", ".join(map(_named, given))
    given = given.func if isinstance(given, functools.partial) else given
    return str(getattr(given, "__name__", None) or named(given))


@contextmanager
def _place(
    out: Any, resume: bool, share: Any, algorithm: Algorithm, setting: Setting, asked: Asked, trainer: Any
) -> Iterator[Place]:
    """Open the directory of a sweep, of this process alone or of all that share it."""
    if isinstance(trainer, OnDevices):
        if out is False:
            raise InvalidArgument("the processes of devices meet in a directory, and out is False: name it with out")
        if share is not False and out in (None, True):
            raise InvalidArgument("share needs a directory that all machines see: name it with out")
        root = Path(out) if out not in (None, True) else default_out("sweep", SWEEP_FILE, resume)
        trainer.root = root
        with followed_place(root, resume, share, algorithm, asked, setting.maximize) as place:
            yield place
        return
    if share is not False:
        with shared_place(out, share, algorithm, asked, setting.maximize) as place:
            yield place
        return
    if out is False:
        if resume:
            raise InvalidArgument("resume=True continues what is in a directory, and out is False: name the directory")
        yield Place(None, asked)
        return
    root = Path(out) if out not in (None, True) else default_out("sweep", SWEEP_FILE, resume)
    with opened(root, SWEEP_FILE, resume) as folder:
        place = Place(folder, asked)
        try:
            yield place
        except BaseException as error:
            if place.began:
                folder.end_early(error)
            raise


def _teller(progress: Progress, callbacks: Iterable[Callback]) -> Callable[[Event, Engine], None]:
    listeners = [callbacks] if callable(callbacks) else list(callbacks)

    def tell(event: Event, engine: Engine) -> None:
        progress.tell(event, engine)
        for listener in listeners:
            listener(event)

    return tell


def _run(engine: Engine) -> None:
    """Run a sweep to its end, and close its trainer on every way out."""
    try:
        engine.run()
        engine.require_values()
    finally:
        engine.trainer.close()


def _result(engine: Engine, recipe: Recipe, seconds: float) -> Sweep:
    return Sweep(
        trials=[engine.trials[number] for number in sorted(engine.trials)], metric=engine.metric,
        goal="min" if engine.goal.sign > 0 else "max", best_trial=engine.best.key[1],
        state_dicts={number: weights for number, (_, weights) in engine.best.kept.items()}, seconds=seconds,
        out=engine.store.folder.root if engine.store else None,
        changed=dict(engine.store.changed) if engine.store else {}, resumed=engine.resumed,
        points=engine.trajectory, plan=engine.algorithm.plan(), rebuild=recipe.rebuild,
        covers=list(getattr(engine.trainer, "covers", {}).values()),
    )  # fmt: skip


def _finish(engine: Engine, result: Sweep, progress: Progress) -> None:
    """Write the tables of a sweep that has ended, and tell of it."""
    if engine.store is not None:
        engine.store.end(result.save)
    progress.end(result.describe())
    engine.tell(Event("finished", result.best_trial, dict(result.best_config), 0, {}, "done"), engine)
