# SPDX-License-Identifier: MIT
"""Coverage: the way in which each part of an array runs, as a list and as a table of a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import torch

from .._shown import aligned, table_html
from ..nn.array_module import ArrayModule
from ..nn.sharing import is_shared
from .code.own_values import ModuleCoverage, bare_class
from .code.user_module import UserModule

_MOST_ROWS = 60


class Cover(NamedTuple):
    """Way in which one module of an array runs.

    `how` is `fused` (a layer of `dnnsuite.nn`), `elementwise` (torch's own), `mapped` (functions without a rule,
    under torch.vmap) or `per model` (its models one by one; for the name "" also where a loop over whole models was
    measured to be faster). `reason` says why. `cost_s` is the mean time of a part that is not fused, in seconds per
    forward call; NaN before the first. `shared` is True if all models share all of its parameters and buffers: on a
    batch that they share, too, it is computed once.
    """

    name: str
    layer: str
    how: str
    reason: str = ""
    cost_s: float = 0.0
    shared: bool = False


class Coverage(list[Cover]):
    """List of covers, which `print` and a notebook show as a table."""

    def __str__(self) -> str:
        """Show a line for each module: name, class, the way it runs, ms per forward where it is not fused, reason."""
        costs = [milliseconds(c.cost_s) for c in self]
        rows = [
            (c.name or "(the model)", c.layer, c.how, cost and f"{cost} ms", c.reason)
            for c, cost in zip(self, costs, strict=True)
        ]
        return "\n".join(aligned(rows, left=range(5)))

    def _repr_html_(self) -> str:
        """Return a line that counts the ways in which modules run, and a row per module."""
        counts = Counter(cover.how for cover in self)
        counted = ", ".join(f"{count} {how}" for how, count in counts.most_common())
        rows = [(c.name or "(the model)", c.layer, c.how, c.reason, milliseconds(c.cost_s)) for c in self]
        left = f"<p>… and {len(rows) - _MOST_ROWS} more</p>" if len(rows) > _MOST_ROWS else ""
        columns = ("module", "class", "runs", "reason", "ms per forward")
        return table_html(columns, rows[:_MOST_ROWS], counted) + left


def coverage(array: torch.nn.Module) -> Coverage:
    """List how each part of `array` runs: fused, element by element, mapped, or model by model with the reason.

    Steps of a `StepRunner` count too: its shards report to the array.

    >>> import torch, dnnsuite
    >>> array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()) for _ in range(3)])
    >>> [(cover.name, cover.how) for cover in dnnsuite.coverage(array)]
    [('0', 'fused'), ('1', 'elementwise')]
    >>> print(dnnsuite.coverage(array))
    0  Linear  fused
    1  ReLU    elementwise
    """
    found = Coverage()
    root = array.__dict__.get("_root", array)
    choice = array.__dict__.get("_fused_choice")
    if choice is not None and choice.why:
        return Coverage([Cover("", bare_class(root).__name__, "per model", choice.why, _mean(choice.report))])

    def visit(module: torch.nn.Module, name: str) -> None:
        kind = bare_class(module).__name__
        if isinstance(module, ArrayModule):
            found.append(Cover(name, kind, "fused", shared=_is_shared(module)))
            return
        if isinstance(module, UserModule):
            report = module._fused_report
            cost = _mean(report)
            reason = report.reason or (report.alone if module._fused_B > 1 else "")
            if reason:
                found.append(Cover(name, kind, "per model", reason, cost))
                return
            if report.mapped:
                functions = ", ".join(report.mapped)
                found.append(Cover(name, kind, "mapped", f"no rule for {functions}", cost))
        elif not list(module.children()):
            found.append(Cover(name, kind, "elementwise"))
        for child_name, child in module.named_children():
            visit(child, f"{name}.{child_name}".lstrip("."))

    visit(root, "")
    return found


def notes(array: torch.nn.Module) -> list[tuple[str, Counter[str]]]:
    """List what each part of `array` has reported while it ran: why it would run models one by one, and its functions
    without a rule."""
    return [(report.alone, Counter(report.mapped)) for report in _reports(array)]


def differ_by_numbers(array: torch.nn.Module) -> bool:
    """Return True if models of a part run one by one, and its code reads numbers of tensors."""
    return any(report.asked and bool(report.reason) for report in _reports(array))


def asks_for_numbers(array: torch.nn.Module) -> bool:
    """Return True if models that were shards of their own asked for numbers, which all at once may have no answer."""
    return any(report.alone for report in _reports(array))


def take_notes(array: torch.nn.Module, known: Sequence[tuple[str, Counter[str]]]) -> None:
    """Give the parts of `array` the `notes` of an equal one, whose recordings are replayed in their place."""
    for report, (alone, mapped) in zip(_reports(array), known, strict=True):
        report.alone = report.alone or alone
        report.mapped = report.mapped or Counter(mapped)


def _reports(array: torch.nn.Module) -> list[ModuleCoverage]:
    modules = array.__dict__.get("_root", array).modules()
    return [module._fused_report for module in modules if isinstance(module, UserModule)]


def _is_shared(layer: ArrayModule) -> bool:
    held = [*layer.parameters(), *layer.buffers()]
    return layer.B > 1 and bool(held) and all(map(is_shared, held))


def _mean(report: ModuleCoverage) -> float:
    return report.seconds / report.calls if report.calls else float("nan")


def array_html(array: Any, root: torch.nn.Module) -> str:
    """Return a line about the array and its models, and the coverage."""
    parameters = list(array.parameters())
    each = sum(p.numel() for p in parameters) // array.B
    size_mb = sum(p.nbytes if p.stride(0) else p[0].nbytes for p in parameters) / 1e6  # shared ones once
    devices = ", ".join(sorted({str(p.device) for p in parameters})) or "no device"
    models = f"model{'s' * (array.B != 1)} {type(root).__name__}"
    line = f"array of {array.B} {models}: {each:,} parameters each, {size_mb:,.1f} MB in all on {devices}"
    return f"<p>{escape(line)}</p>{coverage(array)._repr_html_()}"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds > 0 else ""  # NaN before the first call
