"""The jobs of a burn-in: submitted once, watched to their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import AwareDatetime
from temporalio import activity

from fleet_manager.core.clients.errors import Unavailable
from fleet_manager.core.clients.slurmrest.errors import NotSupportedHere
from fleet_manager.core.clients.slurmrest.protocol import SlurmClient
from fleet_manager.core.clients.watch import Watch
from fleet_manager.core.domain.burn_in import BurnInPlace, evidence, job_name, job_spec, suite
from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.slurm_job import JobEnd, JobPhase, SlurmJob, judge, never_ran, words_of_job
from fleet_manager.settings.site import SiteSettings
from fleet_manager.temporal.activities.waiting import beat_while
from fleet_manager.temporal.contracts.common import Failure, Payload

log = logging.getLogger(__name__)

UNREAD = "SLURM was not read yet"
RECORD_PATIENCE = timedelta(minutes=2)
"""How long slurmdbd may take to know of a job that slurmctld has forgotten; after that its end is lost."""


class SubmitParams(Payload):
    """Which job of which suite, on which node, in which reservation."""

    node: str
    build_id: str
    reservation: str
    gres: str
    suite: str
    job: int
    """Index in the suite."""
    attempt: int = 1


class WaitJobParams(Payload):
    """Which job, until when it must have started, and until when ended."""

    job_id: int
    suite: str
    job: int
    start_by: AwareDatetime
    end_by: AwareDatetime


class JobReport(Payload):
    """How a job of a burn-in ended."""

    job_id: int
    end: JobEnd
    evidence: str


@dataclass(frozen=True)
class _End:
    end: JobEnd
    why: str
    return_code: int | None = None


_FORGOTTEN = _End(JobEnd.INFRASTRUCTURE, "slurmctld has forgotten it, and slurmdbd has no end of it")


@dataclass
class BurnInActivities:
    """Needs SLURM alone."""

    slurm: SlurmClient
    watch: Watch
    site: SiteSettings
    now: Callable[[], datetime]

    @activity.defn
    async def submit_burn_in(self, params: SubmitParams) -> int:
        """Submit the job, unless an earlier try did; return its id. Of two with its name the first is kept.

        Raises:
            SubmitRefused: slurmctld does not take it. Unavailable: look again.
        """
        place = BurnInPlace(
            node=params.node,
            partition=self.site.burn_in_partition,
            reservation=params.reservation,
            gres=params.gres,
            build_id=params.build_id,
            path=self.site.burn_in_path,
            working_directory=self.site.burn_in_directory,
            account=self.site.burn_in_account,
        )
        wanted = suite(params.suite).jobs[params.job]
        found = sorted(job.id for job in await self.slurm.jobs_named(job_name(place, wanted, params.attempt)))
        for extra in found[1:]:
            log.warning("job %d has the same name as %d: cancelled", extra, found[0])
            await self.slurm.cancel(extra)
        if found:
            return found[0]
        submitted = await self.slurm.submit(job_spec(place, wanted, params.attempt))
        if submitted.refused or submitted.warnings:
            log.info("job %d: %s", submitted.job_id, "; ".join((*submitted.refused, *submitted.warnings)))
        return submitted.job_id

    @activity.defn
    async def wait_for_job(self, params: WaitJobParams) -> JobReport:
        """Wait for the job's end. One that does not start in time is cancelled and told as never started.

        Raises:
            Refused: it has not ended by the deadline although its own time limit has passed.
        """
        wanted = suite(params.suite).jobs[params.job]
        seen = [UNREAD]
        trouble: list[str] = []
        found = await beat_while(
            self._end(params, seen, trouble),
            deadline=params.end_by,
            now=self.now,
            words=lambda: f"SLURM cannot be read now: {trouble[0]}" if trouble else seen[0],
            looked=lambda: bool(trouble) or seen[0] != UNREAD,
            too_late=lambda: Refusal(
                code=Failure.WAIT_DEADLINE, why=f"Job {params.job_id} has no end in time: {seen[0]}."
            ),
        )
        words = evidence(wanted, params.job_id, found.end, found.why, found.return_code)
        return JobReport(job_id=params.job_id, end=found.end, evidence=words)

    async def _end(self, params: WaitJobParams, seen: list[str], trouble: list[str]) -> _End:
        def decide(job: SlurmJob | None) -> _End | None:
            if job is None:
                return _FORGOTTEN
            verdict = judge(job)
            seen[0] = words_of_job(job)
            late = self.now() > params.start_by
            if verdict.end is JobEnd.CANCELLED and late and never_ran(job):  # by our own earlier try of this wait
                return _End(JobEnd.NEVER_STARTED, seen[0])
            if verdict.end:
                return _End(verdict.end, verdict.why, job.return_code)
            return _End(JobEnd.NEVER_STARTED, seen[0]) if late and verdict.phase is JobPhase.PENDING else None

        found = await self.watch.jobs.wait(params.job_id, decide, trouble)
        if found is _FORGOTTEN:
            return await self._recorded_end(params.job_id, seen)
        if found.end is JobEnd.NEVER_STARTED:
            await self.slurm.cancel(params.job_id)
        return found

    async def _recorded_end(self, job_id: int, seen: list[str]) -> _End:
        """Ask slurmdbd for a job that slurmctld has forgotten. No record is unknown, never an end (case 004)."""
        until = self.now() + RECORD_PATIENCE
        while self.now() < until:
            seen[0] = f"job {job_id} is forgotten by slurmctld, asking slurmdbd"
            try:
                job = await self.slurm.job_record(job_id)
            except NotSupportedHere:
                return _FORGOTTEN
            except Unavailable as error:
                seen[0] = f"slurmdbd cannot be read now: {error}"
                job = None
            verdict = judge(job) if job else None
            if job and verdict and verdict.end:
                return _End(verdict.end, verdict.why, job.return_code)
            await asyncio.sleep(self.site.watch_interval.total_seconds())
        return _FORGOTTEN
