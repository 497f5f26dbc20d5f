# SPDX-License-Identifier: MIT
"""Proximal policy optimisation balances poles: the batches are what the agent itself does, in CleanRL's form.

The environments are tensors, all of which step at once; the pole's equations are those of Barto, Sutton and Anderson
(1983). Every sixteenth step plays 128 moves anew; the steps between learn from parts of them. The measure is the
mean length of episodes from states that training never begins from.
"""

from __future__ import annotations

from typing import Any

from ..._lazy import torch
from ...data.batches import Rollouts, WholeBatch, shuffled
from ...data.games import pole_moved
from .._job import JobConfig
from .._ppo import clipped_loss, returns
from ..declared_job import declare
from ..workload import Card, Made, Metric, Preset, Rate, Values, Workload, models

_LONGEST = 500  # moves of an episode
_PARTS, _EPOCHS = 4, 4  # of what was played: minibatches, and how often each is learned from
_DISCOUNT, _LAMBDA, _CLIP = 0.99, 0.95, 0.2
_VALUE, _ENTROPY = 0.25, 0.01  # weights in the loss


def played(config: JobConfig, options: Values) -> Rollouts:
    """Parts of what the agent plays: states, moves, old chances, old values, returns and advantages, `[moves * poles /
    4, ...]` each."""
    poles, device = config.batch_size, config.device

    def fresh(generator: torch.Generator) -> torch.Tensor:
        return torch.rand(poles, 4, generator=generator) * 0.1 - 0.05

    now: dict[str, torch.Tensor] = {"ages": torch.zeros(poles)}

    def play(model: Any, generator: torch.Generator) -> list[tuple[torch.Tensor, ...]]:
        states, ages = now["states"] if "states" in now else fresh(generator), now["ages"]
        seen: list[tuple[torch.Tensor, ...]] = []
        for _ in range(options["moves"]):
            chances, value = (x.float().cpu() for x in model(states.to(device)))
            moves = (torch.rand(poles, generator=generator) > chances[:, 0].exp()).long()
            after, fell = pole_moved(states, moves)
            ends = fell | (ages + 1 >= _LONGEST)
            seen.append((states, moves, chances.gather(1, moves[:, None]).squeeze(1), value, ends))
            states, ages = torch.where(ends[:, None], fresh(generator), after), torch.where(ends, 0.0, ages + 1)
        now.update(states=states, ages=ages)
        every, moves, old, values, ends = (torch.stack(each) for each in zip(*seen, strict=True))
        last = model(states.to(device))[1].float().cpu()
        found = returns(torch.ones_like(values), torch.cat([values, last[None]]), (~ends).float(), _DISCOUNT, _LAMBDA)
        whole = [x.flatten(0, 1) for x in (every, moves, old, values, found, found - values)]
        return shuffled(whole, _PARTS, generator, _EPOCHS)

    return Rollouts(play, config.data_seed, {"source": "drawn: poles of tensors", "licence": "none needed"})


def loss(model: Any, *batch: torch.Tensor) -> torch.Tensor:
    states, moves, old, old_values, found, advantages = batch
    chances, values = model(states)
    gains = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return clipped_loss(
        chances, values, moves, old, old_values, found, gains, clip=_CLIP, value=_VALUE, entropy=_ENTROPY
    )


def episode_length(model: Any, states: torch.Tensor) -> torch.Tensor:
    """Mean number of moves until the poles fall, of the likelier moves, 500 at most."""
    lengths, up = (torch.zeros(len(states), device=states.device), torch.ones(len(states), device=states.device))
    for _ in range(_LONGEST):
        states, fell = pole_moved(states, model(states)[0].argmax(-1))
        up = up * (~fell).float()
        lengths = lengths + up
        if not up.any():
            break
    return lengths.mean()


def starts(config: JobConfig, options: Values) -> WholeBatch:
    """States to begin from, a little farther out than those of training."""
    generator = torch.Generator().manual_seed(1983)
    signs = torch.randint(2, (32, 4), generator=generator) * 2 - 1
    states = signs * (0.05 + 0.02 * torch.rand(32, 4, generator=generator))
    return WholeBatch((states,), {"source": "drawn"})


declare(
    Workload(
        name="ppo",
        description="reinforcement learning with environments of tensors: many small steps",
        unit="env steps",
        options={"width": 64, "moves": 128},
        model=lambda options, hyper: models.Agent(options["width"]),
        rollouts=played,
        loss=loss,
        held_out=starts,
        metric=Metric("episode length", episode_length, "more", {"quick": 120.0, "default": 400.0}, batches=1),
        optimizer=Made("Adam", {"lr": "lr", "eps": 1e-5}),
        hyper={"lr": 1e-3},
        rate=Rate(warmup=0.0, constant=0.0),
        clip_norm=0.5,
        # Each move is learned from in as many steps as there are minibatches of all epochs.
        items_per_sample=lambda options: options["moves"] // (_PARTS * _EPOCHS),
        flops_per_item=lambda options: 6.0 * _EPOCHS * options["width"] * (2 * options["width"] + 11),
        presets={
            "quick": Preset(3, 320, batch_size=8, observed=(60, 16)),
            "default": Preset(3, 1600, batch_size=8, observed=(300, 16)),
            "paper": Preset(3, 2000, batch_size=4096, options={"width": 256, "moves": 32}),
        },
        card=Card(
            "reinforcement learning",
            "policy and value of 2 x 256 each",
            source=("schulman2017", "barto1983"),
            about=(
                "environments are tensors in place of gymnasium's: their steps are no call of Python each",
                "the target is 120, not CartPole's 195: sound agents of quick size end between 183 and 499, broken "
                "ones below 63",
            ),
        ),
    )
)
