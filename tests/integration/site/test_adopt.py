"""Adoptions on a whole real site, asked of the servers themselves."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import CancelledError
from tests.integration.site.plugin import RunningSite

from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, parse
from fleet_manager.temporal.contracts import adopt, node_actor
from fleet_manager.temporal.contracts.adopt import AdoptOutcome, AdoptPhase
from fmlab import proof
from fmlab.procs import wait_for
from fmlab.site import SITE

pytestmark = [pytest.mark.site, pytest.mark.timeout(180)]

NO_RESERVATION = "No reservations in the system"


def flags(node: dict[str, Any]) -> set[str]:
    return set(node["state"])


def started(running_site: RunningSite, job: int) -> datetime:
    """Wait for a user's job and return when it started."""
    slurm = running_site.site.slurm
    wait_for(lambda: proof.job_times(slurm, job)["JobState"] in ("RUNNING", "COMPLETED"), 60, f"job {job} to start")
    return datetime.fromisoformat(proof.job_times(slurm, job)["StartTime"]).astimezone(UTC)


def at(result: adopt.AdoptResult, phase: AdoptPhase) -> datetime:
    return next(step.since for step in result.steps if step.phase is phase)


async def test_a_device_without_a_server_gets_one_and_its_node_takes_jobs(running_site: RunningSite) -> None:
    result = await running_site.adopt("gpu-001")
    node = running_site.node("gpu-001")
    [server] = running_site.servers("gpu-001")
    assert (result.outcome, result.way) == (AdoptOutcome.IN_SERVICE, "create")
    assert (node["instance_id"], node["extra"]) == (server["id"], f"fm_build={result.build_id}")
    assert node["gres"] == "gpu:h100:8"
    assert flags(node) & {"DRAIN", "DOWN", "MAINTENANCE", "RESERVED"} == set()
    assert server["OS-EXT-SRV-ATTR:hypervisor_hostname"] == "hv-001"
    assert set(server["tags"]) == {"fm-device-dev-001", f"fm-build-{result.build_id}"}
    assert server["metadata"]["fm_config_revision"] == str(result.config_revision)
    assert "gpu-001" not in proof.reservations(running_site.site.slurm)


async def test_adopting_again_touches_nothing_and_names_the_first_build(running_site: RunningSite) -> None:
    first = await running_site.adopt("gpu-002")
    before = await running_site.actor("gpu-002")
    again = await running_site.adopt("gpu-002")
    assert again.outcome is AdoptOutcome.ALREADY_IN_SERVICE
    assert (again.server_id, again.build_id, again.job_ids) == (first.server_id, first.build_id, first.job_ids)
    assert await running_site.actor("gpu-002") == before
    assert len(running_site.servers("gpu-002")) == 1


async def test_a_users_job_waits_for_the_verdict_while_an_old_server_is_rebuilt(running_site: RunningSite) -> None:
    server = running_site.make_server("gpu-003", "dev-003", image="slurm-node-a")
    slurm = running_site.site.slurm
    wait_for(lambda: "gpu-003" in slurm.run("sinfo", "-hN", "-t", "drained", "-o", "%N"), 60, "the old build")
    job = running_site.user_job("-w", "gpu-003")
    result = await running_site.adopt("gpu-003")
    start = await asyncio.to_thread(started, running_site, job)
    assert (result.way, result.server_id) == ("rebuild", server)
    assert result.job_ids != (job,)
    assert start >= at(result, AdoptPhase.VERDICT).replace(microsecond=0)
    [seen] = running_site.servers("gpu-003")
    assert seen["metadata"]["fm_build"] == result.build_id
    assert running_site.node("gpu-003")["extra"] == f"fm_build={result.build_id}"


async def test_changed_user_data_is_a_rebuild_of_a_node_in_service(running_site: RunningSite) -> None:
    from fmlab.site import user_data

    await asyncio.to_thread(running_site.config, "changing", user_data=user_data("5"))
    first = await running_site.adopt("gpu-016")
    await asyncio.to_thread(running_site.config, "changing", user_data=user_data("6"))
    second = await running_site.adopt("gpu-016")
    assert (first.way, second.way) == ("create", "rebuild")
    assert second.server_id == first.server_id
    assert second.build_id != first.build_id
    assert second.config_revision == first.config_revision + 1


@pytest.mark.parametrize(
    ("device", "role", "config", "code", "says"),
    [
        ("gpu-012", "no-image", {"image": None}, "BootstrapConfigIncomplete", "has no image"),
        ("gpu-013", "no-such-image", {"image": "no-such-image"}, "UnknownImage", "'no-such-image'"),
        ("gpu-014", "no-row", None, "BootstrapConfigMissing", "POST /api/v1/sites/lab/slurm-bootstrap-configs/"),
    ],
)
async def test_a_configuration_that_cannot_be_built_is_refused_before_anything_is_touched(
    running_site: RunningSite, device: str, role: str, config: dict[str, Any] | None, code: str, says: str
) -> None:
    if config is not None:
        await asyncio.to_thread(running_site.config, role, **config)
    failed = await running_site.fail(device)
    assert failed.type == code
    assert says in failed.message
    assert role in failed.message
    assert SITE in failed.message
    assert running_site.servers(device) == []
    with pytest.raises(Exception, match="not found"):
        await running_site.actor(device)


