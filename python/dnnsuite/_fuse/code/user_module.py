# SPDX-License-Identifier: MIT
"""User's module in an array: its own code, run once for all models."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any

import torch

from ..._torch import backward_pass, tree_leaves, tree_map
from ...errors import InvalidArgument
from ...nn.forward_state import unwatched
from ...nn.model_tensor import ModelTensor, NotFusable, Refused, RunsAnew, WritesShared, expanded, outside, state, wrap
from ...nn.own_tensors import OwnTensors, ranks_of, refuse_deletion, seen_in_forward, set_in_forward
from ...nn.random_streams import FUNCTION_STREAM
from ...nn.sharing import copies_of_shared
from ...ops.torch_on_arrays import register
from ..hooks import hooks_so_far, remove_hooks_since
from ..module_copies import copied
from ..rebound import refers_outside, refuse_held_by
from ..rules.table import settle_since
from ..state import SparseBuffers
from .call_user_code import enter, method_named, start_anew
from .draws import ONE_GENERATOR, drawing_alone, making
from .epilogue_fusion import Sequential
from .kept_state import KeptOutside, KeptState, LastKept, in_capture, note_written, undo_written
from .late_draws import Code, may_look_later, may_write_parameters, reachable
from .one_by_one import ModelParts
from .own_values import (
    BEGIN,
    NO_ATTRIBUTES,
    ModuleCoverage,
    class_of_its_own,
    names_of_own,
    own_attributes,
    read_number,
    set_for_all,
    take_own,
)
from .stand_in import ModelNumber


class UserModule(SparseBuffers, OwnTensors):
    """Mix-in of a copy of a user's module, before the user's class.

    Outside of a forward its parameters are `[B, ...]`; inside, its code sees those of one model.
    """

    _fused_B: int
    _fused_report: ModuleCoverage
    _fused_parts: Any
    _fused_outward: bool | None
    _fused_making: bool
    _fused_original: type[torch.nn.Module]
    _fused_looks_up: bool  # its class finds attributes as torch's do

    def __init_subclass__(cls) -> None:
        """Leave out what the user's class does for those that derive from it, such as to note them."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inside = bool(state.B) or any(type(a) is ModelTensor for a in tree_leaves((args, kwargs)))
        if not self._fused_code:
            return self._fused_call_on_arrays(inside, args, kwargs)
        if not inside:
            return enter(self, self, self._fused_B, args, kwargs)
        if self._fused_report.reason:
            if state.B and self._fused_refers_outside():
                raise NotFusable(self._fused_report.reason)
            return self._fused_one_by_one(args, kwargs)
        return self._fused_all_at_once(args, kwargs)

    def _fused_refers_outside(self) -> bool:
        """Return True if its code may reach its parent: that must be run model by model, and it with it."""
        if self._fused_outward is None:
            self._fused_outward = refers_outside(self)  # type: ignore[arg-type]
        return self._fused_outward

    def _fused_call_on_arrays(self, inside: bool, args: Any, kwargs: Any) -> Any:
        call = super().__call__  # type: ignore[misc]
        if not inside:
            return call(*args, **kwargs)
        args, kwargs = tree_map(lambda a: expanded(a, self._fused_B), (args, kwargs))
        with outside():
            return tree_map(wrap, call(*args, **kwargs))

    def _fused_all_at_once(self, args: Any, kwargs: Any) -> Any:
        if state.keeping is not None and self._fused_spares(args):
            return self._fused_without_keeping(args, kwargs)
        before, report = state.B, state.report
        state.B, state.report = self._fused_B, self._fused_report
        mark = len(state.pending)
        kept, begun = self._fused_keep(args, kwargs), (len(state.written), hooks_so_far())
        late = None if kept is not None else self._fused_keep_late(method_named(args))
        wary, state.wary = state.wary, state.wary or torch.is_grad_enabled()
        try:
            output = self._fused_call_keeping(mark, kept, begun, args, kwargs)
        except RunsAnew as error:
            state.pending = state.pending[:mark]
            if state.checkpoints or (before and kept is None and self._fused_refers_outside()):
                raise
            again = kept is not None
            self._fused_turn_back(kept or late, begun, "" if again else str(error), report)
        except NotFusable as error:
            state.pending = state.pending[:mark]
            again = isinstance(error, WritesShared) and state.making < 2 and not self._fused_making
            if before and not again and (isinstance(error, WritesShared) or self._fused_refers_outside()):
                raise  # what is written into was made by code further out; or it runs with that, model by model
            self._fused_turn_back(kept or late, begun, "" if again else str(error), report)
            self._fused_making = self._fused_making or again
            start_anew(str(error))
        except Exception as error:
            state.pending = state.pending[:mark]
            if _is_final(error, kept) or (before and self._fused_refers_outside()):
                raise
            why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            self._fused_turn_back(kept, begun, why, report)
            start_anew(str(error))
            return self._fused_second_try(args, kwargs, error, kept)
        else:
            self._fused_note_call(method_named(args), kept)
            return output
        finally:
            state.B, state.report, state.wary = before, report, wary
            if not before:  # nothing further out begins anew
                del state.written[begun[0] :]
        return self._fused_all_at_once(args, kwargs) if again else self._fused_one_by_one(args, kwargs)

    def _fused_spares(self, args: Any) -> bool:
        """Return True if a module further out has kept what a known method of this one may change: to keep it again in
        each part took longer than the parts themselves."""
        if not self._fused_unsure or self._fused_acts_outside or state.checkpoints:
            return False
        if self._fused_acts and not state.keeping.objects:
            return False
        known = (method_named(args), self.training, torch.is_grad_enabled()) in self._fused_known
        return known and id(self) in state.keeping.inside

    def _fused_without_keeping(self, args: Any, kwargs: Any) -> Any:
        """Run the code for all models; if it fails, the module that has kept its state begins anew."""
        before, report, keeping, mark = state.B, state.report, state.keeping, len(state.pending)
        state.B, state.report = self._fused_B, self._fused_report
        try:
            output = self._fused_call(mark, None, args, kwargs)
        except Exception:
            keeping.failed = True
            raise
        finally:
            state.B, state.report = before, report
        self._fused_report.calls += bool(self._fused_report.mapped)
        return output

    def _fused_call_keeping(
        self, mark: int, kept: KeptState | None, begun: tuple[int, int], args: Any, kwargs: Any
    ) -> Any:
        """Call the user's code, whose parts leave it to `kept` to undo what they change; once more, without that, if
        one of them has failed."""
        before, state.keeping = state.keeping, None if state.checkpoints else kept
        try:
            output = self._fused_call(mark, kept, args, kwargs)
            if kept is None or not kept.failed:  # the user's code may have caught the error
                return output
        except Exception:
            if kept is None or not kept.failed:
                raise
        finally:
            state.keeping = before
        state.pending, state.keeping = state.pending[:mark], None
        try:
            kept.failed = False
            self._fused_turn_back(kept, begun, "", None)
            return self._fused_call(mark, kept, args, kwargs)
        finally:
            state.keeping = before

    def _fused_call(self, mark: int, kept: KeptState | None, args: Any, kwargs: Any) -> Any:
        """Call the user's code; then compute the tensors deferred since `mark`, except its output."""
        if self._fused_making and state.making < 2:
            with making(memory=True):
                return self._fused_call(mark, kept, args, kwargs)
        name = method_named(args)
        call = getattr(self, name) if name else super().__call__  # type: ignore[misc]
        try:
            output = call(*args[bool(name) :], **kwargs)
        except NotFusable:
            raise
        except BaseException as error:
            again = kept is not None and isinstance(error, Exception)  # a second try puts all back
            if not again and backward_pass() == -1:
                settle_since(mark)  # layers that were called have their statistics, as in a single model
            raise
        settle_since(mark, output)
        numbers = None if kept is None else kept.numbers
        if numbers is not None and self._fused_unsure and numbers.moved():
            raise NotFusable("it draws from Python's or NumPy's random module")
        if numbers is not None and self._fused_B > 1 and numbers.torch_moved():
            state.drew_alone = True  # what was drawn is not used
            raise NotFusable(ONE_GENERATOR)
        return output

    def _fused_note_call(self, method: str, kept: KeptState | None) -> None:
        """Note that the code of `method` has run for all models at once in the current modes."""
        if kept is not None:
            with unwatched():
                self._fused_note_changes(method, kept)
        if not self._fused_report.asked:
            self._fused_known.add((method, self.training, torch.is_grad_enabled()))
        self._fused_report.calls += bool(self._fused_report.mapped)

    def _fused_note_changes(self, method: str, kept: KeptState) -> None:
        looking = method in self._fused_looking
        if kept.changed() or (looking and _parts_act(self, kept.holders)):
            # A later call that begins anew must find all as it was. The models of parts that run model by model were
            # made in this call: no change in them was seen.
            self._fused_unsure = True
            self._fused_acts = True
        if kept.outside is not None:
            self._fused_acts_outside = kept.acts_outside()  # once only: a cache was filled
        if looking:
            names = [*self._fused_changed.get(method, ()), *kept.changed_buffers()]
            self._fused_changed[method] = tuple(dict.fromkeys(names))

    def _fused_second_try(self, args: Any, kwargs: Any, error: Exception, kept: KeptState | None) -> Any:
        """Run the models one by one after an error in code for all at once; an error there is the user's.

        It leaves no trace: the first model has run up to the error, and the others have not.
        """
        state.B, before = 0, state.B
        try:
            return self._fused_one_by_one(args, kwargs)
        except InvalidArgument:
            raise error from None
        except Exception as own:
            self._fused_report.reason, self._fused_parts = "", None
            if kept is not None:
                kept.put_back()
            own.__dict__["_of_a_model"] = True
            raise own from None
        finally:
            state.B = before

    def _fused_keep(self, args: Any, kwargs: Any) -> KeptState | None:
        """Copy what a method may change before its first run; None once it has run."""
        method = method_named(args)
        known = (method, self.training, torch.is_grad_enabled()) in self._fused_known
        if known and not (self._fused_unsure or self._fused_acts_outside):
            return None
        first = method not in self._fused_writing
        code = reachable(self, method) if first or self._fused_acts_outside else Code()  # type: ignore[arg-type]
        if first:
            self._fused_writing[method] = may_write_parameters(code)
            if may_look_later(code):
                self._fused_looking.add(method)
        objects = not known or self._fused_acts
        outside = None
        if first or self._fused_acts_outside:
            outside = KeptOutside(self, code, [*args, *kwargs.values()])  # type: ignore[arg-type]
        others = first or self._fused_elsewhere
        with unwatched():
            last = None if first else self._fused_last
            return KeptState(self, self._fused_writing[method], objects, others, None, outside, known, last)

    def _fused_keep_late(self, method: str) -> KeptState | None:
        """Copy what `method` changed in its first run, if a later one may look at values and begin anew."""
        names, writing = self._fused_changed.get(method, ()), self._fused_writing.get(method, False)
        if method not in self._fused_looking or not (names or writing):
            return None
        return KeptState(self, writing, buffers=names)

    def _fused_turn_back(self, kept: KeptState | None, begun: tuple[int, int], reason: str, outer: Any) -> None:
        """Undo what a try has changed, and note the `reason` to run the models one by one.

        Raises:
            NotFusable: if the code changes something outside of this part, and there is an `outer` one: that has to
                run model by model, for what each model leaves to be each model's.
        """
        state.turns += 1
        parts = set(map(id, self.modules()))
        acts = any(id(module) not in parts for module, _, _ in state.written[begun[0] :])
        acts = acts or (kept is not None and kept.acts_outside())
        undo_written(begun[0])
        remove_hooks_since(begun[1], self)  # type: ignore[arg-type]
        if kept is None:
            names = {name.rpartition(".")[2] for name, _ in self.named_buffers()}
            acts_inside = _parts_act(self, self.modules())
            if acts_inside or (self.training and names - {FUNCTION_STREAM}):
                what = "what its parts keep" if acts_inside else "buffers"
                raise InvalidArgument(
                    f"{self._fused_original.__name__} went another way than before ({reason}), with {what} already "
                    "changed; call array.per_model(name) with the name of this module before training"
                )
        else:
            kept.put_back()
        self._fused_report.reason = reason
        if acts and reason and outer is not None:
            raise NotFusable(f"{reason}, in {self._fused_original.__name__}, which changes values outside of it")

    def _fused_one_by_one(self, args: Any, kwargs: Any) -> Any:
        if self._fused_parts is None:
            if self._fused_B == 1 and take_own(self):  # type: ignore[arg-type]
                return self(*args, **kwargs)
            if self._fused_own is None:
                self._fused_parts = ModelParts(self)
            else:  # values of their own, which code has read
                begin = [own_attributes(self, index, {}) for index in range(self._fused_B)]
                self._fused_set_apart(begin, names_of_own(self), "")
        begin = time.perf_counter()
        with drawing_alone():
            output = self._fused_parts(args, kwargs)
        self._fused_report.seconds += time.perf_counter() - begin
        self._fused_report.calls += 1
        return output

    def _fused_set_apart(self, begin: list[dict[str, Any]], names: Iterable[str], reason: str) -> None:
        """Run the models one by one, for a `reason`; each begins with its own of the attributes `names`."""
        self._fused_parts, self._fused_own = ModelParts(self, begin), None
        self._fused_withhold(names)
        self._fused_report.reason = self._fused_report.reason or reason

    def _fused_withhold(self, names: Iterable[str]) -> None:
        """Take away attributes that differ: code for all models must not see those of the first."""
        self._fused_withheld = frozenset(names)
        for name in self._fused_withheld:
            self.__dict__.pop(name, None)

    def _fused_restore(self, attributes: dict[str, Any]) -> None:
        """Make this the module of one model, with `attributes` of its own."""
        self.__dict__.update(attributes, _fused_withheld=frozenset(), _fused_parts=None, _fused_own=None)
        self.__dict__["_fused_report"] = ModuleCoverage()

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__
        if type(self)._fused_looks_up and name in held.get("_modules", ()):  # the most frequent by far
            found = held["_modules"][name]
            if found is not None and name not in held.get("_fused_withheld", ()):
                return found
        if name in held.get("_fused_withheld", ()):
            number = read_number(self, name) if state.B else None
            if number is not None:
                return number
            what = f"{name} of {self._fused_original.__name__} differs from model to model"
            if state.B:
                raise NotFusable(what)
            raise AttributeError(
                f"{what}: array[i].{name} is that of model i. A loss that reads it belongs "
                f"in the models, e.g. F.cross_entropy(out, y, label_smoothing=self.{name}) at the end of forward; "
                "the loss function of a StepRunner then returns array(x, y)"
            )
        value = super().__getattr__(name)  # type: ignore[misc]
        if not state.B and isinstance(value, torch.Tensor) and backward_pass() != -1:
            raise InvalidArgument(
                f"{self._fused_original.__name__}.{name} is read in a backward pass, where a checkpoint runs a forward "
                "again: use dnnsuite.nn.checkpoint in place of torch.utils.checkpoint.checkpoint"
            )
        if state.B and isinstance(value, torch.Tensor) and type(value) is not ModelTensor:
            rank = self._fused_ranks.get(name) if name in self._parameters else None
            return seen_in_forward(self, name, value, rank)  # type: ignore[arg-type]
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if state.B and (type(value) is ModelNumber or name in (self.__dict__.get("_fused_own") or [()])[0]):
            raise NotFusable(f"its code sets {name}, which differs from model to model")
        made = type(value) in (torch.Tensor, torch.nn.Buffer) and name in self.__dict__.get("_buffers", ())
        if type(value) is ModelTensor or (state.B and made):
            set_in_forward(self, self._fused_B, name, value)  # type: ignore[arg-type]
            return
        if state.B and isinstance(value, torch.nn.Module) and next(value.parameters(), None) is not None:
            _refuse_new(self, name, value)
        if state.B and not name.startswith("_fused_"):
            note_written(self, name)
        elif not state.B and name not in NO_ATTRIBUTES and not name.startswith("__"):
            refuse_held_by(self, name, value)  # type: ignore[arg-type]
        super().__setattr__(name, value)
        if state.B or name == "training" or name.startswith(("_fused_", "__")):
            return
        if "_fused_parts" in self.__dict__:
            written = self.__dict__.get("_fused_written", {})
            self.__dict__["_fused_written"] = {**written, name: written.get(name, 0) + 1}
            set_for_all(self, name, value)
            parts = self._fused_parts
            if parts is not None and parts.own and name not in (*self._parameters, *self._buffers, *self._modules):
                parts.forget(name)  # plain models follow by themselves, as a loop over models would
                self.__dict__["_fused_withheld"] = self._fused_withheld - {name}

    def __delattr__(self, name: str) -> None:
        refuse_deletion(self, name)  # type: ignore[arg-type]
        super().__delattr__(name)

    def __setstate__(self, held: dict[str, Any]) -> None:
        """Restore what was pickled; a user's own method would do so for a single model."""
        torch.nn.Module.__setstate__(self, held)  # type: ignore[arg-type]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copies_of_shared(self, memo)  # type: ignore[arg-type]
        return copied(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _bare, (self._fused_original,), self.__dict__


def _parts_act(module: Any, modules: Iterable[torch.nn.Module]) -> bool:
    """Return True if parts of `module`, among `modules`, run model by model, and their code may keep something in
    Python."""
    parts: list[Any] = [vars(part).get("_fused_parts") for part in modules if part is not module]
    return any(one is not None and one.plain is not None and one.plain.may_act for one in parts)


def _refuse_new(module: Any, name: str, value: torch.nn.Module) -> None:
    """Refuse a layer that one model's code makes: each model would need its own, and the optimizer would miss it."""
    if value is not module._modules.get(name) and not any(value is part for part in module.modules()):
        raise Refused(
            f"the forward of {module._fused_original.__name__} makes the {type(value).__name__} {name}: make it in the "
            "constructor, or call each model once and fuse the models then"
        )


def _is_final(error: Exception, kept: KeptState | None) -> bool:
    """Return True for an error that running the models one by one would not avoid; put back what it left changed."""
    if isinstance(error, Refused) or hasattr(error, "_of_a_model"):
        if kept is not None:
            kept.put_back()
        return True
    # In a backward pass it is of a second run, or torch's own to say that it has run enough; in a capture, CUDA's.
    return kept is None or backward_pass() != -1 or in_capture()


def _bare(original: Any) -> torch.nn.Module:
    kind = user_module_class(original)
    return kind.__new__(kind)


_COLLECTIONS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.nn.ParameterDict)


