# SPDX-License-Identifier: MIT
"""Workloads of what machines are bought for today, one in each file, with its model and its card."""
