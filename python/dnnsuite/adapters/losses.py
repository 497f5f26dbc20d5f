# SPDX-License-Identifier: MIT
"""Objectives of language models for arrays of adapters: a loss `[B]` of each model's own sequences.

All of them are functions of the log-probability of each next token, which `log_probs` computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from .. import _under_way as under_way
from .. import nn
from ..errors import InvalidArgument
from ..ops.shared import beside
from .collating import IGNORED, labels_of, targets_of

__all__ = ["advantages", "dpo", "grpo", "log_probs", "next_token", "orpo", "reinforce"]

Batch = Mapping[str, torch.Tensor]


def log_probs(array: Any, batch: Batch, *, reference: bool = False) -> torch.Tensor:
    """Compute the log-probability of each token, given those before it.

    If the base is a causal language model of transformers, tokens that the mask leaves out cost nothing, and logits
    exist only a piece at a time; if a batch has to be padded, `array.padding()` says why.

    Args:
        array: an array of adapters on a causal language model.
        batch: tensors `[B, N, T]`: `input_ids`, `attention_mask` (by default all tokens), and `labels`, -100 where a
            token is not a target (by default all tokens that the mask keeps). Other tensors go to the model.
        reference: True for the log-probabilities of the base without adapters and without gradients. They are
            computed once if all models share the batch.

    Returns:
        Log-probabilities `[B, N, T - 1]`, 0 where the next token is not a target.

    Raises:
        InvalidArgument: `input_ids` is not `[B, N, T]`, or the reference of an array without its base is requested.
    """
    given = _checked(array, batch)
    labels = given.pop("labels")[..., 1:]
    if reference:
        with torch.no_grad():
            if all(value.stride(0) == 0 for value in batch.values()):
                one = {name: value[:1] for name, value in given.items()}
                return _reference(array, one, labels[:1]).expand(labels.shape)
            return _reference(array, given, labels)
    return _log_probs(array, given, labels)


def next_token(array: Any, batch: Batch) -> torch.Tensor:
    """Compute the mean cross-entropy `[B]` of the targets of each model; 0 for a model that has none.

    `array` and `batch` are those of `log_probs`. For a part of a batch that `micro_batches` has cut, the result is the
    share of the part in the mean of the whole batch. All losses of this module see to it that the parts of a
    `StepRunner(accumulate=...)` add up to the loss of the whole batch, whatever numbers of targets they have.
    """
    inputs = {name: value for name, value in _checked(array, batch).items() if name != "targets"}
    whole, parts = _whole(batch)
    return -parts * log_probs(array, inputs).sum((1, 2)) / targets_of(whole).clamp(min=1)


def dpo(
    array: Any, chosen: Batch, rejected: Batch, beta: Any = 0.1, *, reference: Any = None, label_smoothing: Any = 0.0
) -> torch.Tensor:
    """Compute the loss of direct preference optimization `[B]` (Rafailov et al., NeurIPS 2023), the mean over pairs.

    Args:
        array: an array of adapters on a causal language model.
        chosen: batch of the preferred answers, for `log_probs`; pair n is sequence n of both batches. A pair of which
            either sequence has no target does not count.
        rejected: batch of the other answers.
        beta: strength of the pull towards the base, a number or one per model `[B]`.
        reference: log-probabilities of the base, as a pair of sums `[B, N]` (chosen, rejected), for data that is used
            repeatedly; computed by default.
        label_smoothing: probability that a pair's order is wrong, a number or one per model.
    """
    pairs = [chosen, rejected]
    if reference is None:
        reference = [log_probs(array, batch, reference=True).sum(2) for batch in pairs]
    mine = [log_probs(array, batch).sum(2) for batch in pairs]
    gain = (mine[0] - reference[0]) - (mine[1] - reference[1])
    scaled = _beside(beta, gain) * gain
    smoothing = _beside(label_smoothing, gain)
    losses = -logsigmoid(scaled) * (1 - smoothing) - logsigmoid(-scaled) * smoothing
    return _mean_of_pairs(losses, array, pairs)


def orpo(array: Any, chosen: Batch, rejected: Batch, beta: Any = 0.1) -> torch.Tensor:
    """Compute the loss of odds-ratio preference optimization `[B]` (Hong et al., EMNLP 2024); arguments as in `dpo`.

    It is the mean cross-entropy of the chosen sequences, prompts included, minus `beta` times the log sigmoid of the
    log odds ratio of both answers, whose log-probabilities are means over their targets.
    """
    whole = {name: value for name, value in chosen.items() if name != "labels"}
    all_chosen = log_probs(array, whole)
    answers = all_chosen.masked_fill(_checked(array, chosen)["labels"][..., 1:] == IGNORED, 0)
    odds = []
    for rows, batch in ((answers, chosen), (log_probs(array, rejected), rejected)):
        counts = _targets(array, batch)
        mean = rows.sum(2) / counts.clamp(min=1)
        odds.append(_log_odds(mean.masked_fill(counts == 0, -1)))
    step, parts = _whole(whole)
    nll = -parts * all_chosen.sum((1, 2)) / _targets(array, step).sum(1).clamp(min=1)
    return nll - _beside(beta, nll) * _mean_of_pairs(logsigmoid(odds[0] - odds[1]), array, [chosen, rejected])


def advantages(rewards: torch.Tensor, group: int, *, leave_one_out: bool = False) -> torch.Tensor:
    """Compare each reward with those of the other answers to the same prompt.

    Args:
        rewards: one number for each answer, `[B, N]`.
        group: number of answers to each prompt, which are neighbours.
        leave_one_out: True for the reward minus the mean of the others (RLOO, Ahmadian et al., ACL 2024); otherwise the
            reward minus the mean of all, divided by the standard deviation (GRPO, Shao et al., 2024).

    Returns:
        The advantages `[B, N]`.

    Raises:
        InvalidArgument: N is not a multiple of `group`, or a reward is not finite.

    >>> advantages(torch.tensor([[0.0, 3.0, 1.0, 1.0]]), 2, leave_one_out=True).tolist()
    [[-3.0, 3.0, 0.0, 0.0]]
    """
    if group < 2 or rewards.dim() != 2 or rewards.shape[1] % group:
        raise InvalidArgument(f"rewards of shape {list(rewards.shape)} are not [B, N], N a multiple of group={group}")
    if not rewards.isfinite().all():
        raise InvalidArgument("a reward is infinite or NaN: give each answer a number")
    own = rewards.unflatten(1, (-1, group))
    less = own - own.mean(2, keepdim=True)
    found = less * group / (group - 1) if leave_one_out else less / (own.std(2, keepdim=True) + 1e-4)
    return found.flatten(1)


def reinforce(array: Any, batch: Batch, advantages: torch.Tensor) -> torch.Tensor:
    """Compute the loss of REINFORCE `[B]` (Williams, 1992): minus the mean of advantage times log-probability.

    `array` and `batch` are those of `log_probs`, `advantages` are `[B, N]`. A sequence without targets does not count.
    """
    sums = log_probs(array, batch).sum(2)
    return _mean_of_pairs(-advantages * sums, array, [batch])


def grpo(
    array: Any,
    batch: Batch,
    advantages: torch.Tensor,
    *,
    old: torch.Tensor | None = None,
    clip: tuple[float, float] = (0.2, 0.2),
    beta: Any = 0.0,
    mean: str = "sequence",
) -> torch.Tensor:
    """Compute the loss of group-relative policy optimization `[B]` (Shao et al., 2024) for answers that were sampled.

    Args:
        array: an array of adapters on a causal language model.
        batch: prompts and answers, for `log_probs`; the answers are the targets.
        advantages: `[B, N]`, from `advantages`.
        old: log-probabilities `[B, N, T - 1]` at the time of sampling; None takes the current ones, for one step on
            each sample.
        clip: fractions by which the ratio to `old` may fall and rise.
        beta: weight of the divergence from the base, a number or one per model; 0 needs no reference.
        mean: "sequence" averages the means of the answers (GRPO), "token" all tokens of a model (BNPO, DAPO).

    Raises:
        InvalidArgument: `mean` is neither of the two.
    """
    if mean not in ("sequence", "token"):
        raise InvalidArgument(f"mean is {mean!r}: give 'sequence' or 'token'")
    mine = log_probs(array, batch)
    targets = _checked(array, batch)["labels"][..., 1:] != IGNORED
    ratio = (mine - (mine.detach() if old is None else old)).exp()
    gain = advantages.unsqueeze(2)
    losses = -torch.minimum(ratio * gain, ratio.clamp(1 - clip[0], 1 + clip[1]) * gain)
    if isinstance(beta, (torch.Tensor, list, tuple)) or beta:
        away = log_probs(array, batch, reference=True) - mine
        losses = losses + _beside(beta, losses) * (away.exp() - away - 1)
    losses = losses.masked_fill(~targets, 0)
    if mean == "token":
        step, parts = _whole(batch)
        return parts * losses.sum((1, 2)) / _targets(array, step).sum(1).clamp(min=1)
    return _mean_of_pairs(losses.sum(2) / targets.sum(2).clamp(min=1), array, [batch])


def _log_odds(log_p: torch.Tensor) -> torch.Tensor:
    """log(p / (1 - p)) of log p < 0, which loses no digits near p = 0 or 1."""
    near_one = log_p > -0.5
    far = torch.log1p(-log_p.masked_fill(near_one, -1).exp())
    return log_p - torch.where(near_one, torch.log(-torch.expm1(log_p.masked_fill(~near_one, -0.1))), far)


def _whole(batch: Batch) -> tuple[Batch, int]:
    """Return the batch of which this is a part in a StepRunner that accumulates, and the number of parts; otherwise the
    batch itself, and 1. Tensors that were made of the part's are refused."""
    told = {name: batch[name] for name in ("input_ids", "attention_mask", "labels", "targets") if name in batch}
    wholes: dict[str, Any] = {}
    parts = 1
    for name, tensor in told.items():
        wholes[name], parts = under_way.whole_of(tensor)
        if wholes[name] is None:
            raise InvalidArgument(
                f"under StepRunner(accumulate={parts}), a mean over targets needs those of the whole batch, and {name} "
                "is not a tensor of the runner's batch: build it before the step, or add up parts of `micro_batches`"
            )
    return wholes, parts