def _be_plain(module: Any, *args: Any, **kwargs: Any) -> None:
    """Construct torch's own collection, as the slice `array.layers[:2]` of one is."""
    module.__class__ = module._fused_original
    module.__init__(*args, **kwargs)


@functools.cache
def user_module_class(original: Any) -> Any:
    """Return the class of an array's copies of `original` modules."""
    body = {
        "_fused_original": original,
        "_fused_looks_up": original.__getattr__ is torch.nn.Module.__getattr__,
        "__module__": original.__module__,
        "__doc__": original.__doc__,
    }
    if original in _COLLECTIONS:
        body["__init__"] = _be_plain
    own: Any = type(original)
    return _meta(own)(original.__name__, (original, UserModule), body)


@functools.lru_cache(maxsize=64)
def _meta(own: Any) -> Any:
    """Return the class of the classes of an array's modules, where that of the users' classes is `own`.

    `mro` puts `UserModule` first although the user's class is the first base: an object can get another class only if
    that has the same layout, which Python takes from the first base. A base before `torch.nn.Module`, such as `ABC`,
    `Generic` or a mix-in with empty `__slots__`, makes the layout another one than that of `UserModule`.
    """

    def mro(kind: Any) -> list[Any]:
        original = vars(kind)["_fused_original"]
        return [kind, *(base for base in UserModule.__mro__ if not issubclass(original, base)), *original.__mro__]

    def delete(kind: Any, name: str) -> None:
        original = kind._fused_original
        if original.__name__.startswith("Parametrized") and isinstance(vars(original).get(name), property):
            raise InvalidArgument(
                f"{name} of a fused {original.__name__} is made by a parametrization, which cannot be removed after "
                "fuse: remove it from the models, and fuse them again"
            )
        own.__delattr__(kind, name)

    return type(own.__name__, (own,), {"mro": mro, "__delattr__": delete})


def make_user_module(module: torch.nn.Module, B: int) -> None:
    """Turn `module`, a copy of a user's with its state stacked already, into an array's."""
    # The models' own class: the array's way to run a container is none of a single model's.
    original = torch.nn.Sequential if type(module) is Sequential else class_of_its_own(type(module), module)
    module.__class__ = user_module_class(original)
    register(module)
    module.__dict__.update({name: begin() for name, begin in BEGIN.items()})
    SparseBuffers._fused_take_sparse(module)  # type: ignore[arg-type]
    module.__dict__.update(
        _fused_B=B,
        _fused_code=not getattr(original, "array_forward", False),
        _fused_last=LastKept(),
        _fused_ranks=ranks_of(module),
    )
