# SPDX-License-Identifier: MIT
"""Rules: the meaning of each torch function on the tensors of B models. Importing a module here registers its rules."""
