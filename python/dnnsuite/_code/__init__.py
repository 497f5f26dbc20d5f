# SPDX-License-Identifier: MIT
"""Facts of code objects from their instructions, without running them."""

from .any_names import any_names
from .names import (
    branches,
    content_of,
    functions_in,
    imports_of,
    line_of,
    loops_in,
    names_of,
    stored_attributes,
    texts_of,
)
from .writes import SELF, Change, changed_names, changes_of, codes_of, keeps_state, looked_up

__all__ = [
    "SELF", "Change", "any_names", "branches", "changed_names", "changes_of", "codes_of", "content_of", "functions_in",
    "imports_of", "keeps_state", "line_of", "looked_up", "loops_in", "names_of", "stored_attributes", "texts_of",
]  # fmt: skip