def _mean_of_pairs(values: torch.Tensor, array: Any, pairs: list[Batch]) -> torch.Tensor:
    """Mean of `values` `[B, N]` over the pairs of the step's batch of which each sequence has a target."""
    there = _there(array, pairs)
    steps = [_whole(batch) for batch in pairs]
    parts = steps[0][1]
    counted = there if parts == 1 else _there(array, [whole for whole, _ in steps])
    return parts * values.masked_fill(~there, 0).sum(1) / counted.sum(1).clamp(min=1)


def _there(array: Any, pairs: list[Batch]) -> torch.Tensor:
    return torch.stack([_targets(array, batch) for batch in pairs]).amin(0) > 0


def _targets(array: Any, batch: Batch) -> torch.Tensor:
    """Number of targets of each sequence `[B, N]`."""
    return (_checked(array, batch)["labels"][..., 1:] != IGNORED).sum(2)


def _beside(value: Any, like: torch.Tensor) -> Any:
    return beside(torch.as_tensor(value, dtype=like.dtype, device=like.device).expand(len(like)), like)


def _checked(array: Any, batch: Batch) -> dict[str, torch.Tensor]:
    """Return a batch with its mask and labels."""
    given = dict(batch)
    ids = given.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 3 or len(ids) != array.B:
        shape = list(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise InvalidArgument(f"a batch for {array.B} models has input_ids [{array.B}, N, T]; got {shape}")
    given["labels"] = labels_of(given)
    given.setdefault("attention_mask", torch.ones_like(ids))
    return given


def _log_probs(array: Any, inputs: dict[str, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    from .rows import NotInRows, rows_of

    under_way.finish_to_compute(array)
    if inputs.keys() <= {"input_ids", "attention_mask", "position_ids"}:
        try:
            rows, layers = rows_of(array)
            return rows.log_probs(layers, array.training, inputs, labels)
        except NotInRows:
            pass
    return _padded(array(**_with_tokens(inputs)).logits, labels)


def _with_tokens(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Let padding at the end attend: no token sees it, and what attends to nothing may be NaN, which spreads."""
    mask = inputs["attention_mask"]
    at_end = (mask[..., 1:] <= mask[..., :-1]).all(-1, keepdim=True)
    return {**inputs, "attention_mask": mask.masked_fill(at_end, 1)}


def _reference(array: Any, inputs: dict[str, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    from .rows import NotInRows, rows_of

    try:
        return rows_of(array)[0].log_probs({}, False, inputs, labels)
    except NotInRows:
        base = array._builder and array._builder.base
    if base is None:
        raise InvalidArgument("this array was unpickled without its base: give the reference's log-probabilities")
    flat = {name: value.flatten(0, 1) for name, value in _with_tokens(inputs).items()}
    training = base.training
    try:
        logits = base.eval()(**flat).logits
    finally:
        base.train(training)
    return _padded(logits.unflatten(0, labels.shape[:2]), labels)


def _padded(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    rows = logits[:, :, -labels.shape[-1] - 1 : -1].flatten(1, 2)  # after virtual tokens, where there are some
    wide = rows if rows.dtype == torch.float64 else rows.float()
    losses = nn.functional.cross_entropy(wide, labels.flatten(1), ignore_index=IGNORED, reduction="none")
    return -losses.unflatten(1, labels.shape[1:])
