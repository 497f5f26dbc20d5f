# SPDX-License-Identifier: MIT
"""Proximal policy optimisation on Pong: a convolutional policy plays 128 frames in each of 8 games, and learns.

A frame is what the policy sees and answers: the emulator makes 4 for each, which are not counted. A step learns from
one of the mini-batches: every sixteenth plays anew, which is the wait for data. The batch size is the number of games
(`num_processes`, which wins).
"""

from __future__ import annotations

from typing import Any

from .._lazy import numpy as np
from .._lazy import torch
from ..data import games
from ..data.batches import Rollouts, shuffled
from ..errors import InvalidArgument
from ._job import JobConfig
from ._ppo import clipped_loss, returns
from .declared_job import declare
from .workload import Card, Made, Preset, Values, Workload, models

_EPOCHS, _GAMMA, _LAMBDA = 4, 0.99, 0.95
_UPDATES = 10_000_000 // 1024  # of a training, in which the learning rate falls to 0, at 128 frames of 8 games
_PARTS = 4  # mini-batches, if nothing else is asked for


def played(config: JobConfig, options: Values) -> Rollouts:
    """Mini-batches of what the policy plays: images uint8 `[N, 4, 84, 84]`; actions, log-probabilities, values,
    returns and advantages `[N]`, and the clip and weights of the loss `[3]`."""
    steps, copies, parts = (options[name] for name in ("num_steps", "num_processes", "num_mini_batch"))
    if min(steps, copies, parts) < 1 or steps * copies < parts:
        raise InvalidArgument(
            f"num_steps {steps} x num_processes {copies} must be num_mini_batch {parts} or more, and each 1 or more"
        )
    environment, source = games.atari(options["env_name"], copies, config.threads or 0)
    game, device = games.Game(environment, config.data_seed), torch.device(config.device)
    weights = torch.tensor([options[name] for name in ("clip_param", "value_loss_coef", "entropy_coef")])

    def play(model: Any, generator: torch.Generator) -> list[tuple[torch.Tensor, ...]]:
        seen, kept, rewards, alive = [], [], [], []
        for _ in range(steps):
            images = torch.from_numpy(game.seen).to(device)
            logits, value = (x.float() for x in model(images))
            chances = logits.log_softmax(1)
            action = torch.multinomial(chances.exp().cpu(), 1, generator=generator)
            seen.append(images)
            there = action.to(device)
            kept.append((there.squeeze(1), chances.gather(1, there).squeeze(1), value))
            reward, end = game.step(action.squeeze(1).numpy())
            rewards.append(reward)
            alive.append(1.0 - end)
        actions, chosen, values = (torch.stack(column) for column in zip(*kept, strict=True))
        last = model(torch.from_numpy(game.seen).to(device))[1].float()
        gained, lives = torch.from_numpy(np.stack([rewards, alive]).astype(np.float32)).to(device)
        found = returns(gained, torch.cat((values, last.unsqueeze(0))), lives, _GAMMA, _LAMBDA)
        advantages = found - values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)
        whole = [x.flatten(0, 1) for x in (torch.stack(seen), actions, chosen, values, found, advantages)]
        return [(*part, weights) for part in shuffled(whole, parts, generator, _EPOCHS)]

    record = {"source": source, "licence": "GPL-2.0 (the emulator)"}
    sizes = {"actions": int(environment.single_action_space.n)}
    made = Rollouts(play, config.data_seed, record, sizes, game)
    made.batch_size = copies
    return made


def loss(model: Any, images: torch.Tensor, *batch: torch.Tensor) -> torch.Tensor:
    actions, chosen, values, found, advantages, (clip, value, entropy) = batch
    logits, now = (models.widened(x) for x in model(images))
    # The value's error counts half.
    return clipped_loss(
        logits.log_softmax(1), now, actions, chosen, values, found, advantages,
        clip=clip, value=value / 2, entropy=entropy,
    )  # fmt: skip


declare(
    Workload(
        name="atari",
        description="PPO with a convolutional policy on 8 games of Pong",
        unit="frames",
        options={
            "env_name": "PongNoFrameskip-v4", "num_steps": 128, "num_processes": 8, "num_mini_batch": _PARTS,
            "clip_param": 0.1, "value_loss_coef": 0.5, "entropy_coef": 0.01,
        },
        model=lambda options, hyper: models.NatureCNN(options["actions"]),
        rollouts=played,
        loss=loss,
        optimizer=Made("Adam", {"lr": "lr", "eps": 1e-5}),
        hyper={"lr": 7e-4},
        rate=lambda step, steps: max(0.0, 1 - step // (_EPOCHS * _PARTS) / _UPDATES),
        clip_norm=0.5,
        items_per_sample=lambda options: options["num_steps"] / (_EPOCHS * options["num_mini_batch"]),
        presets={
            "quick": Preset(1, 64, batch_size=2, observed=(4, 16), options={"num_processes": 2}),
            "default": Preset(3, 1600, batch_size=8, observed=(30, 160)),
        },
        card=Card(
            "reinforcement learning",
            "PPO with NatureCNN, 128 steps in 8 environments, 4 mini-batches",
            source=("schulman2017", "mnih2015", "bellemare2013", "mila2019"),
            about=(
                "the rate counts frames; the original counted updates times processes",
                "environments of ale-py's vector interface instead of baselines' processes, which is not maintained",
            ),
            changes=(
                "a step is a mini-batch, of which every sixteenth plays; the learning rate falls as at 128 "
                "frames of 8 games",
            ),
        ),
    )
)  # fmt: skip
