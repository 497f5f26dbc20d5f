# SPDX-License-Identifier: MIT
"""Models into an array of models, and back."""

from .array import Array as Array
from .batch import stack as stack
from .batch import unstack as unstack
from .code.joined_outputs import is_record as is_record
from .code.joined_outputs import names_of_record as names_of_record
from .code.kept_state import SharedNumbers as SharedNumbers
from .code.one_by_one import generator_loans as generator_loans
from .code.one_by_one import models_apart as models_apart
from .code.one_by_one import plain_models_of as plain_models_of
from .code.one_by_one import reads_own_values as reads_own_values
from .code.own_values import names_of_own as names_of_own
from .code.own_values import numbers_read as numbers_read
from .code.stand_in import attributes_alone as attributes_alone
from .code.stand_in import stands_in as stands_in
from .coverage import Cover as Cover
from .coverage import coverage as coverage
from .coverage import notes as notes
from .coverage import take_notes as take_notes
from .diverged import Divergence as Divergence
from .diverged import take_from_models as take_from_models
from .edits import EditsInPlace as EditsInPlace
from .edits import edition_of as edition_of
from .fusing import fuse as fuse
from .fusing import unfuse as unfuse
from .fusing import width as width
from .hooks import has_backward_hook as has_backward_hook
from .hooks import hooks_in as hooks_in
from .hooks import hooks_so_far as hooks_so_far
from .hooks import take_hooks as take_hooks
from .left_tensors import joined as joined
from .loop_choice import asks_for_numbers as asks_for_numbers
from .loop_choice import differ_by_numbers as differ_by_numbers
from .loop_choice import loops as loops
from .loop_choice import run_in_a_loop as run_in_a_loop
from .loop_choice import runs_of as runs_of
from .rebound import arrays_in as arrays_in
from .rebound import holds_module as holds_module
from .rules import dimensions as _dimensions  # noqa: F401
from .rules import elementwise, gradients, layers, products, random, shapes  # noqa: F401
from .slices import OwnAttributes as OwnAttributes
from .slices import narrow as narrow
from .slices import views as views
from .state import StateBytes as StateBytes
from .state import state_bytes as state_bytes

__all__ = [
    "Array", "Cover", "Divergence", "EditsInPlace", "OwnAttributes", "SharedNumbers", "StateBytes",
    "arrays_in", "asks_for_numbers", "attributes_alone", "coverage", "differ_by_numbers", "edition_of",
    "fuse", "generator_loans", "has_backward_hook", "holds_module", "hooks_in", "hooks_so_far", "is_record",
    "joined", "loops", "models_apart", "names_of_own", "names_of_record", "narrow", "notes", "numbers_read",
    "plain_models_of", "reads_own_values", "run_in_a_loop", "runs_of", "stack", "stands_in", "state_bytes",
    "take_from_models", "take_hooks", "take_notes", "unfuse", "unstack", "views", "width",
]  # fmt: skip
