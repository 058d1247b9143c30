"""The steps of an adoption, each one activity with its policy: `adopt.py` says in which order, and what they mean.

A step that writes is finished before a cancel is heard (`policies.FINISH_FIRST`), then `refuse_if_cancelled` tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from fleet_manager.core.domain.burn_in import Suite
    from fleet_manager.core.domain.device import DeviceBuild
    from fleet_manager.core.domain.slurm_projection import Build
    from fleet_manager.core.domain.slurm_registration import RESERVE_PATIENCE, reservation_name
    from fleet_manager.temporal import policies
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
        ReserveParams,
        SettleParams,
        SlurmActivities,
        UnreserveParams,
        WaitInServiceParams,
        WaitRegisteredParams,
    )
    from fleet_manager.temporal.contracts.adopt import AdoptInput
    from fleet_manager.temporal.contracts.common import Verb, watch_queue
    from fleet_manager.temporal.contracts.node_actor import ActorState, Gate, Proof
    from fleet_manager.temporal.workflows.outcome import refuse_if_cancelled


@dataclass(frozen=True)
class AdoptSteps:
    """What every step needs: the input, and the adoption's own id (claim, gate and build have it too)."""

    params: AdoptInput
    id: str

    @property
    def site(self) -> str:
        return self.params.site

    async def survey(self) -> SurveyReport:
        """Look whether anything stands against it; nothing is touched."""
        report = await workflow.execute_activity_method(
            AdoptionActivities.survey_device,
            SurveyParams(
                site=self.site,
                device=self.params.device,
                claim_id=self.id,
                force_rebuild=self.params.force_rebuild,
            ),
            summary="does anything stand against it?",
            **policies.SLURM_API,
        )
        refuse_if_cancelled()
        return report

    async def claim(self, node: str) -> None:
        """Take the node and put its gate up, in one step."""
        await workflow.execute_activity_method(
            NodeActorActivities.claim_node,
            ClaimParams(
                site=self.site,
                node=node,
                claim_id=self.id,
                verb=Verb.ADOPT,
                gate_why="being adopted, burn-in to come",
            ),
            summary=f"take node {node} and put its gate up",
            **policies.ACTOR,
        )
        refuse_if_cancelled()

    async def build(self, survey: SurveyReport) -> BuildReport:
        """Create, rebuild or leave the server."""
        built = await workflow.execute_activity_method(
            AdoptionActivities.build_server,
            BuildParams(
                site=self.site,
                device=survey.device_id,
                node=survey.node,
                claim_id=self.id,
                build_id=self.id,
                force_rebuild=self.params.force_rebuild,
            ),
            summary="create, rebuild or leave the server",
            **policies.NOVA_ACTION,
        )
        refuse_if_cancelled()
        return built

    async def wait_for_server(self, survey: SurveyReport, built: BuildReport, deadline: datetime) -> None:
        """Wait until the build is ACTIVE on the device's own machine."""
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
            task_queue=watch_queue(self.site),
            summary=f"server {built.server_id} becomes ACTIVE",
            **policies.wait_until(survey.patience.build.total_seconds()),
        )

    async def wait_registered(self, survey: SurveyReport, build: Build, deadline: datetime) -> None:
        """Wait until this build, by what it says of itself, is the node."""
        await workflow.execute_activity_method(
            SlurmActivities.wait_registered,
            WaitRegisteredParams(node=survey.node, build=build, deadline=deadline),
            task_queue=watch_queue(self.site),
            summary=f"this build registers as {survey.node}",
            **policies.wait_until(survey.patience.boot.total_seconds()),
        )

    async def settle(self, node: str, built: BuildReport, build: Build) -> None:
        """Refuse a machine that is not whole; give the node the configuration's features."""
        await workflow.execute_activity_method(
            SlurmActivities.settle_node,
            SettleParams(
                node=node,
                build=build,
                gres=built.gres,
                features=built.features,
                flavor_vcpus=built.flavor_vcpus,
                flavor_ram_mib=built.flavor_ram_mib,
            ),
            summary="GPUs, CPUs, memory and features are as promised",
            **policies.SLURM_API,
        )
        refuse_if_cancelled()

    async def reserve(self, node: str) -> None:
        """Put the reservation on the node that lets only the burn-in in."""
        await workflow.execute_activity_method(
            SlurmActivities.reserve_node,
            ReserveParams(node=node, claim_id=self.id),
            summary="the reservation that lets only the burn-in in",
            **policies.SLURM_API,
        )
        refuse_if_cancelled()

    async def open_gate(self, node: str, build: Build) -> None:
        """Open the gate under the reservation."""
        gate = Gate(
            build=build,
            reservation=reservation_name(node),
            # slurmctld's own drain was about the machine before: a build of this adoption outdates it
            clears_system=build.build_id == self.id,
        )
        await workflow.execute_activity_method(
            NodeActorActivities.open_gate,
            GateParams(site=self.site, node=node, claim_id=self.id, gate=gate),
            summary="open the gate under the reservation",
            **policies.ACTOR,
        )
        refuse_if_cancelled()

    async def submit(self, node: str, built: BuildReport, chosen: Suite, index: int) -> int:
        """Submit one job of the suite; return its id."""
        job_id = await workflow.execute_activity_method(
            BurnInActivities.submit_burn_in,
            SubmitParams(
                node=node,
                build_id=self.id,  # this adoption's: a burn-in of an earlier one of the same build proves nothing now
                reservation=reservation_name(node),
                gres=built.gres,
                suite=chosen.name,
                job=index,
            ),
            summary=f"submit burn-in job {chosen.jobs[index].name}",
            **policies.SLURM_API,
        )
        refuse_if_cancelled()
        return job_id

    async def wait_for_job(
        self, job_id: int, chosen: Suite, index: int, start_by: datetime, end_by: datetime
    ) -> JobReport:
        """Wait for the job's end."""
        return await workflow.execute_activity_method(
            BurnInActivities.wait_for_job,
            WaitJobParams(job_id=job_id, suite=chosen.name, job=index, start_by=start_by, end_by=end_by),
            task_queue=watch_queue(self.site),
            summary=f"job {job_id} ends",
            **policies.wait_until((end_by - workflow.now()).total_seconds()),
        )

    async def end_gate(self, node: str, why: str, proof: Proof | None = None) -> ActorState:
        """End the gate. When this returns, SLURM shows DRAIN if any hold is left: before the reservation goes."""
        return await workflow.execute_activity_method(
            NodeActorActivities.end_gate,
            VerdictParams(site=self.site, node=node, claim_id=self.id, why=why, proof=proof),
            summary="burn-in passed: take the gate down" if proof else "hold the node, with why",
            **policies.ACTOR,
        )

    async def unreserve(self, node: str, passed: Build | None) -> None:
        """Delete our reservation, off a node that is drained, or that still runs the build that passed."""
        await workflow.execute_activity_method(
            SlurmActivities.unreserve_node,
            UnreserveParams(node=node, passed=passed),
            summary="delete the reservation",
            **policies.SLURM_API,
        )

    async def record(self, device_id: str, build: Build, config_revision: int | None) -> None:
        """Record the build in the hub."""
        recorded = DeviceBuild(server_id=build.server_id, build_id=build.build_id, config_revision=config_revision)
        await workflow.execute_activity_method(
            HubActivities.record_build,
            RecordParams(site=self.site, device_id=device_id, build=recorded),
            summary="record the build in the hub",
            **policies.HUB_API,
        )

    async def unclaim(self, node: str, why: str, *, keep_gate: bool) -> None:
        """Give the node back."""
        await workflow.execute_activity_method(
            NodeActorActivities.unclaim_node,
            UnclaimParams(site=self.site, node=node, claim_id=self.id, why=why, keep_gate=keep_gate),
            summary=f"give node {node} back",
            **policies.ACTOR,
        )

    async def wait_in_service(self, node: str) -> InService:
        """Wait until the scheduler uses the node, or say why it does not."""
        patience: timedelta = RESERVE_PATIENCE
        return await workflow.execute_activity_method(
            SlurmActivities.wait_in_service,
            WaitInServiceParams(node=node, deadline=workflow.now() + patience),
            task_queue=watch_queue(self.site),
            summary=f"the scheduler uses {node}",
            **policies.wait_until(patience.total_seconds()),
        )
