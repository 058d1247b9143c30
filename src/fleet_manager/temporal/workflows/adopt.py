"""`AdoptNode`: a device becomes a SLURM node that has passed burn-in. Read `run` as the runbook.

What a cancel leaves behind: before the server is touched, nothing; from then on a held node, its reservation gone and
its burn-in cancelled. The node is never left open without a pass (ADR 0006).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from fleet_manager.core.domain.burn_in import Suite, Verdict, suite, verdict_of
    from fleet_manager.core.domain.device import DeviceBuild
    from fleet_manager.core.domain.slurm_adoption import RESERVE_PATIENCE, reservation_name
    from fleet_manager.core.domain.slurm_projection import Build
    from fleet_manager.temporal import policies, search_attributes
    from fleet_manager.temporal.activities.adoption import (
        AdoptionActivities,
        BuildParams,
        BuildReport,
        SurveyParams,
        SurveyReport,
    )
    from fleet_manager.temporal.activities.burn_in import BurnInActivities, JobReport, SubmitParams, WaitJobParams
    from fleet_manager.temporal.activities.hub import HubActivities, RecordParams
    from fleet_manager.temporal.activities.node_actor import (
        ClaimParams,
        GateParams,
        NodeActorActivities,
        UnclaimParams,
        VerdictParams,
    )
    from fleet_manager.temporal.activities.nova import NovaActivities, WaitServerParams
    from fleet_manager.temporal.activities.slurm import (
        InService,
        NodeParams,
        SettleParams,
        SlurmActivities,
        WaitInServiceParams,
        WaitRegisteredParams,
    )
    from fleet_manager.temporal.contracts import adopt as contract
    from fleet_manager.temporal.contracts.adopt import AdoptOutcome, AdoptPhase
    from fleet_manager.temporal.contracts.common import Failure, Verb, watch_queue
    from fleet_manager.temporal.contracts.node_actor import ActorState, Gate, Proof
    from fleet_manager.temporal.workflows.headlines import adopt_details
    from fleet_manager.temporal.workflows.outcome import failure_of, refuse_other_site

_FAILURES = {
    Verdict.FAIL: Failure.BURN_IN_FAILED,
    Verdict.INFRASTRUCTURE: Failure.BURN_IN_INFRASTRUCTURE,
    Verdict.NEVER_STARTED: Failure.BURN_IN_NEVER_STARTED,
}


@workflow.defn(name=contract.WORKFLOW)
class AdoptWorkflow:
    """See `contracts.adopt`."""

    @workflow.init
    def __init__(self, params: contract.AdoptInput) -> None:
        self._params = params
        self._id = workflow.info().first_execution_run_id
        now = workflow.now()
        self._progress = contract.AdoptProgress(phase=AdoptPhase.SURVEY, since=now, waiting_for="the survey")
        self._steps = [contract.StepTime(phase=AdoptPhase.SURVEY, since=now)]
        self._claimed = self._touched = False

    @workflow.query(name=contract.QUERY_PROGRESS)
    def progress(self) -> contract.AdoptProgress:
        return self._progress

    @workflow.run
    async def run(self, params: contract.AdoptInput) -> contract.AdoptResult:
        """Adopt the device, or leave the node held (or untouched) and say why."""
        self._enter(AdoptPhase.SURVEY, "hub, SLURM and Nova to say whether anything stands against it", first=True)
        refuse_other_site(params.site)
        survey: SurveyReport | None = None
        try:
            survey = await self._survey()
            if survey.already:
                return self._already(survey, survey.already)
            return await self._adopt(survey)
        except BaseException as error:
            if not isinstance(error, FailureError) and not is_cancelled_exception(error):
                raise  # a fault of our own: the task fails and is retried by a mended worker, nothing is given up
            failure = failure_of(error)
            if survey:
                await self._give_up(survey, failure)
            if is_cancelled_exception(error):
                raise
            raise failure from error

    async def _adopt(self, survey: SurveyReport) -> contract.AdoptResult:
        await self._claim(survey)
        built = await self._build(survey)
        await self._wait_for_server(survey, built)
        build = Build(server_id=built.server_id, build_id=built.build_id)
        await self._wait_registered(survey, build)
        await self._settle(survey, built, build)
        await self._reserve_and_open(survey, built, build)
        reports = await self._burn_in(survey, built)
        state = await self._verdict(survey, built, build, reports)
        await self._unreserve(survey)
        await self._record(survey, built)
        return await self._finish(survey, built, reports, state)

    # -- the steps, in order

    async def _survey(self) -> SurveyReport:
        report = await workflow.execute_activity_method(
            AdoptionActivities.survey_device,
            SurveyParams(
                site=self._params.site,
                device=self._params.device,
                claim_id=self._id,
                force_rebuild=self._params.force_rebuild,
            ),
            summary="does anything stand against it?",
            **policies.SLURM_API,
        )
        self._progress = self._progress.model_copy(update={"node": report.node})
        return report

    async def _claim(self, survey: SurveyReport) -> None:
        self._enter(AdoptPhase.CLAIM, f"node {survey.node} to be taken and held")
        self._claimed = True  # also when the answer is lost: giving back what we do not have does nothing
        await workflow.execute_activity_method(
            NodeActorActivities.claim_node,
            ClaimParams(
                site=self._params.site,
                node=survey.node,
                claim_id=self._id,
                verb=Verb.ADOPT,
                gate_why="being adopted, burn-in to come",
            ),
            summary=f"take node {survey.node} and put its gate up",
            **policies.ACTOR,
        )

    async def _build(self, survey: SurveyReport) -> BuildReport:
        self._enter(AdoptPhase.BUILD, "Nova to take the build")
        self._touched = True
        built = await workflow.execute_activity_method(
            AdoptionActivities.build_server,
            BuildParams(
                site=self._params.site,
                device=survey.device_id,
                node=survey.node,
                claim_id=self._id,
                build_id=self._id,
                force_rebuild=self._params.force_rebuild,
            ),
            summary="create, rebuild or leave the server",
            **policies.NOVA_ACTION,
        )
        self._progress = self._progress.model_copy(update={"server_id": built.server_id, "build_id": built.build_id})
        return built

    async def _wait_for_server(self, survey: SurveyReport, built: BuildReport) -> None:
        deadline = self._enter(
            AdoptPhase.BOOT, f"server {built.server_id} to become ACTIVE ({built.way})", survey.patience.build
        )
        await workflow.execute_activity_method(
            NovaActivities.wait_for_server,
            WaitServerParams(
                device=survey.device,
                device_id=survey.device_id,
                server_id=built.server_id,
                build_id=built.build_id,
                image_id=built.image_id,
                hypervisor=survey.hypervisor,
                deadline=deadline,
            ),
            task_queue=watch_queue(self._params.site),
            summary=f"server {built.server_id} becomes ACTIVE",
            **policies.wait_until(survey.patience.build.total_seconds()),
        )

    async def _wait_registered(self, survey: SurveyReport, build: Build) -> None:
        deadline = self._enter(
            AdoptPhase.REGISTER, f"build {build.build_id} to register as {survey.node}", survey.patience.boot
        )
        await workflow.execute_activity_method(
            SlurmActivities.wait_registered,
            WaitRegisteredParams(node=survey.node, build=build, deadline=deadline),
            task_queue=watch_queue(self._params.site),
            summary=f"this build registers as {survey.node}",
            **policies.wait_until(survey.patience.boot.total_seconds()),
        )

    async def _settle(self, survey: SurveyReport, built: BuildReport, build: Build) -> None:
        self._enter(AdoptPhase.RESERVE, "the whole machine to be there, and users' jobs to be kept off")
        await workflow.execute_activity_method(
            SlurmActivities.settle_node,
            SettleParams(
                node=survey.node,
                build=build,
                gres=built.gres,
                features=built.features,
                flavor_vcpus=built.flavor_vcpus,
                flavor_ram_mib=built.flavor_ram_mib,
            ),
            summary="GPUs, CPUs, memory and features are as promised",
            **policies.SLURM_API,
        )

    async def _reserve_and_open(self, survey: SurveyReport, built: BuildReport, build: Build) -> None:
        reservation = await workflow.execute_activity_method(
            SlurmActivities.reserve_node,
            NodeParams(node=survey.node),
            summary="the reservation that lets only the burn-in in",
            **policies.SLURM_API,
        )
        await workflow.execute_activity_method(
            NodeActorActivities.open_gate,
            GateParams(
                site=self._params.site,
                node=survey.node,
                claim_id=self._id,
                # slurmctld's own drain was about the machine before: a build of this adoption outdates it
                gate=Gate(build=build, reservation=reservation, clears_system=built.build_id == self._id),
            ),
            summary="open the gate under the reservation",
            **policies.ACTOR,
        )

    async def _burn_in(self, survey: SurveyReport, built: BuildReport) -> list[JobReport]:
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
        job_id = await workflow.execute_activity_method(
            BurnInActivities.submit_burn_in,
            SubmitParams(
                node=survey.node,
                build_id=self._id,  # this adoption's: a burn-in of an earlier one of the same build proves nothing now
                reservation=reservation_name(survey.node),
                gres=built.gres,
                suite=chosen.name,
                job=index,
            ),
            summary=f"submit burn-in job {job.name}",
            **policies.SLURM_API,
        )
        self._progress = self._progress.model_copy(update={"job_ids": (*self._progress.job_ids, job_id)})
        length = survey.patience.start + timedelta(minutes=job.time_limit_minutes) + timedelta(minutes=10)
        deadline = self._await(f"job {job_id} ({job.name}) to end", length)
        return await workflow.execute_activity_method(
            BurnInActivities.wait_for_job,
            WaitJobParams(
                job_id=job_id,
                suite=chosen.name,
                job=index,
                start_by=workflow.now() + survey.patience.start,
                end_by=deadline,
            ),
            task_queue=watch_queue(self._params.site),
            summary=f"job {job_id} ends",
            **policies.wait_until(length.total_seconds()),
        )

    async def _verdict(
        self, survey: SurveyReport, built: BuildReport, build: Build, reports: list[JobReport]
    ) -> ActorState:
        self._enter(AdoptPhase.VERDICT, "the verdict to stand in SLURM")
        verdict = verdict_of(reports[-1].end)
        if verdict is not Verdict.PASS:
            raise ApplicationError(
                f"Burn-in of node {survey.node} did not pass: {reports[-1].evidence}.",
                type=_FAILURES[verdict],
                non_retryable=True,
            )
        proof = Proof(
            build=build,
            config_revision=built.config_revision,
            suite=self._params.burn_in,
            job_ids=tuple(report.job_id for report in reports),
            passed_at=workflow.now(),
        )
        # whatever other hold is left is on the node, as DRAIN, when this returns: before the reservation goes
        return await workflow.execute_activity_method(
            NodeActorActivities.end_gate,
            VerdictParams(
                site=self._params.site,
                node=survey.node,
                claim_id=self._id,
                why=f"burn-in {self._params.burn_in} passed",
                proof=proof,
            ),
            summary="burn-in passed: take the gate down",
            **policies.ACTOR,
        )

    async def _unreserve(self, survey: SurveyReport) -> None:
        await workflow.execute_activity_method(
            SlurmActivities.unreserve_node,
            NodeParams(node=survey.node),
            summary="delete the reservation",
            **policies.SLURM_API,
        )

    async def _record(self, survey: SurveyReport, built: BuildReport) -> None:
        await workflow.execute_activity_method(
            HubActivities.record_build,
            RecordParams(
                site=self._params.site,
                device_id=survey.device_id,
                build=DeviceBuild(
                    server_id=built.server_id, build_id=built.build_id, config_revision=built.config_revision
                ),
            ),
            summary="record the build in the hub",
            **policies.HUB_API,
        )

    async def _finish(
        self, survey: SurveyReport, built: BuildReport, reports: list[JobReport], state: ActorState
    ) -> contract.AdoptResult:
        await self._unclaim(survey, why="adopted")
        deadline = workflow.now() + RESERVE_PATIENCE
        service: InService = await workflow.execute_activity_method(
            SlurmActivities.wait_in_service,
            WaitInServiceParams(node=survey.node, deadline=deadline),
            task_queue=watch_queue(self._params.site),
            summary=f"the scheduler uses {survey.node}",
            **policies.wait_until(RESERVE_PATIENCE.total_seconds()),
        )
        held_by = tuple(f"{hold.owner}: {hold.why}" for hold in state.holds)
        if not held_by and not service.schedulable:
            shown = state.projection
            held_by = (shown.problem,) if shown and shown.problem else service.why_not
        self._enter(AdoptPhase.DONE, "nothing")
        return contract.AdoptResult(
            outcome=AdoptOutcome.PASSED_BUT_HELD if held_by else AdoptOutcome.IN_SERVICE,
            site=self._params.site,
            device_id=survey.device_id,
            device=survey.device,
            node=survey.node,
            server_id=built.server_id,
            build_id=built.build_id,
            config_revision=built.config_revision,
            way=built.way,
            job_ids=tuple(report.job_id for report in reports),
            evidence="; ".join(report.evidence for report in reports),
            held_by=held_by,
            steps=tuple(self._steps),
            finished_at=workflow.now(),
        )

    def _already(self, survey: SurveyReport, proof: Proof) -> contract.AdoptResult:
        self._enter(AdoptPhase.DONE, "nothing: the present build has passed already")
        return contract.AdoptResult(
            outcome=AdoptOutcome.ALREADY_IN_SERVICE,
            site=self._params.site,
            device_id=survey.device_id,
            device=survey.device,
            node=survey.node,
            server_id=proof.build.server_id,
            build_id=proof.build.build_id,
            config_revision=proof.config_revision or 0,
            way="leave",
            job_ids=proof.job_ids,
            evidence=f"suite {proof.suite} passed at {proof.passed_at:%Y-%m-%d %H:%M:%S} UTC",
            steps=tuple(self._steps),
            finished_at=workflow.now(),
        )

    # -- giving up

    async def _give_up(self, survey: SurveyReport, failure: ApplicationError) -> None:
        """Leave the node held, or untouched if nothing was built; DRAIN goes on before the reservation comes off."""
        if not self._claimed or failure.type == Failure.CLAIM_REFUSED:
            return
        self._enter(AdoptPhase.GIVING_UP, f"the node to be left {'held' if self._touched else 'as it was'}")
        if self._touched and failure.type != Failure.CLAIM_LOST:
            await workflow.execute_activity_method(
                NodeActorActivities.end_gate,
                VerdictParams(
                    site=self._params.site,
                    node=survey.node,
                    claim_id=self._id,
                    why=failure.message[:400],
                ),
                summary="hold the node, with why",
                **policies.ACTOR,
            )
            await self._unreserve(survey)
        await self._unclaim(survey, why=failure.message[:400])

    async def _unclaim(self, survey: SurveyReport, *, why: str) -> None:
        await workflow.execute_activity_method(
            NodeActorActivities.unclaim_node,
            UnclaimParams(
                site=self._params.site, node=survey.node, claim_id=self._id, why=why, keep_gate=self._touched
            ),
            summary=f"give node {survey.node} back",
            **policies.ACTOR,
        )

    # -- what is seen while it runs

    def _enter(
        self, phase: AdoptPhase, waiting_for: str, patience: timedelta | None = None, *, first: bool = False
    ) -> datetime:
        attributes = [search_attributes.PHASE.value_set(phase)]
        if first:  # a start from the UI sets none
            attributes += [
                search_attributes.SITE.value_set(self._params.site),
                search_attributes.VERB.value_set(Verb.ADOPT),
            ]
        if phase is AdoptPhase.CLAIM and self._progress.node:
            attributes.append(search_attributes.NODE.value_set(self._progress.node))
        workflow.upsert_search_attributes(attributes)
        if not first:
            self._steps.append(contract.StepTime(phase=phase, since=workflow.now()))
        self._progress = self._progress.model_copy(update={"phase": phase, "since": workflow.now()})
        return self._await(waiting_for, patience)

    def _await(self, waiting_for: str, patience: timedelta | None) -> datetime:
        until = workflow.now() + patience if patience else None
        self._progress = self._progress.model_copy(update={"waiting_for": waiting_for, "until": until})
        workflow.set_current_details(adopt_details(self._params.device, self._progress))
        return until or workflow.now()
