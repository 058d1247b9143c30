"""The calls about jobs. `protocol.py` says what each returns and raises."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import UnsetType

from fleet_manager.core.clients.errors import ClientError, Forbidden, Unavailable, UnavailableTimeout
from fleet_manager.core.clients.slurmrest import bodies, mapping, names, normalise, wire
from fleet_manager.core.clients.slurmrest.caller import Caller
from fleet_manager.core.clients.slurmrest.errors import PEER, JobNotFound, SubmitUnknown
from fleet_manager.core.domain.slurm_job import JobPhase, JobSpec, SlurmJob, Submitted, judge

ALREADY_OVER = frozenset({2017, 2021})
"""What a cancel says of a job that is unknown, or has ended: the aim is reached."""

NOT_SENT = frozenset({1800, 1801})
"""slurmrestd could not reach slurmctld at all, so nothing was done there."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class JobCalls:
    """Reads, submits and cancels jobs; a submit is sent once, whatever comes back."""

    _api: Caller

    async def read_jobs(self) -> tuple[SlurmJob, ...]:
        path = "/slurm/API/jobs/"
        answer = await self._api.call("GET", path, wire.JobsAnswer, mapping.JOBS)
        return self._api.each(normalise.job, answer.jobs, path)

    async def jobs(self) -> tuple[SlurmJob, ...]:
        return await self.read_jobs()

    async def jobs_on_node(self, name: str) -> tuple[SlurmJob, ...]:
        names.node_name(name)
        return tuple(job for job in await self.read_jobs() if name in job.nodes)

    async def jobs_named(self, name: str, user: str | None = None) -> tuple[SlurmJob, ...]:
        found = (job for job in await self.read_jobs() if job.name == name)
        return tuple(job for job in found if user is None or job.user == user)

    async def job(self, job_id: int) -> SlurmJob:
        path = f"/slurm/API/job/{names.job_id(job_id)}"
        answer = await self._api.call("GET", path, wire.JobsAnswer, mapping.JOB)
        found = [job for job in self._api.each(normalise.job, answer.jobs, path) if job.id == job_id]
        if len(found) != 1:
            raise self._api.unreadable(f"{len(found)} records of job {job_id} in the answer", "GET", path)
        return found[0]

    async def job_record(self, job_id: int) -> SlurmJob | None:
        await self._api.need("job_records", "job records (slurmdbd)")
        path = f"/slurmdb/API/job/{names.job_id(job_id)}"
        answer = await self._api.call("GET", path, wire.RecordsAnswer, mapping.JOB)
        found = [job for job in self._api.each(normalise.job_record, answer.jobs, path) if job.id == job_id]
        if not found and answer.jobs:
            raise self._api.unreadable(f"asked for job {job_id}, answered others", "GET", path)
        # A requeued job has one record a try; the newest start is the one that counts.
        return max(
            found, key=lambda job: (job.restarts, job.submit_time or datetime.min.replace(tzinfo=UTC)), default=None
        )

    async def submit(self, spec: JobSpec) -> Submitted:
        path, body = "/slurm/API/job/submit", bodies.submit(spec)
        await self._api.capabilities()
        try:
            answer, envelope = await self._api.exchange("POST", path, wire.SubmitAnswer, body=body)
        except UnavailableTimeout as error:
            raise self._may_exist(spec, error) from error
        errors = envelope.errors or []
        job_id = normalise.number(envelope.job_id) if isinstance(envelope, wire.SubmitAnswer) else None
        if job_id and job_id > 0:
            refused = (mapping.sentence([item]) for item in errors)
            return Submitted(job_id, mapping.warning_texts(envelope.warnings), tuple(text for text in refused if text))
        kind = mapping.error_class(answer.status, errors, mapping.SUBMIT)
        if kind is None:
            raise self._may_exist(spec, self._api.unreadable("200 without a job id", "POST", path))
        failure = self._api.failure(kind, answer, errors, "POST", path)
        if isinstance(failure, Unavailable) and failure.code not in NOT_SENT:
            raise self._may_exist(spec, failure)
        raise failure

    def _may_exist(self, spec: JobSpec, error: ClientError) -> SubmitUnknown:
        text = f"{error.message}; a job {spec.name} may exist: look for it by name before submitting again"
        return SubmitUnknown(text, peer=PEER, method=error.method, url=error.url, status=error.status, code=error.code)

    async def cancel(self, job_id: int) -> bool:
        path = f"/slurm/API/job/{names.job_id(job_id)}"
        if not (await self._api.capabilities()).cancel_tells and not await self._lives(job_id):
            return False
        try:
            answer = await self._api.call("DELETE", path, wire.CancelAnswer, mapping.CANCEL)
        except JobNotFound:
            return False
        statuses = answer.status if not isinstance(answer.status, UnsetType) else []
        codes = {status.error.code or 0 for status in statuses or () if status.error}
        for code in codes - ALREADY_OVER - {0}:
            kind = mapping.error_class(200, [wire.ErrorItem(error_number=code)], mapping.CANCEL) or Forbidden
            raise self._api.error(kind, f"job {job_id} is not cancelled", "DELETE", path, code)
        return not codes & ALREADY_OVER

    async def _lives(self, job_id: int) -> bool:
        """Tell what a cancel below v0.0.42 does not: whether there is something left to be cancelled."""
        try:
            return judge(await self.job(job_id)).phase is not JobPhase.ENDED
        except JobNotFound:
            return False
