# SPDX-License-Identifier: MIT
"""Fine-tunings of a language model as trials of a sweep: one array for all ranks, targets, lengths and batch sizes.

Batches of trials may differ in their sequences, so their epochs have different numbers of steps. Each trial is
somewhere in its epoch; the array steps until one has come to its end, which is told, and whose rows another may take.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from .. import adapters, nn
from .._runs.interrupts import check, deferred
from .._seeds import seeded
from ..adapters.adapt import array_of
from ..adapters.builder import AdapterBuilder
from ..adapters.collating import targets_of
from ..adapters.configs import forward_fields
from ..errors import InvalidArgument
from .array_trainer import Found, TrialArray
from .feeds import Feeds
from .optimizers import chosen_optimization
from .recipe import Recipe
from .space import WatchedConfig
from .trial import Trial

_HELD_OUT_TOKENS = 2**13  # of a model in a batch of held-out sequences
_MEMORY_PART = 0.5
_MOST = 64  # models of an array
_LONGEST_S = 30.0  # without a look at the search


class TextRecipe(Recipe):
    """Recipe for trials whose models are adapters on one language model.

    Args:
        make_model: configuration → a config of PEFT's.
        micro: sequences of a model at once; the gradients of a batch's parts add up.
    """

    own = frozenset(("batch_size", "max_length", "epochs"))

    def __init__(
        self, make_model: Any, train: adapters.Texts, base: Any, optimizer: Any, scheduler: Any,
        scheduler_every: str | None, batch_size: int | None, epochs: int, seed: int, micro: int | None,
    ) -> None:  # fmt: skip
        if base is None:
            raise InvalidArgument("texts are for adapters on a language model: give it as base")
        super().__init__(make_model, Feeds(train, batch_size, seed), schedule_every=scheduler_every, base=base)
        if getattr(scheduler, "__name__", scheduler) == "ReduceLROnPlateau":
            raise InvalidArgument("ReduceLROnPlateau follows a metric, and trials on texts end their epochs one by one")
        self.builder, self.texts = AdapterBuilder(base), train
        self._base = self.builder.shared
        self.micro, self._batch_size, self._epochs, self._seed = micro, batch_size, epochs, seed
        self.optimization = chosen_optimization(optimizer, scheduler, lightning=False)
        self.device = str(next(base.parameters()).device)
        config = getattr(base, "config", None)
        words = getattr(config, "vocab_size", None)
        if words is not None and int(train.ids.max()) >= words:
            raise InvalidArgument(
                f"the texts have token {int(train.ids.max())}, and the base has {words} words: give its own tokenizer"
            )
        self.longest = getattr(config, "max_position_embeddings", None)

    def build(self, trial: Trial) -> Any:
        config = WatchedConfig(trial.config)
        with seeded(trial.seed):
            made = self.make_model(config)
        self.read |= config.read
        return self.builder.model(made, f"trial {trial.number}: what make_model returned", trial.seed)

    def admit(self, trial: Trial) -> None:
        assert self.optimization is not None
        self.batches(trial, 0)
        model = self.build(trial)
        (own,) = model.peft_config.values()
        trial.group = self.groups.of("texts", (repr(forward_fields(own)), self.optimization.kind(model, {})), 0, model,
                                     trial)  # fmt: skip
        trial.trained_bytes = sum(p.nbytes for p in model.parameters() if p.requires_grad)

    def length(self, trial: Trial) -> int | None:
        """Most tokens of a trial's sequences."""
        found = [n for n in (trial.config.get("max_length"), self.longest) if n is not None]
        return min(found, default=None)

    def batches(self, trial: Trial, epoch: int) -> Sequence[torch.Tensor]:
        """Places of the sequences of each batch of an epoch, from 0, in the order that is all trials' own."""
        size = trial.config.get("batch_size", self._batch_size)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidArgument(f"batch_size is {size!r}: give a whole number, 1 or more, for all or in the space")
        places = self.texts.usable(self.length(trial))
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(self._seed + epoch))
        return places[order].split(size)

    def epochs_of(self, trial: Trial) -> int:
        return min(self._epochs, int(trial.config.get("epochs", self._epochs)))

    def with_steps(self, trial: Trial) -> dict[str, Any]:
        """A trial's configuration with the number of its steps under the names that schedules have for it."""
        steps = len(self.batches(trial, 0)) * self.epochs_of(trial) if self.by_batch else self._epochs
        return {"T_max": steps, "total_iters": steps, "total_steps": steps, **trial.config}

    @property
    def by_batch(self) -> bool:
        """True if schedules move with each batch."""
        return self._schedule_every != "epoch"

    def fitting(self, trials: Sequence[Trial]) -> int:
        """Predict how many models like the first fit into half of the free memory."""
        trials = trials[:4]
        made = [next(iter(self.build(trial).peft_config.values())) for trial in trials]
        size = max(len(self.batches(trial, 0)[0]) for trial in trials)
        length = min(self.texts.longest, min((n for t in trials if (n := self.length(t)) is not None), default=2**31))
        mask = torch.ones(len(made), min(size, self.micro or size), length, dtype=torch.int64)
        if self.device != "cpu":
            free = torch.cuda.mem_get_info()[0]
        else:
            free = psutil.virtual_memory().available
        need = adapters.memory(self.builder.base, made, {"attention_mask": mask})
        return max(1, min(_MOST, need.fit(int(_MEMORY_PART * free) + need.base)))


