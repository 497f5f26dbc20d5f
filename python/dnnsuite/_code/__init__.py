# SPDX-License-Identifier: MIT
"""Facts of code objects: what their instructions name, change and hold, without running them."""

from .writes import Change, changed_names, changes_of, codes_of

__all__ = ["Change", "changed_names", "changes_of", "codes_of"]
