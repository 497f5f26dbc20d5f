# SPDX-License-Identifier: MIT
"""Facts of an operator's schema that a recording needs, read once for each operator: what it writes, views and draws.

They decide whether it may be recorded at all, and whether a replay may leave it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Results that depend on the shape of the arguments alone, or on no tensor.
_FILLED = {"ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"} | {
    "ones",
    "zeros",
    "full",
    "arange",
    "scalar_tensor",
    "eye",
    "linspace",
}
#: Operators that write into arguments of which their schemas do not say so: the names of those.
_WRITES_UNSAID = {f"aten::{name}_batch_norm": ("running_mean", "running_var") for name in ("native", "cudnn", "miopen")}
#: Operators that write nothing, though their schemas say so: `record_stream` tells the allocator who reads a tensor.
_WRITES_NOTHING = {"aten::record_stream"}
_RATE_ARGUMENTS = ("dropout_p", "p", "train", "dropout")
_LOOK = "aten::_local_scalar_dense"


@dataclass(frozen=True)
class Operator:
    """Facts about one operator.

    Attributes:
        defaults: name and default value of each argument, in order.
        written: places of the arguments that it writes into.
        rates: places of the arguments that are 0 where it draws no random numbers.
        by_shape: True if its results depend on the shapes of the arguments alone, or on no tensor.
        only_acts: True if it returns nothing, so it is called for its effect.
        returns_list: True if it returns one list.
        looks: True if it returns a tensor's value to Python; `scalar` if as one number.
        sized_by_values: True if the shape of its result depends on values, or would with a mask among the arguments.
        reshapes: True if it changes its argument's shape in place; `view` is the operator that returns such a view.
        draws: True if it draws from torch's generator.
        types: the schema's type of each argument.
        keywords: True for each argument that is given by its name only.
    """

    name: str
    defaults: tuple[tuple[str, Any], ...]
    written: tuple[int, ...]
    rates: tuple[int, ...]
    by_shape: bool
    only_acts: bool
    returns_list: bool
    looks: bool
    scalar: bool
    sized_by_values: bool
    reshapes: bool
    view: Any
    draws: bool
    types: tuple[str, ...]
    keywords: tuple[bool, ...]

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """List every argument in the schema's order, defaults filled in."""
        given = list(args)
        for name, default in self.defaults[len(given) :]:
            given.append(kwargs.get(name, default))
        return given


_known: dict[Any, Operator | None] = {}


def operator_of(func: Any) -> Operator | None:
    """Look an operator up; None for one without a schema."""
    found = _known.get(func)
    if found is None and func not in _known:
        found = _known[func] = _read(func)
    return found


def known_operator(func: Any) -> Operator:
    """Look up an operator that was recorded, which has a schema."""
    found = operator_of(func)
    assert found is not None
    return found


def _read(func: Any) -> Operator | None:
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    tags, name, arguments = func.tags, schema.name.split("::")[1], schema.arguments
    aliases, types = [one.alias_info for one in arguments], tuple(str(one.type) for one in arguments)
    unsaid = _WRITES_UNSAID.get(schema.name, ())
    said = [place for place, alias in enumerate(aliases) if alias is not None and alias.is_write]
    if schema.name in _WRITES_NOTHING:
        said = []
    names, returns = [one.name for one in arguments], schema.returns
    return Operator(
        schema.name.replace("::", "."),
        tuple((one.name, one.default_value) for one in arguments),
        tuple(place for place, one in enumerate(names) if place in said or one in unsaid),
        tuple(place for place, one in enumerate(names) if one in _RATE_ARGUMENTS),
        by_shape=name in _FILLED,
        only_acts=not returns,
        returns_list=len(returns) == 1 and isinstance(returns[0].type, torch.ListType),
        looks=torch.Tag.data_dependent_output in tags or schema.name == _LOOK,
        scalar=schema.name == _LOOK,
        sized_by_values=torch.Tag.dynamic_output_shape in tags,
        reshapes=torch.Tag.inplace_view in tags,
        view=_view_of(func),
        draws=torch.Tag.nondeterministic_seeded in tags,
        types=types,
        keywords=tuple(one.kwarg_only for one in arguments),
    )


def _view_of(func: Any) -> Any:
    """Find the operator that returns as a view what `func`, such as `unsqueeze_`, does to its argument; None if there
    is none. The step uses the tensor in its new shape from then on, so the view serves as well."""
    if torch.Tag.inplace_view not in func.tags:
        return None
    twin = getattr(torch.ops.aten, func._schema.name.split("::")[1].rstrip("_"), None)
    wanted = [(one.name, str(one.type)) for one in func._schema.arguments]
    for overload in twin.overloads() if twin is not None else ():
        found = getattr(twin, overload)
        aliases = [one.alias_info for one in found._schema.returns]
        takes = [(one.name, str(one.type)) for one in found._schema.arguments]
        if takes == wanted and aliases and all(one is not None and not one.is_write for one in aliases):
            return found
    return None
