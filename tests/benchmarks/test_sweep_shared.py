# SPDX-License-Identifier: MIT
"""The benchmark of shared sweeps: its processes do a whole search, and its simulation follows what it is given."""

import sweep_shared


def test_a_run_with_a_kill_is_whole():
    run = sweep_shared.measured(workers=3, rounds=5, seconds=0.02, share=True, kills=1)
    assert (run.trials, run.twice, run.lost, run.killed) == (15, 0, 0, 1)
    assert run.overhead > 0


def test_the_simulation_queues_for_the_journal_and_hears_of_all():
    none = sweep_shared.Costs(0.0, 0.0, 0.0, 0.0, 0.0)
    assert sweep_shared.simulated(50, none, 0.2) < 0.02
    own = sweep_shared.Costs(0.0, 0.0, 0.0, 0.02, 0.0)
    assert 0.08 < sweep_shared.simulated(50, own, 0.2) < 0.12
    queued = sweep_shared.Costs(0.2, 0.0, 0.0, 0.0, 0.0)  # 50 writers need 10 s for one turn of 2 s
    assert 3.5 < sweep_shared.simulated(50, queued, 0.2) < 4.7
    heard = sweep_shared.Costs(0.0, 0.0, 0.0005, 0.0, 0.0)
    assert sweep_shared.simulated(200, heard, 0.2) > 2 * sweep_shared.simulated(50, heard, 0.2) > 0.1
