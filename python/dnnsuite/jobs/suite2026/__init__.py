# SPDX-License-Identifier: MIT
"""Workloads of what machines are bought for today."""
