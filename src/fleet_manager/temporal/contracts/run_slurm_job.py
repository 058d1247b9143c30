"""`RunSlurmJob`: one job to its end, whichever transport takes it there."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleet_manager.core.domain.slurm_job import JobEnd
from fleet_manager.temporal.contracts.common import Contract, Payload, SiteId

WORKFLOW = "RunSlurmJob"
QUERY_PROGRESS = "progress"
UPDATE_CANCEL_JOB = "cancel_job"


class JobRequest(Contract):
    """What to run: the mode fields of a provider, or their like."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    script: Annotated[str, Field(min_length=1, max_length=65_536)]
    partition: str
    time_limit_minutes: Annotated[int, Field(gt=0)] = 60
    gres: str | None = None
    nodes: Annotated[int, Field(gt=0)] | None = None


class RunSlurmJobInput(Contract):
    """Where to run it: a site's slurmrestd, or a provider's login node."""

    site: SiteId
    job: JobRequest
    provider: str | None = None


class RunSlurmJobResult(Payload):
    """The end, told apart."""

    job_id: int | None
    end: JobEnd
    why: str


def workflow_id(site: str, name: str) -> str:
    """Return the id of a job: its name is what a lost submit is found by."""
    return f"job/{site}/{name}"
