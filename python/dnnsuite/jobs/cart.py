# SPDX-License-Identifier: MIT
"""REINFORCE (Williams, 1992) on the pole of a cart: a policy of 4, 128, 2 plays `update_every` steps and learns.

Returns are discounted by `gamma` up to the end of the episode, and standardised over all those steps. The suite of 2019
let returns run on into the next episode: where each step is worth 1, a fall cost nothing, and nothing was learnt. Each
step asks the policy for one action, which a CPU computes fastest, and playing is the wait for data.
"""

from __future__ import annotations

from typing import Any

from .._lazy import torch
from ..data import games
from ..data.batches import Rollouts
from ..errors import InvalidArgument
from ._job import JobConfig
from .declared_job import declare
from .workload import Card, Made, Preset, Values, Workload


def played(config: JobConfig, options: Values) -> Rollouts:
    """Log-probabilities `[T]` of what the policy did, with their graph, and what followed `[T]`."""
    if config.batch_size != 1:
        raise InvalidArgument(f"cart plays one environment: batch_size must be 1, got {config.batch_size}")
    if options["update_every"] < 2:  # of one return there is no deviation
        raise InvalidArgument(f"update_every must be 2 or more, got {options['update_every']}")
    environment, source = games.cart_pole()
    game = games.Game(environment, config.data_seed)

    def play(model: Any, generator: torch.Generator) -> list[tuple[torch.Tensor, ...]]:
        chosen, rewards, ends = [], [], []
        for _ in range(options["update_every"]):
            seen = torch.from_numpy(game.seen).to(model[0].weight.dtype)
            found = model(seen.unsqueeze(0)).log_softmax(1)
            action = torch.multinomial(found.detach().exp(), 1, generator=generator)
            chosen.append(found[0, int(action)])
            reward, end = game.step(int(action))
            rewards.append(float(reward))
            ends.append(bool(end))
        return [(torch.stack(chosen), standardized_returns(rewards, ends, options["gamma"]))]

    return Rollouts(play, config.data_seed, {"source": source, "licence": "MIT"}, game=game, graph=True)


def standardized_returns(rewards: list[float], ends: list[bool], gamma: float) -> torch.Tensor:
    """`[T]`: what follows each step, R_t = r_t + gamma R_{t+1}, or r_t where an episode ends; less the mean, over the
    (unbiased) deviation."""
    returns, total = [], 0.0
    for reward, end in zip(reversed(rewards), reversed(ends), strict=True):
        total = reward if end else reward + gamma * total
        returns.append(total)
    values = torch.tensor(returns[::-1])
    return (values - values.mean()) / (values.std() + torch.finfo(torch.float32).eps)


def loss(model: Any, chosen: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    return -(chosen * returns).sum()


declare(
    Workload(
        name="cart",
        description="REINFORCE with a policy of 128 units on CartPole",
        unit="env steps",
        options={"gamma": 0.99, "update_every": 1000},
        model=lambda options, hyper: torch.nn.Sequential(
            torch.nn.Linear(4, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2)
        ),
        rollouts=played,
        loss=loss,
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 1e-2},
        items_per_sample=lambda options: options["update_every"],
        half=(),
        device="cpu",
        presets={
            "quick": Preset(1, 20, batch_size=1, observed=(20, 1), options={"update_every": 100}),
            "default": Preset(1, 200, batch_size=1, observed=(200, 1)),
        },
        card=Card(
            "reinforcement learning",
            "policy 4-128-2, REINFORCE; on the CPU",
            source=("williams1992", "barto1983", "mila2019"),
            about=("CartPole-v1 of gymnasium instead of CartPole-v0 of gym, which is not maintained",),
            changes=("a step plays and learns; the record counts the same steps of the environment",),
        ),
    )
)