async def test_another_flavor_is_recreate_needed_with_both_named(running_site: RunningSite) -> None:
    await asyncio.to_thread(running_site.config, "small-flavor")
    server = running_site.make_server("gpu-015", "dev-015", image="slurm-node-a", flavor="small")
    failed = await running_site.fail("gpu-015")
    assert failed.type == "RecreateNeeded"
    assert "flavor small" in failed.message
    assert "gpu-h100" in failed.message
    assert [one["id"] for one in running_site.servers("gpu-015")] == [server]


async def test_seven_of_eight_gpus_is_a_refusal_that_says_so(running_site: RunningSite) -> None:
    """Case 041: at once, not after a burn-in that never starts."""
    running_site.site.metal.switch("gpu-004", "gpus=7")
    failed = await running_site.fail("gpu-004")
    running_site.site.metal.switch("gpu-004")
    node = running_site.node("gpu-004")
    assert failed.type == "IncompleteMachine"
    assert "7 of 8 GPUs" in failed.message
    assert "DRAIN" in flags(node)
    [hold] = (await running_site.actor("gpu-004")).holds
    assert hold.kind is HoldKind.VERDICT
    assert "7 of 8 GPUs" in hold.why
    assert (await running_site.actor("gpu-004")).claim is None


async def test_too_little_memory_is_a_refusal_that_says_how_much(running_site: RunningSite) -> None:
    running_site.site.metal.switch("gpu-005", "less-memory=1000")
    failed = await running_site.fail("gpu-005")
    running_site.site.metal.switch("gpu-005")
    assert failed.type == "IncompleteMachine"
    assert "3000 of 3500 MiB of memory" in failed.message
    assert "DRAIN" in flags(running_site.node("gpu-005"))


async def test_a_failed_burn_in_leaves_the_node_held_with_why_and_closed_to_users(running_site: RunningSite) -> None:
    running_site.site.metal.switch("gpu-006", "fails-burn-in")
    failed = await running_site.fail("gpu-006")
    running_site.site.metal.switch("gpu-006")
    node = running_site.node("gpu-006")
    assert failed.type == "BurnInFailed"
    assert "nvidia-smi fails on the node" in failed.message
    assert flags(node) & {"DRAIN", "MAINTENANCE"} == {"DRAIN"}
    assert node["reason"].startswith("fm:adopt Burn-in of node gpu-006 did not pass")
    [hold] = (await running_site.actor("gpu-006")).holds
    parsed = parse(node["reason"])
    assert parsed is not None
    assert parsed.short_ids == (hold.short_id,)
    assert "fm_gpu-006" not in proof.reservations(running_site.site.slurm)

    passed = await running_site.adopt("gpu-006", force_rebuild=True)
    assert passed.outcome is AdoptOutcome.IN_SERVICE
    assert (await running_site.actor("gpu-006")).holds == ()
    assert running_site.node("gpu-006")["reason"] == ""


async def test_somebody_elses_drain_is_refused_and_stays_as_it_is(running_site: RunningSite) -> None:
    await running_site.adopt("gpu-007")
    slurm = running_site.site.slurm
    slurm.run("scontrol", "update", "nodename=gpu-007", "state=drain", "reason=bob has it open")
    failed = await running_site.fail("gpu-007", force_rebuild=True)
    assert failed.type == "NodeHeld"
    assert "bob has it open" in failed.message
    assert running_site.node("gpu-007")["reason"] == "bob has it open"
    slurm.run("scontrol", "update", "nodename=gpu-007", "state=undrain")


async def test_a_users_reservation_is_refused_before_anything_is_touched(running_site: RunningSite) -> None:
    await running_site.adopt("gpu-008")
    slurm = running_site.site.slurm
    tomorrow = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - scontrol takes local time
    slurm.run(
        *("scontrol", "create", "reservation", "reservationname=course", "nodes=gpu-008"),
        *(f"users={slurm.job_user}", f"starttime={tomorrow:%Y-%m-%dT%H:%M:%S}", "duration=60"),
    )
    failed = await running_site.fail("gpu-008", force_rebuild=True)
    slurm.run("scontrol", "delete", "reservation=course")
    assert failed.type == "NodeReserved"
    assert "course" in failed.message
    assert "DRAIN" not in flags(running_site.node("gpu-008"))


