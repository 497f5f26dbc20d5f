# SPDX-License-Identifier: MIT
"""A sweep that several processes do together, each with the same algorithm and a part of the training.

Every process plays the whole search and hears the same values in the same rounds, so all take the same decisions; which
of them trains a trial makes no difference, as the state after a rung is on disk. Only claims and metrics are exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from .._runs.folder import joined
from ..errors import Error
from .algorithms import Order
from .board import Board
from .callbacks import FailedElsewhere, reason_of
from .engine import Engine
from .goal import Best, Key
from .slots import load_state
from .store import BEST_FILE, Store
from .trial import Trial

_AHEAD = 32  # trials for each process that may wait
_MADE = 64  # trials whose models every process makes as they begin; of later ones, those that it may train
CLAIMED_S = 4.0  # of work that a process claims at once
TOGETHER_S = 2.0  # that results may wait to be written together, if the process has more to train


class SharedStore(Store):
    """The directory of a sweep, which several processes write in turn."""

    def end(self, save: Callable[[Path], None]) -> None:
        """Write the tables of the sweep, which are the same for all processes: the first one does."""
        with joined(self.folder.root, self.folder.file) as folder:
            if folder.state.get("status") != "done":
                super().end(save)

    def last_state(self, trial: int, epoch: int) -> tuple[int, Any]:
        """Return (epochs, state) after the last rung of a trial that is on disk, up to `epoch`; (0, None) without
        one."""
        if not epoch:
            return 0, None
        with joined(self.folder.root, self.folder.file):
            found = [each for each in self.states_of(trial).items() if each[0] <= epoch]
            epochs, path = max(found, default=(0, None))
            return epochs, None if path is None else load_state(path)

    def settle(self, trials: Sequence[Trial], metric: str, sign: float, key: Key) -> dict[str, Any] | None:
        """Return the best weights of all processes, None if those of this key are lost. The first process to come
        writes the rest, which no process has claimed: ends of paused trials, the best weights of all."""
        with joined(self.folder.root, self.folder.file) as folder:
            best = self.load_best()
            if best is None or tuple(best["key"]) != key:
                return None
            if folder.state.get("settled"):
                return best
            kept = self.kept()
            left = [each for each in trials if each.number not in kept or kept[each.number].status != each.status]
            for trial in left:
                self.save_state(trial, None)
            self.save(left, metric, sign)
            self.save_best(best, BEST_FILE)
            for path in self.folder.root.glob("best-*.pt"):
                path.unlink(missing_ok=True)
            folder.state["settled"] = True
            folder.save()
            return best


@dataclass
class SharedEngine(Engine):
    """Engine that runs a sweep to its end together with other processes.

    Attributes:
        board: board on which the processes publish claims and metrics.
    """

    board: Board | None = None

    @property
    def _shared(self) -> Board:
        assert self.board is not None
        return self.board

    def run(self) -> None:
        """Train, and hear of what others train, until the algorithm orders nothing more.

        Raises:
            Error: the best weights are missing in the directory.
        """
        self._look: set[int] = set()  # trials of which others have told, or an earlier process
        self._broken: dict[int, Exception] = {}  # errors of models that cannot be made
        self._released = 0
        super().run()
        self._shared.flush()
        assert isinstance(self.store, SharedStore)
        ranked = [(trial.best[0], trial.number, trial.best[1]) for trial in self.trials.values() if trial.best[1]]
        if not ranked:
            return
        trials = [self.trials[number] for number in sorted(self.trials)]
        found = self.store.settle(trials, self.metric or "value", self.goal.sign, min(ranked))
        if found is None:
            raise Error(
                f"{self.store.folder.root}: the weights of the best trial, {min(ranked)[1]}, are missing; sweep again "
                "with another out"
            )
        self.best = Best.from_dict(found)

    def _load_best(self) -> None:
        """Look at the best weights of others at the end: with hundreds of processes it takes long."""

    def _take_orders(self) -> None:
        self.look_ahead = max(self.look_ahead, _AHEAD * self._shared.workers)
        super()._take_orders()

    def _new(self, order: Order) -> Trial | None:
        if order.trial in self._kept:
            self._look.add(order.trial)
        return super()._new(order)

    def _inherit(self, trial: Trial, source: Trial, order: Any) -> bool:
        trial.take_over(source, order.config)
        trial.trained, trial.state, trial.kept = trial.epoch, None, None
        return self._admitted(trial)

    def _admitted(self, trial: Trial) -> bool:
        later = self.algorithm.parallel is None and trial.number >= _MADE and not trial.inherited
        return True if later else super()._admitted(trial)

    # -- epochs ----------------------------------------------------------------------------------------------------

    def _train(self, ready: Sequence[Trial]) -> None:
        """Take over the values that others have trained; without any, claim some of the trials and train them for an
        epoch."""
        mine = self._ready(self._shared.own)
        self._shared.keep_up(bool(mine))
        if self._hear_others():
            self._shared.heard()
            return
        chosen = self._claimed(ready, mine)
        if not chosen:
            if not self._heard:
                self._shared.wait()
            return
        for trial, found in self._train_these(chosen):
            if self.algorithm.parallel is not None:  # the others wait for it
                self._tell(trial, found)

    def _ready(self, numbers: Iterable[int]) -> list[Trial]:
        """Return the trials that are under way and of which this round has heard nothing: a few of thousands."""
        active, heard = self._active, self._heard
        return [active[number] for number in sorted(numbers) if number in active and number not in heard]

    def _hear_others(self) -> bool:
        """Take over what others have told of trials, and what is known of them; False if that is nothing."""
        trials, told = self.trials, self._look | self._shared.news()
        self._look = {number for number in told if number not in trials or not trials[number].over}
        looked_at = self._ready(self._look)
        for trial in looked_at:
            self._hear_elsewhere(trial)
        heard = self._hear_known([trial for trial in looked_at if trial.number not in self._heard])
        for trial in looked_at:
            if len(trial.known) <= trial.epoch + 1 and not self._shared.fails(trial.number):
                self._look.discard(trial.number)
        return heard or any(trial.number in self._heard for trial in looked_at)

    def _hear_elsewhere(self, trial: Trial) -> None:
        """Take over what others have told of a trial."""
        if self._shared.mine(trial.number):
            return
        if rows := self._shared.rows(trial.number, trial.epoch):
            trial.known = [*trial.history, *rows]
        trial.seconds = max(trial.seconds, self._shared.seconds(trial.number))
        failure = self._shared.failure(trial.number, trial.epoch)
        if failure is not None:
            self._heard[trial.number] = (trial, FailedElsewhere(*failure))

    def _claimed(self, ready: Sequence[Trial], mine: Sequence[Trial]) -> list[Trial]:
        """Return trials of this process to train; where they leave room, claim more: a fair share, as many as the
        trainer takes at once, and of short ones as many as keep it at work for a while."""
        chosen = self.trainer.chosen(mine) if mine else []
        if chosen and len(chosen) >= self.trainer.at_once:
            return chosen
        board = self._shared
        board.refresh()
        share = max(1, math.ceil(len(ready) / board.workers)) - len(mine)
        held = board.held()
        free = (trial for trial in ready if trial.number not in held and not board.mine(trial.number))
        others = list(islice(free, max(0, 2 * share)))
        possible = self._made([*mine, *others[: max(0, share)]])
        wanted = self.trainer.chosen(possible) if possible else []
        if chosen and len(wanted) <= len(chosen):
            return chosen
        first = [trial for trial in others if trial.number in self._broken or trial in wanted]
        rest = [trial for trial in others if trial not in first] if wanted else []
        rest.sort(key=lambda trial: (trial.group is None, trial.group != wanted[0].group))
        ahead = math.ceil(CLAIMED_S * self._released / self.train_s) if self.train_s else 0
        board.claim({trial.number: trial.epoch for trial in [*first, *rest]}, max(len(first), min(ahead, share)))
        new = [trial for trial in others if board.mine(trial.number)]
        for trial in new:
            self._place(trial)
        mine = self._made([*mine, *new])
        for trial in new:
            if trial.number in self._broken:
                self._heard[trial.number] = (trial, self._broken.pop(trial.number))
        return self.trainer.chosen(mine) if mine else []

    def _made(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials whose models can be made, with their groups."""
        for trial in trials:
            if trial.group is None and trial.number not in self._broken:
                try:
                    self.admit(trial)
                except Exception as error:
                    self._broken[trial.number] = error
        return [trial for trial in trials if trial.number not in self._broken]

    def _place(self, trial: Trial) -> None:
        """Give a trial that was claimed the state after its last rung; what is lost it trains again."""
        assert isinstance(self.store, SharedStore)
        copied = bool(trial.inherited) and trial.inherited[-1][0] == trial.epoch
        number = trial.inherited[-1][1] if copied else trial.number
        trial.trained, trial.state = self.store.last_state(number, trial.epoch)
        trial.kept = trial.state
        if copied and trial.trained < trial.epoch:
            raise Error(
                f"{self.store.folder.root}: the state of trial {number} after epoch {trial.epoch} is missing; sweep "
                "again with another out"
            )

    def _tell(self, trial: Trial, found: Any) -> None:
        """Publish an outcome, after the weights that may be the best of all."""
        self._save_best()
        if isinstance(found, BaseException):
            self._shared.tell_failure(trial.number, trial.epoch, *reason_of(found))
        else:
            self._shared.tell(trial.number, trial.trained, found, trial.seconds)

    # -- decisions -------------------------------------------------------------------------------------------------

    def _hear(self, trial: Trial, metrics: dict[str, float]) -> None:
        mine = self._shared.mine(trial.number)
        super()._hear(trial, metrics)
        self._write()  # before others are told that its rung is on disk
        if not mine:
            return
        if self.algorithm.parallel is None:
            self._tell(trial, metrics)
        if trial.status != "running":
            self._released += 1
            self._shared.release(trial.number, metrics[self.metric])

    def _hear_of_failure(self, trial: Trial, error: BaseException) -> None:
        mine = self._shared.mine(trial.number)
        super()._hear_of_failure(trial, error)
        self._write()
        if mine and self.algorithm.parallel is None:
            self._tell(trial, error)
        self._shared.release(trial.number, None)

    def _pause(self, trial: Trial, new: bool) -> None:
        super()._pause(trial, self._shared.mine(trial.number))

    def _write(self, lose_nothing: bool = True) -> None:
        super()._write(lose_nothing=True)

    def _writes(self, trial: Trial) -> bool:
        return super()._writes(trial) and self._shared.mine(trial.number)

    def _say(self, kind: str, trial: Trial) -> None:
        if self._tells(trial):
            super()._say(kind, trial)

    def _tells(self, trial: Trial) -> bool:
        """True if this process is the one that tells of a trial."""
        return self._shared.mine(trial.number)
