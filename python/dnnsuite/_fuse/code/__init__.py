# SPDX-License-Identifier: MIT
"""A user's own code on stacked `[B, ...]` tensors: called for all models at once, or model by model."""
