# SPDX-License-Identifier: MIT
"""Models into an array of models, and back."""

from .array import Array
from .code.call_user_code import is_record, names_of_record
from .code.kept_state import SharedNumbers
from .code.late_draws import analysed_once
from .code.lent_parameters import gives_own_memory
from .code.one_by_one import is_in_a_model_apart, layers_set, models_apart, plain_models_of, reads_own_values
from .code.own_values import names_of_own, numbers_read
from .code.stand_in import attributes_alone, stands_in
from .coverage import Cover, asks_for_numbers, coverage, differ_by_numbers, notes, take_notes
from .diverged import Divergence, OwnAttributes, take_from_models, take_settings
from .edits import EditsInPlace, edition_of
from .fusing import fuse, stack, unfuse, unstack, width
from .hooks import has_backward_hook, hooks_in, hooks_so_far, take_hooks
from .left_tensors import joined, tensors_in
from .loop_choice import chosen_loop, in_step, loops, run_apart, run_in_a_loop, runs_of
from .rebound import arrays_in, holds_module
from .rules import dimensions as _dimensions  # noqa: F401
from .rules import elementwise, functional, quick, random, shapes  # noqa: F401
from .single_model import narrow, views
from .state import StateBytes, state_bytes

__all__ = [
    "Array", "Cover", "Divergence", "EditsInPlace", "OwnAttributes", "SharedNumbers", "StateBytes", "analysed_once",
    "arrays_in", "asks_for_numbers", "attributes_alone", "chosen_loop", "coverage", "differ_by_numbers", "edition_of",
    "fuse", "gives_own_memory", "has_backward_hook", "holds_module", "hooks_in", "hooks_so_far", "in_step",
    "is_in_a_model_apart", "is_record", "joined", "layers_set", "loops", "models_apart", "names_of_own",
    "names_of_record", "narrow", "notes", "numbers_read", "plain_models_of", "reads_own_values", "run_apart",
    "run_in_a_loop", "runs_of", "stack", "stands_in", "state_bytes", "take_from_models", "take_hooks", "take_notes",
    "take_settings", "tensors_in", "unfuse", "unstack", "views", "width",
]  # fmt: skip
