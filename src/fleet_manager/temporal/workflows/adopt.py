"""`AdoptNode`: a device becomes a SLURM node that has passed burn-in. Read `_adopt` as the runbook.

What a cancel leaves behind: before the server is touched, nothing; from then on a held node, its reservation gone and
its burn-in cancelled. The node is never left open without a pass (ADR 0006).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from fleet_manager.core.domain.burn_in import Suite, Verdict, suite, verdict_of
    from fleet_manager.core.domain.slurm_projection import Build
    from fleet_manager.core.domain.slurm_registration import reservation_name
    from fleet_manager.temporal import search_attributes
    from fleet_manager.temporal.activities.adoption import BuildReport, SurveyReport
    from fleet_manager.temporal.activities.burn_in import JobReport
    from fleet_manager.temporal.activities.slurm import InService
    from fleet_manager.temporal.contracts import adopt as contract
    from fleet_manager.temporal.contracts.adopt import AdoptOutcome, AdoptPhase
    from fleet_manager.temporal.contracts.common import Failure, Verb
    from fleet_manager.temporal.contracts.node_actor import ActorState, Proof
    from fleet_manager.temporal.workflows.adopt_steps import AdoptSteps
    from fleet_manager.temporal.workflows.headlines import adopt_details
    from fleet_manager.temporal.workflows.outcome import failure_of, given, refused_at_once

T = TypeVar("T")

END_PATIENCE = timedelta(minutes=10)
"""How long after its time limit a burn-in job may take to be told as ended."""
_FAILURES = {
    Verdict.FAIL: Failure.BURN_IN_FAILED,
    Verdict.INFRASTRUCTURE: Failure.BURN_IN_INFRASTRUCTURE,
    Verdict.NEVER_STARTED: Failure.BURN_IN_NEVER_STARTED,
}


async def _to_its_end(steps: Coroutine[Any, Any, T]) -> T:
    """Await the steps, also when the workflow is cancelled meanwhile."""
    task = asyncio.create_task(steps)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


async def _tried(step: Coroutine[Any, Any, object], what: str, left: list[str]) -> bool:
    """Await a step of the clean-up; what fails is named, and the next one still gets its turn."""
    try:
        await step
    except FailureError as error:
        left.append(f"{what} ({failure_of(error).message})")
        return False
    return True


# a bad input fails at once with its sentence; without the type here it would hang for ever in the UI
@workflow.defn(name=contract.WORKFLOW, failure_exception_types=[ValidationError])
class AdoptWorkflow:
    """See `contracts.adopt`."""

    @workflow.init
    def __init__(self, params: contract.AdoptInput | None = None) -> None:
        # `null` is refused by `run`: a constructor that raises leaves the SDK's own coroutine unawaited
        self._params = params = params or contract.AdoptInput(site="missing", device="missing")
        self._id = workflow.info().first_execution_run_id
        self._do = AdoptSteps(params, self._id)
        now = workflow.now()
        self._progress = contract.AdoptProgress(phase=AdoptPhase.SURVEY, since=now, waiting_for="the survey")
        self._steps: list[contract.StepTime] = []
        self._claimed = self._touched = self._freed = False
        self._notes: list[str] = []

    @workflow.query(name=contract.QUERY_PROGRESS)
    def progress(self) -> contract.AdoptProgress:
        return self._progress

    @workflow.run
    async def run(self, params: contract.AdoptInput | None = None) -> contract.AdoptResult:
        """Adopt the device, or leave the node held (or untouched) and say why."""
        params = given(params, contract.AdoptInput)
        self._enter(AdoptPhase.SURVEY, "hub, SLURM and Nova to say whether anything stands against it")
        survey: SurveyReport | None = None
        try:
            survey = await self._do.survey()
            self._know(node=survey.node)
            if survey.already:
                return await self._already(survey, survey.already)
            return await self._adopt(survey)
        except BaseException as error:
            if not isinstance(error, FailureError) and not is_cancelled_exception(error):
                raise  # a fault of our own: the task fails and is retried by a mended worker, nothing is given up
            failure = failure_of(error)
            if survey and not self._freed:
                failure = await _to_its_end(self._give_up(survey.node, failure))
            if is_cancelled_exception(error):
                raise
            raise failure from error

    async def _adopt(self, survey: SurveyReport) -> contract.AdoptResult:
        node, patience = survey.node, survey.patience
        self._enter(AdoptPhase.CLAIM, f"node {node} to be taken and held")
        self._claimed = True  # also when the answer is lost: giving back what we do not have does nothing
        await self._do.claim(node)

        self._enter(AdoptPhase.BUILD, "Nova to take the build")
        self._touched = True
        try:
            built = await self._do.build(survey)
        except ActivityError as error:
            self._touched = not refused_at_once(error)
            raise
        build = Build(server_id=built.server_id, build_id=built.build_id)
        self._know(server_id=built.server_id, build_id=built.build_id)

        until = self._enter(AdoptPhase.BOOT, f"server {built.server_id} to become ACTIVE ({built.way})", patience.build)
        await self._do.wait_for_server(survey, built, until)
        until = self._enter(AdoptPhase.REGISTER, f"build {built.build_id} to register as {node}", patience.boot)
        await self._do.wait_registered(survey, build, until)

        self._enter(AdoptPhase.RESERVE, "the whole machine to be there, and users' jobs to be kept off")
        await self._do.settle(node, built, build)
        await self._do.reserve(node)
        await self._do.open_gate(node, build)

        reports = await self._burn_in(survey, built)
        self._refuse_unless_passed(node, reports)
        return await _to_its_end(self._conclude(survey, built, build, reports))

    async def _burn_in(self, survey: SurveyReport, built: BuildReport) -> list[JobReport]:
        """Run the suite's jobs one after the other; the first that does not pass ends it."""
        chosen = suite(self._params.burn_in)
        reports: list[JobReport] = []
        for index in range(len(chosen.jobs)):
            reports.append(await self._burn_in_job(survey, built, chosen, index))
            if verdict_of(reports[-1].end) is not Verdict.PASS:
                break
        return reports

    async def _burn_in_job(self, survey: SurveyReport, built: BuildReport, chosen: Suite, index: int) -> JobReport:
        job = chosen.jobs[index]
        self._enter(AdoptPhase.BURN_IN, f"job {job.name} of suite {chosen.name} to be taken")
        job_id = await self._do.submit(survey.node, built, chosen, index)
        self._know(job_ids=(*self._progress.job_ids, job_id))
        start_by = workflow.now() + survey.patience.start
        length = survey.patience.start + timedelta(minutes=job.time_limit_minutes) + END_PATIENCE
        end_by = self._await(f"job {job_id} ({job.name}) to end", length)
        return await self._do.wait_for_job(job_id, chosen, index, start_by, end_by)

    def _refuse_unless_passed(self, node: str, reports: list[JobReport]) -> None:
        verdict = verdict_of(reports[-1].end)
        if verdict is not Verdict.PASS:
            raise ApplicationError(
                f"Burn-in of node {node} did not pass: {reports[-1].evidence}.",
                type=_FAILURES[verdict],
                non_retryable=True,
            )

    async def _conclude(
        self, survey: SurveyReport, built: BuildReport, build: Build, reports: list[JobReport]
    ) -> contract.AdoptResult:
        """Put the passed node into service. A cancel comes too late for this: it is a matter of seconds."""
        self._enter(AdoptPhase.VERDICT, "the verdict to stand in SLURM")
        proof = Proof(
            build=build,
            config_revision=built.config_revision,
            suite=self._params.burn_in,
            job_ids=tuple(report.job_id for report in reports),
            passed_at=workflow.now(),
        )
        state = await self._do.end_gate(survey.node, f"burn-in {self._params.burn_in} passed", proof)
        await self._do.unreserve(survey.node, build)
        self._freed = True  # from here on it is in service, or held by others: nothing is given up any more
        recorded = self._do.record(survey.device_id, build, built.config_revision)
        await _tried(recorded, "the hub does not know the build", self._notes)
        unclaimed = self._do.unclaim(survey.node, "adopted", keep_gate=True)
        await _tried(unclaimed, f"the claim on {survey.node} still stands", self._notes)
        held_by = await self._held_by(survey.node, state)
        self._enter(AdoptPhase.DONE, "nothing")
        outcome = AdoptOutcome.PASSED_BUT_HELD if held_by else AdoptOutcome.IN_SERVICE
        words = "; ".join(report.evidence for report in reports)
        return self._result(survey, outcome, proof, str(built.way), words, held_by)

    async def _held_by(self, node: str, state: ActorState) -> tuple[str, ...]:
        """Return who still keeps jobs off: our holds by owner, else what SLURM shows."""
        try:
            service = await self._do.wait_in_service(node)
        except FailureError as error:  # it has passed all the same: what is not known is said as that
            service = InService(schedulable=False, state="unknown", why_not=(failure_of(error).message,))
        if state.holds:
            return tuple(f"{hold.owner}: {hold.why}" for hold in state.holds)
        if service.schedulable:
            return ()
        shown = state.projection
        return (shown.problem,) if shown and shown.problem else service.why_not

    async def _already(self, survey: SurveyReport, proof: Proof) -> contract.AdoptResult:
        """Nothing is to be done; the hub may not know it yet."""
        self._enter(AdoptPhase.DONE, "the hub to know what has passed already")
        await self._do.record(survey.device_id, proof.build, proof.config_revision)
        words = f"suite {proof.suite} passed at {proof.passed_at:%Y-%m-%d %H:%M:%S} UTC"
        return self._result(survey, AdoptOutcome.ALREADY_IN_SERVICE, proof, "leave", words, ())

    def _result(
        self,
        survey: SurveyReport,
        outcome: AdoptOutcome,
        proof: Proof,
        way: str,
        words: str,
        held_by: tuple[str, ...],
    ) -> contract.AdoptResult:
        return contract.AdoptResult(
            outcome=outcome,
            site=self._params.site,
            device_id=survey.device_id,
            device=survey.device,
            node=survey.node,
            server_id=proof.build.server_id,
            build_id=proof.build.build_id,
            config_revision=proof.config_revision or 0,
            way=way,
            job_ids=proof.job_ids,
            evidence=words,
            held_by=held_by,
            notes=tuple(self._notes),
            steps=tuple(self._steps),
            finished_at=workflow.now(),
        )

    async def _give_up(self, node: str, failure: ApplicationError) -> ApplicationError:
        """Leave the node held, or untouched if nothing was built; DRAIN goes on before the reservation comes off.

        Returns the failure, with what could not be cleaned up named in it.
        """
        if not self._claimed or failure.type == Failure.CLAIM_REFUSED:
            return failure
        self._enter(AdoptPhase.GIVING_UP, f"the node to be left {'held' if self._touched else 'as it was'}")
        why, name = failure.message[:400], reservation_name(node)
        left: list[str] = []
        if self._touched:
            held = await _tried(self._do.end_gate(node, why), f"node {node} could not be held", left)
            if held:
                await _tried(self._do.unreserve(node, None), f"reservation {name} is still there", left)
            else:
                left.append(f"reservation {name}, if it was made, is left where it is and keeps users off")
        await _tried(self._do.unclaim(node, why, keep_gate=self._touched), f"the claim on {node} still stands", left)
        if not left:
            return failure
        self._await(f"nothing; left behind: {'; '.join(left)}", None)
        return ApplicationError(f"{failure.message} Also: {'; '.join(left)}.", type=failure.type, non_retryable=True)

    # -- what is seen while it runs

    def _enter(self, phase: AdoptPhase, waiting_for: str, patience: timedelta | None = None) -> datetime:
        attributes = [search_attributes.PHASE.value_set(phase)]
        if not self._steps:  # a start from the UI sets none
            attributes.append(search_attributes.SITE.value_set(self._params.site))
            attributes.append(search_attributes.VERB.value_set(Verb.ADOPT))
        if phase is AdoptPhase.CLAIM and self._progress.node:
            attributes.append(search_attributes.NODE.value_set(self._progress.node))
        workflow.upsert_search_attributes(attributes)
        self._steps.append(contract.StepTime(phase=phase, since=workflow.now()))
        self._know(phase=phase, since=workflow.now())
        return self._await(waiting_for, patience)

    def _await(self, waiting_for: str, patience: timedelta | None) -> datetime:
        until = workflow.now() + patience if patience else None
        self._know(waiting_for=waiting_for, until=until)
        workflow.set_current_details(adopt_details(self._params.device, self._progress))
        return until or workflow.now()

    def _know(self, **facts: Any) -> None:
        self._progress = self._progress.model_copy(update=facts)
