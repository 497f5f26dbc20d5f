# SPDX-License-Identifier: MIT
"""Architectures, written against the `nn` they are handed."""

from .bert import BERT as BERT

__all__ = ["BERT"]
