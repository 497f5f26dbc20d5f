# SPDX-License-Identifier: MIT
"""The eight workloads of HFTA's throughput study (MLSys 2021), each a declaration of one plain model."""
