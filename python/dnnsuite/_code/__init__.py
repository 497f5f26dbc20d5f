# SPDX-License-Identifier: MIT
"""Facts of code objects from their instructions, without running them."""

from .writes import Change, changed_names, changes_of, codes_of

__all__ = ["Change", "changed_names", "changes_of", "codes_of"]
