# SPDX-License-Identifier: MIT
"""Jobs of the suite made small, for their tests."""

from dnnsuite import jobs


def make(name, batch_size=2, **config):
    """The job, ready for its first step. What is no field of JobConfig is an option."""
    kind = jobs.get(name)
    options = {"steps"} & set(getattr(kind, "defaults", ()))  # is a job's own option, and a field of JobConfig
    own = jobs.JobConfig.__dataclass_fields__.keys() - options
    fields = {key: config.pop(key) for key in list(config) if key in own}
    job = kind(jobs.JobConfig(batch_size=batch_size, options=config, **fields))
    job.setup()
    return job


def losses(job, steps):
    """The loss of each of the next `steps`."""
    values = []
    for _ in range(steps):
        job.step()
        values += job.losses()
    return values


def parameters(job):
    """Their number, which the record must have too."""
    number = sum(p.numel() for p in job.model.parameters())
    assert job.provenance()["parameters_per_model"] == number
    return number
