# SPDX-License-Identifier: MIT
"""Optuna's samplers, pruners and storages over arrays, by its ask-and-tell interface."""

from __future__ import annotations

import json
import math
from typing import Any

from ...errors import InvalidArgument, Unavailable
from ..space import Choice, Int, LogUniform, Range, named
from .base import Algorithm, Decision, Order, Setting

__all__ = ["OptunaSearch"]

_MARK = "dnnsuite_trial"


class OptunaSearch(Algorithm):
    """Trials of an Optuna study, `parallel` of them side by side.

    Each epoch's value is reported to the study's pruner, which may end the trial; the last value is its result. A study
    whose storage has trials already takes them into account, and several processes may share one.

    Args:
        study: study from `optuna.create_study`; its direction has to be the sweep's goal.
        trials: number of trials that this sweep adds.
        parallel: number of trials at once. The history depends on it, and not on the machine.

    Raises:
        Unavailable: Optuna is not installed.
        InvalidArgument: `study` is none, or has several objectives.
    """

    def __init__(self, study: Any, trials: int = 16, parallel: int = 8) -> None:
        try:
            import optuna
        except ImportError:
            raise Unavailable("Optuna is not installed", remedy="pip install 'dnnsuite[optuna]'") from None
        if not isinstance(study, optuna.study.Study):
            raise InvalidArgument(
                f"OptunaSearch takes a study, got a {type(study).__name__}: optuna.create_study()"
            )
        if len(study.directions) != 1:
            raise InvalidArgument(f"a sweep has one metric, the study {len(study.directions)} objectives")
        for name, value in (("trials", trials), ("parallel", parallel)):
            if not isinstance(value, int) or value < 1:
                raise InvalidArgument(f"{name} is a whole number, 1 or more; got {value!r}")
        self._study, self.trials, self.parallel = study, trials, parallel
        self._optuna = optuna

    def begin(self, setting: Setting) -> None:
        if setting.configs:
            raise InvalidArgument(
                "OptunaSearch draws from a space: give ranges, not a list of configurations"
            )
        maximize = self._study.direction == self._optuna.study.StudyDirection.MAXIMIZE
        if maximize != setting.maximize:
            wanted = "max" if maximize else "min"
            raise InvalidArgument(
                f"the study's direction is {self._study.direction.name}: give goal={wanted!r}"
            )
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
        marks = {trial.user_attrs.get(_MARK): trial for trial in self._study.get_trials(deepcopy=False)}
        return {n: marks[mark] for n in range(self.trials) if (mark := f"{self._id}/{n}") in marks}

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
            trial = self._study.ask(self._ranges)
            trial.set_user_attr(_MARK, f"{self._id}/{number}")
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
        asked.report(self._sign * value, epoch)
        if asked.should_prune():  # after the last epoch, too, as in Optuna's own loop
            self._tell(asked, state=self._optuna.trial.TrialState.PRUNED)
            return Decision.PRUNED
        if epoch >= self._epochs:
            self._tell(asked, self._sign * value)
            return Decision.DONE
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


def _texts(value: Range) -> dict[str, Any]:
    """Texts by which a study knows values that no storage can keep, as functions; none are needed for others."""
    if not isinstance(value, Choice):
        return {}
    try:
        json.dumps(value.values)
    except (TypeError, ValueError):
        texts = [named(one) for one in value.values]
        return {
            text if texts.count(text) == 1 else f"{text} {place}": one
            for place, (text, one) in enumerate(zip(texts, value.values, strict=True))
        }
    return {}