class TextArray(TrialArray):
    """An array of adapters, each with batches of its own."""

    _recipe: TextRecipe

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._places: dict[int, tuple[int, float]] = {}  # (batches of its epoch, sum of their losses), by trial

    def _begin_steps(self) -> None:
        """Make no runner: lengths change from step to step, so that steps are called by hand."""

    def _fused(self, trainees: Sequence[Any], seeds: list[int]) -> Any:
        return array_of(trainees, self._recipe.builder, seeds)

    def _trainee(self, trial: Trial) -> Any:
        model = self._recipe.build(trial)
        self._of_base[trial.number] = base = self._recipe.names_of_base(model)
        held = model.state_dict()
        self._shapes[trial.number] = {name: value.shape for name, value in held.items() if name not in base}
        if trial.state is not None:
            model.load_state_dict(trial.state["model"], strict=False)
        return model.train()

    def _config(self, trial: Trial) -> dict[str, Any]:
        return self._recipe.with_steps(trial)

    def _go_on(self, slot: int, trial: Trial) -> None:
        state = trial.state
        self._places[trial.number] = 0, 0.0
        if state is not None:
            if not trial.goes_on_as_copy:
                self._places[trial.number] = tuple(state["position"])
            streams = nn.get_rng_state(self._array)
            own = {name: value for name, value in state["streams"].items() if name in streams}
            rows = [state["optimizer"].get(name, {}) for name in self._names()]
            trial.state = {**state, "optimizer": rows, "streams": own}
        super()._go_on(slot, trial)

    def state(self, trial: Trial) -> dict[str, Any]:
        held, own = super().state(trial), self._shapes[trial.number]
        rows = {name: row for name, row in zip(self._names(), held["optimizer"], strict=True) if name in own}
        return {**held, "optimizer": rows, "position": list(self._places[trial.number])}

    def _names(self) -> list[str]:
        """Names of the optimizer's parameters: an array has places that another of the same trial may not have."""
        names = {id(p): name for name, p in self._array.named_parameters()}
        return [names[id(p)] for group in self._optimizer.param_groups for p in group["params"]]

    def _own(self, trial: Trial, held: Mapping[str, Any]) -> dict[str, Any]:
        shapes = self._shapes[trial.number]  # without the places of others, and the base
        return {name: value for name, value in super()._own(trial, held).items() if name in shapes}

    def epoch(self) -> list[Found | None]:
        began = time.perf_counter()
        batches = [self._recipe.batches(trial, trial.trained) for trial in self.trials]
        self.steps = 0
        ended: list[int] = []
        self._array.train()
        self._turn("train")
        while not ended and time.perf_counter() - began < _LONGEST_S:
            check()
            with deferred():  # a step is taken whole, or not at all
                losses = self._step(batches)
                for trial, loss in zip(self.trials, losses, strict=True):
                    count, total = self._places[trial.number]
                    self._places[trial.number] = count + 1, total + loss
            self.steps += 1
            ended = [k for k, trial in enumerate(self.trials) if self._places[trial.number][0] == len(batches[k])]
        self._turn("eval")
        found: list[Found | None] = [None] * len(self.trials)
        for slot, one in zip(ended, self._ended(ended), strict=True):
            found[slot] = one
        for trial in self.trials:
            trial.seconds += (time.perf_counter() - began) / len(self.trials)
        return found

    def _ended(self, slots: Sequence[int]) -> list[Found]:
        """Measure trials that have come to the end of an epoch, and let them begin the next."""
        found: list[Found] = []
        for slot in slots:
            trial = self.trials[slot]
            count, total = self._places[trial.number]
            found.append({"train_loss": total / count})
            self._places[trial.number] = 0, 0.0
            trial.trained += 1
            self._trained[trial.number] = trial.trained
        found = self._validated(found, slots)
        if self._schedule is not None and not self._recipe.by_batch:
            self._schedule.advance(slots)
            for slot in slots:
                self._moves[self.trials[slot].number] += 1
        return found

    def _step(self, batches: Sequence[Sequence[torch.Tensor]]) -> list[float]:
        """Take a step of all models; return the loss of each."""
        texts, rows = self._recipe.texts, []
        for trial, own in zip(self.trials, batches, strict=True):
            length, places = self._recipe.length(trial), own[self._places[trial.number][0]]
            rows.append([texts.row(place, length) for place in places.tolist()])
        batch = {name: value.to(self._recipe.device) for name, value in adapters.collate(rows).items()}
        total = torch.zeros(len(self.trials))
        for part in adapters.micro_batches(batch, self._recipe.micro or batch["input_ids"].shape[1]):
            losses = adapters.losses.next_token(self._array, part)
            losses.sum().backward()
            total += losses.detach().cpu()
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self._schedule is not None and self._recipe.by_batch:
            self._schedule.step()
            for trial in self.trials:
                self._moves[trial.number] += 1
        return [float(loss) for loss in total]

    def _plain(self, slot: int) -> Any:
        return self._array[slot].eval()

    @torch.no_grad()
    def _measured(self, texts: Any, slots: Sequence[int]) -> dict[str, list[float]]:
        """`loss`, the mean over the targets of all held-out sequences."""
        total = targets = torch.zeros(len(self.trials), dtype=torch.float64)
        size = max(1, _HELD_OUT_TOKENS // texts.longest)
        self._array.eval()
        for places in torch.arange(len(texts)).split(size):
            check()
            rows = [texts.row(place, self._recipe.longest) for place in places.tolist()]
            batch = adapters.collate([rows if slot in slots else [] for slot in range(len(self.trials))])
            batch = {name: value.to(self._recipe.device) for name, value in batch.items()}
            total = total - adapters.losses.log_probs(self._array, batch).sum((1, 2)).cpu()
            targets = targets + targets_of(batch).cpu()
        self._array.train()
        return {"loss": (total / targets).tolist()}


TextRecipe.kind = TextArray