async def test_a_hold_that_came_meanwhile_is_on_the_node_before_the_reservation_is_off(
    running_site: RunningSite,
) -> None:
    running_site.site.metal.switch("gpu-009", "boots-late=6")
    handle = await running_site.start("gpu-009")
    await running_site.until_phase(handle, AdoptPhase.REGISTER)
    actor = running_site.client.get_workflow_handle(node_actor.workflow_id(SITE, "gpu-009"))
    bench = Hold(id="0190aaaa-0000-7000-8000-00000000beef", owner="alice", why="fans", since=datetime.now(UTC))
    await actor.execute_update(node_actor.UPDATE_PLACE_HOLD, node_actor.PlaceHold(hold=bench))
    result = await handle.result()
    node = running_site.node("gpu-009")
    assert (result.outcome, result.held_by) == (AdoptOutcome.PASSED_BUT_HELD, ("alice: fans",))
    assert flags(node) & {"DRAIN", "MAINTENANCE"} == {"DRAIN"}
    assert node["reason"] == "fm:alice fans [fm 00000000beef]"

    await actor.execute_update(node_actor.UPDATE_END_HOLD, node_actor.EndHold(hold_id=bench.id))
    for _ in range(100):
        if "DRAIN" not in flags(running_site.node("gpu-009")):
            break
        await asyncio.sleep(0.1)
    assert "DRAIN" not in flags(running_site.node("gpu-009"))


async def test_cancelled_while_its_machine_never_boots_it_leaves_a_hold_and_a_named_server(
    running_site: RunningSite,
) -> None:
    running_site.site.metal.switch("gpu-010", "never-boots")
    handle = await running_site.start("gpu-010")
    await running_site.until_phase(handle, AdoptPhase.REGISTER)
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert isinstance(error.value.cause, CancelledError)
    assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED
    state = await running_site.actor("gpu-010")
    [hold] = state.holds
    assert (hold.kind, hold.why, state.claim) == (HoldKind.VERDICT, "cancelled by hand", None)
    [server] = running_site.servers("gpu-010")
    assert "fm-device-dev-010" in server["tags"]

    running_site.site.metal.switch("gpu-010")
    again = await running_site.adopt("gpu-010", force_rebuild=True)
    assert (again.outcome, again.way, again.server_id) == (AdoptOutcome.IN_SERVICE, "rebuild", server["id"])


async def test_two_adoptions_under_different_ids_exclude_each_other(running_site: RunningSite) -> None:
    running_site.site.metal.switch("gpu-011", "boots-late=6")
    first = await running_site.start("gpu-011")
    await running_site.until_phase(first, AdoptPhase.REGISTER)
    second = await running_site.client.start_workflow(
        adopt.WORKFLOW,
        adopt.AdoptInput(site=SITE, device="gpu-011"),
        id="typed-by-an-sre",
        task_queue=f"fleet-slurm/{SITE}",
        result_type=adopt.AdoptResult,
    )
    with pytest.raises(WorkflowFailureError) as error:
        await second.result()
    cause = error.value.cause
    assert getattr(cause, "type", "") == "ClaimRefused"
    assert "workflow adopt/lab/gpu-011" in str(cause)
    result = await first.result()
    assert result.outcome is AdoptOutcome.IN_SERVICE
    assert len(running_site.servers("gpu-011")) == 1


async def test_an_input_for_another_site_fails_at_once_and_says_where_it_belongs(running_site: RunningSite) -> None:
    handle = await running_site.client.start_workflow(
        adopt.WORKFLOW,
        {"site": "mars", "device": "gpu-001"},
        id="wrong-site",
        task_queue=f"fleet-slurm/{SITE}",
    )
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert getattr(error.value.cause, "type", "") == "WrongSite"
    assert "fleet-slurm/mars" in str(error.value.cause)


def test_the_command_line_says_that_nobody_serves_a_site_instead_of_waiting(running_site: RunningSite) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleet_manager.cli.main", "adopt", "gpu-001", "--site", "moon"],
        env={"PATH": os.defpath, **running_site.site.env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "no worker serves site moon" in done.stderr


async def test_no_input_at_all_fails_at_once(running_site: RunningSite) -> None:
    handle = await running_site.client.start_workflow(adopt.WORKFLOW, id="no-input", task_queue=f"fleet-slurm/{SITE}")
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert "give a JSON object with site, device" in str(error.value.cause)


async def test_a_bad_input_fails_at_once_with_what_is_allowed(running_site: RunningSite) -> None:
    handle = await running_site.client.start_workflow(
        adopt.WORKFLOW,
        {"site": SITE, "device": "gpu-001", "burn_in": "no-such-suite"},
        id="bad-input",
        task_queue=f"fleet-slurm/{SITE}",
    )
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert "allowed: smoke" in str(error.value.cause)


async def test_no_secret_is_in_any_history_log_or_argv(running_site: RunningSite) -> None:
    """Last of the file on purpose: everything above has left its traces by now."""
    site = running_site.site
    ids = [one.id async for one in running_site.client.list_workflows()]
    histories = [(await running_site.client.get_workflow_handle(one).fetch_history()).to_json_dict() for one in ids]
    assert len(histories) > 3
    assert proof.leaks(site, histories) == []
    longest = max(len(one["events"]) for one, id_ in zip(histories, ids, strict=True) if id_.startswith("adopt/"))
    assert longest <= 120
