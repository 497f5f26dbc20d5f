# SPDX-License-Identifier: MIT
"""Jobs of reinforcement learning: REINFORCE on a cart, and proximal policy optimisation on Pong and on poles of
tensors.

`cart` is REINFORCE (Williams, 1992) on the pole of a cart: a policy of 4, 128, 2 plays `update_every` steps and learns.
Returns are discounted by `gamma` up to the end of the episode, and standardised over all those steps. The suite of 2019
let returns run on into the next episode: where each step is worth 1, a fall cost nothing, and nothing was learnt. Each
step asks the policy for one action, which a CPU computes fastest, and playing is the wait for data.

`atari` is proximal policy optimisation (Schulman et al., 2017) on Pong: a convolutional policy plays 128 frames in each
of 8 games, and learns. A frame is what the policy sees and answers: the emulator makes 4 for each, which are not
counted. A step learns from one of the mini-batches: every sixteenth plays anew, which is the wait for data. The batch
size is the number of games (`num_processes`, which wins).

`ppo` balances poles: the batches are what the agent itself does, in CleanRL's form. The environments are tensors, all
of which step at once; the pole's equations are those of Barto, Sutton and Anderson (1983). Every sixteenth step plays
128 moves anew; the steps between learn from parts of them. The measure is the mean length of episodes from states that
training never begins from.
"""

from __future__ import annotations

from typing import Any

from .._lazy import numpy as np
from .._lazy import torch
from ..data import games
from ..data.batches import Rollouts, WholeBatch, shuffled
from ..data.games import pole_moved
from ..errors import InvalidArgument
from ._job import JobConfig
from .declared_job import declare
from .workload import Card, Made, Metric, Preset, Rate, Values, Workload, models


def returns(
    rewards: torch.Tensor, values: torch.Tensor, alive: torch.Tensor, gamma: float, smoothing: float
) -> torch.Tensor:
    """Compute generalised advantage estimates plus values `[T, E]` (Schulman et al., ICLR 2016).

    Args:
        rewards: `[T, E]`, of each step of each environment.
        values: `[T + 1, E]`, the critic's values before each step, and after the last.
        alive: `[T, E]`, 0 where the step ended an episode, else 1.
        gamma: the discount.
        smoothing: lambda, 0 for one step's difference, 1 for the whole return.
    """
    found = torch.empty_like(rewards)
    advantage = torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        difference = rewards[t] + gamma * values[t + 1] * alive[t] - values[t]
        advantage = difference + gamma * smoothing * alive[t] * advantage
        found[t] = advantage + values[t]
    return found


def clipped_loss(
    log_probabilities: torch.Tensor,
    values: torch.Tensor,
    actions: torch.Tensor,
    old_log_probabilities: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip: float,
    value: float,
    entropy: float,
) -> torch.Tensor:
    """Compute the loss `[]`; the squared error of the value is clipped as the policy's gain is.

    Args:
        log_probabilities: `[N, A]` of all actions; all others `[N]`, `old_...` of the policy that played.
        clip: distance from the old policy, and from the old value.
        value, entropy: weights of the value's error and of the entropy.
    """
    chosen = log_probabilities.gather(1, actions.unsqueeze(1)).squeeze(1)
    ratio = (chosen - old_log_probabilities).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
    near = old_values + (values - old_values).clamp(-clip, clip)
    error = torch.maximum((values - returns).square(), (near - returns).square()).mean()
    spread = -(log_probabilities.exp() * log_probabilities).sum(1).mean()
    return value * error - gain - entropy * spread


def cart_played(config: JobConfig, options: Values) -> Rollouts:
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


def cart_loss(model: Any, chosen: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
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
        rollouts=cart_played,
        loss=cart_loss,
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


_ATARI_EPOCHS, _GAMMA, _LAMBDA = 4, 0.99, 0.95
_UPDATES = 10_000_000 // 1024  # of a training, in which the learning rate falls to 0, at 128 frames of 8 games
_ATARI_PARTS = 4  # mini-batches, if nothing else is asked for


def atari_played(config: JobConfig, options: Values) -> Rollouts:
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
        return [(*part, weights) for part in shuffled(whole, parts, generator, _ATARI_EPOCHS)]

    record = {"source": source, "licence": "GPL-2.0 (the emulator)"}
    sizes = {"actions": int(environment.single_action_space.n)}
    made = Rollouts(play, config.data_seed, record, sizes, game)
    made.batch_size = copies
    return made


def atari_loss(model: Any, images: torch.Tensor, *batch: torch.Tensor) -> torch.Tensor:
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
            "env_name": "PongNoFrameskip-v4", "num_steps": 128, "num_processes": 8, "num_mini_batch": _ATARI_PARTS,
            "clip_param": 0.1, "value_loss_coef": 0.5, "entropy_coef": 0.01,
        },
        model=lambda options, hyper: models.NatureCNN(options["actions"]),
        rollouts=atari_played,
        loss=atari_loss,
        optimizer=Made("Adam", {"lr": "lr", "eps": 1e-5}),
        hyper={"lr": 7e-4},
        rate=lambda step, steps: max(0.0, 1 - step // (_ATARI_EPOCHS * _ATARI_PARTS) / _UPDATES),
        clip_norm=0.5,
        items_per_sample=lambda options: options["num_steps"] / (_ATARI_EPOCHS * options["num_mini_batch"]),
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


_LONGEST = 500  # moves of an episode
_PARTS, _EPOCHS = 4, 4  # of what was played: minibatches, and how often each is learned from
_DISCOUNT, _SMOOTHING, _CLIP = 0.99, 0.95, 0.2
_VALUE, _ENTROPY = 0.25, 0.01  # weights in the loss


def ppo_played(config: JobConfig, options: Values) -> Rollouts:
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
        found = returns(
            torch.ones_like(values), torch.cat([values, last[None]]), (~ends).float(), _DISCOUNT, _SMOOTHING
        )
        whole = [x.flatten(0, 1) for x in (every, moves, old, values, found, found - values)]
        return shuffled(whole, _PARTS, generator, _EPOCHS)

    return Rollouts(play, config.data_seed, {"source": "drawn: poles of tensors", "licence": "none needed"})


def ppo_loss(model: Any, *batch: torch.Tensor) -> torch.Tensor:
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
        rollouts=ppo_played,
        loss=ppo_loss,
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
