# SPDX-License-Identifier: MIT
"""Optuna's samplers, pruners and storages over arrays, by its ask-and-tell interface.

A sampler's random numbers and the decisions on a trial that is under way are no part of what Optuna stores. Both are
noted with each trial, so that a search that is resumed draws and decides as if nothing had ended it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import InvalidArgument, Unavailable
from ..goal import check_whole
from ..space import Choice, Int, LogUniform, Range, named
from .base import Algorithm, Decision, Order, Setting

_MARK = "dnnsuite_trial"  # attribute: place in the sweep, then the states of the sampler's generators after it
_WENT_ON = "dnnsuite_epoch"  # attribute: the last epoch after which it was decided to go on


class OptunaSearch(Algorithm):
    """Search with an Optuna study, with `parallel` trials at the same time.

    The value of each epoch is reported to the study's pruner, which may end the trial; the last value is the result. If
    the study's storage already contains trials, they are taken into account, and several processes may share one.

    Args:
        study: a study from `optuna.create_study`; its direction must be the goal of the sweep.
        trials: number of trials that this sweep adds.
        parallel: number of trials at once. The history depends on it, but not on the machine.

    Raises:
        Unavailable: Optuna is not installed.
        InvalidArgument: `study` is not an Optuna study, or has several objectives.
    """

    def __init__(self, study: Any, trials: int = 16, parallel: int = 8) -> None:
        try:
            import optuna
        except ImportError:
            raise Unavailable("Optuna is not installed", remedy="pip install 'dnnsuite[optuna]'") from None
        if not isinstance(study, optuna.study.Study):
            raise InvalidArgument(f"OptunaSearch takes a study, got a {type(study).__name__}: optuna.create_study()")
        if len(study.directions) != 1:
            raise InvalidArgument(f"a sweep has one metric, the study {len(study.directions)} objectives")
        check_whole(1, trials=trials, parallel=parallel)
        self._study, self.trials, self.parallel = study, trials, parallel
        self._optuna = optuna

    def describe(self) -> str:
        """Return one line that distinguishes this search from others."""
        kinds = [f"{name}={type(getattr(self._study, name)).__name__}" for name in ("sampler", "pruner")]
        return f"{super().describe()[:-1]}, {', '.join(kinds)})"

    def begin(self, setting: Setting) -> None:
        if setting.configs:
            raise InvalidArgument("OptunaSearch draws from a space: give ranges, not a list of configurations")
        maximize = self._study.direction == self._optuna.study.StudyDirection.MAXIMIZE
        if maximize != setting.maximize:
            wanted = "max" if maximize else "min"
            raise InvalidArgument(f"the study's direction is {self._study.direction.name}: give goal={wanted!r}")
        self._sign = -1.0 if maximize else 1.0
        self._epochs = setting.epochs
        self._named = {name: texts for name, value in setting.space.items() if (texts := _texts(value))}
        self._ranges = {name: self._distribution(name, value) for name, value in setting.space.items()}
        self._asked: list[Any] = []
        self._stopped = False
        self._id = setting.id
        self._before = self._trials_of_before() if setting.id else {}

    def _trials_of_before(self) -> dict[int, Any]:
        """Trials that this sweep has asked the storage for before it was resumed."""
        marks = {mark_of(trial): trial for trial in self._study.get_trials(deepcopy=False)}
        return {n: marks[mark] for n in range(self.trials) if (mark := f"{self._id}/{n}") in marks}

    def _ask(self, number: int) -> Any:
        """Ask for a new trial; the first one of a resumed search is drawn as the trial before left the generators."""
        last = self._before.pop(number - 1, None)
        if last is not None:
            put_generators(self._study.sampler, last.user_attrs[_MARK][1:])
        trial = self._study.ask(self._ranges)
        trial.set_user_attr(_MARK, [f"{self._id}/{number}", *generators(self._study.sampler)])
        return trial

    def _distribution(self, name: str, value: Range) -> Any:
        kinds = self._optuna.distributions
        if isinstance(value, Choice):
            return kinds.CategoricalDistribution(tuple(self._named.get(name, value.values)))
        if isinstance(value, Int):
            return kinds.IntDistribution(value.low, value.high)
        return kinds.FloatDistribution(value.low, value.high, log=isinstance(value, LogUniform))

    def next(self) -> Order | None:
        if self._stopped or len(self._asked) >= self.trials:
            return None
        number = len(self._asked)
        before = self._before.get(number)
        if before is None:
            trial = self._ask(number)
        elif before.state.is_finished():
            trial = before
        else:
            # Optuna has no public way to go on with a trial that another process has begun.
            trial = self._optuna.trial.Trial(self._study, vars(before)["_trial_id"])
        self._asked.append(trial)
        texts = self._named
        config = {name: texts[name][v] if name in texts else v for name, v in trial.params.items()}
        return Order(number, config)

    def report(self, trial: int, epoch: int, value: float) -> Decision:
        asked = self._asked[trial]
        if isinstance(asked, self._optuna.trial.FrozenTrial):
            return self._decided(asked, epoch)
        if epoch <= asked.user_attrs.get(_WENT_ON, 0):  # decided before the sweep was resumed
            return Decision.GO
        asked.report(self._sign * value, epoch)
        if asked.should_prune():  # after the last epoch, too, as in Optuna's own loop
            self._tell(asked, state=self._optuna.trial.TrialState.PRUNED)
            return Decision.PRUNED
        if epoch >= self._epochs:
            self._tell(asked, self._sign * value)
            return Decision.DONE
        asked.set_user_attr(_WENT_ON, epoch)
        return Decision.GO

    def _tell(self, asked: Any, value: float | None = None, state: Any = None) -> None:
        """Tell the study. A sampler that stops it then, as GridSampler after its last point, ends the search."""
        try:
            self._study.tell(asked, value, state)
        except RuntimeError as error:
            if "Study.stop" not in str(error):
                raise
            self._stopped = True

    def _decided(self, trial: Any, epoch: int) -> Decision:
        """Decisions made before the sweep was resumed."""
        if epoch < (trial.last_step or self._epochs):
            return Decision.GO
        pruned = trial.state == self._optuna.trial.TrialState.PRUNED
        return Decision.PRUNED if pruned else Decision.DONE if epoch >= self._epochs else Decision.GO

    def ended(self, trial: int, value: float | None) -> None:
        asked = self._asked[trial]
        if isinstance(asked, self._optuna.trial.FrozenTrial):
            return
        if value is None or math.isinf(value):
            self._tell(asked, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._tell(asked, self._sign * value)


def mark_of(trial: Any) -> str | None:
    """Return the place of a trial in a sweep of ours; None for others."""
    mark = trial.user_attrs.get(_MARK)
    return mark[0] if isinstance(mark, list) else None


def _held_generators(held: Any, depth: int = 4) -> Iterator[np.random.RandomState]:
    """Generators that a sampler, and the samplers in it, draw from."""
    for _, value in sorted(getattr(held, "__dict__", {}).items()):
        if isinstance(value, np.random.RandomState):
            yield value
        elif type(value).__name__ == "LazyRandomState":
            yield value.rng
        elif depth and type(value).__module__.startswith("optuna.samplers"):
            yield from _held_generators(value, depth - 1)


def generators(sampler: Any) -> list[list[Any]]:
    """States of a sampler's generators, as a storage keeps them."""
    found = []
    for generator in _held_generators(sampler):
        _, keys, *rest = generator.get_state(legacy=True)
        found.append([base64.b64encode(np.asarray(keys, "<u4").tobytes()).decode(), *rest])
    return found


def put_generators(sampler: Any, states: Sequence[Sequence[Any]]) -> None:
    """Put back what :func:`generators` took; nothing where the sampler is another one."""
    held = list(_held_generators(sampler))
    if len(held) == len(states):
        for generator, (keys, *rest) in zip(held, states, strict=True):
            generator.set_state(("MT19937", np.frombuffer(base64.b64decode(keys), "<u4"), *rest))


def _texts(value: Range) -> dict[str, Any]:
    """Texts by which a study knows values that a storage cannot keep, or gives back as others: functions, tuples,
    infinity; none are needed for numbers and texts."""
    if not isinstance(value, Choice) or all(map(_is_kept, value.values)):
        return {}
    texts = [named(one) for one in value.values]
    return {
        text if texts.count(text) == 1 else f"{text} {place}": one
        for place, (text, one) in enumerate(zip(texts, value.values, strict=True))
    }


def _is_kept(value: Any) -> bool:
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
