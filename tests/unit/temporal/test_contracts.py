"""What workflows take and give: short inputs, good defaults, and a no at once that says what is allowed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from fleet_manager.core.domain.burn_in import SUITES, Verdict
from fleet_manager.core.domain.device import is_name, is_site_id
from fleet_manager.core.domain.slurm_holds import Hold, HoldKind
from fleet_manager.core.domain.slurm_job import JobEnd
from fleet_manager.core.domain.slurm_projection import Build, Projection, ReasonClass
from fleet_manager.temporal.contracts import (
    adopt,
    burn_in,
    drain,
    fleet_plan,
    node_actor,
    release,
    resume,
    run_slurm_job,
)
from fleet_manager.temporal.contracts.common import (
    Contract,
    Failure,
    NodeName,
    Payload,
    SiteId,
    Verb,
    task_queue,
    watch_queue,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ID = "0190aaaa-0000-7000-8000-00000000000a"
MODULES = (adopt, burn_in, drain, fleet_plan, node_actor, release, resume, run_slurm_job)
JOB = {"name": "x", "script": "#!/bin/sh", "partition": "main"}

SHORTEST: list[tuple[type[BaseModel], dict[str, object], dict[str, object]]] = [
    (adopt.AdoptInput, {"site": "lab", "device": "gpu-001"}, {"burn_in": "smoke", "force_rebuild": False}),
    (burn_in.BurnInInput, {"site": "lab", "node": "gpu-001"}, {"suite": "smoke"}),
    (
        drain.DrainInput,
        {"site": "lab", "node": "gpu-001", "reason": "psu swap"},
        {"owner": "sre", "deadline": None, "on_deadline": drain.OnDeadline.WAIT},
    ),
    (resume.ResumeInput, {"site": "lab", "node": "gpu-001"}, {"hold": None, "override": None}),
    (release.ReleaseInput, {"site": "lab", "device": "gpu-001"}, {"keep_server": False}),
    (run_slurm_job.RunSlurmJobInput, {"site": "lab", "job": JOB}, {"provider": None}),
    (
        fleet_plan.FleetPlanInput,
        {"site": "lab", "verb": "drain", "selector": "role=gpu"},
        {"preview": True, "canary": 1, "max_unavailable": "10%", "stop_after": 1},
    ),
    (node_actor.ActorInput, {"site": "lab", "node": "gpu-001"}, {"state": node_actor.ActorState()}),
]
IDS = [row[0].__name__ for row in SHORTEST]


def no(model: type[BaseModel], facts: dict[str, object]) -> tuple[str, str]:
    """Return which field is refused, and the sentence."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(json.dumps(facts))
    (error,) = caught.value.errors()
    return ".".join(map(str, error["loc"])), error["msg"]


# -- inputs


@pytest.mark.parametrize(("model", "facts", "defaults"), SHORTEST, ids=IDS)
def test_the_shortest_json_from_the_ui_is_enough_and_its_defaults_are_safe(
    model: type[BaseModel], facts: dict[str, object], defaults: dict[str, object]
) -> None:
    made = model.model_validate_json(json.dumps(facts))
    assert {name: getattr(made, name) for name in defaults} == defaults


@pytest.mark.parametrize(("model", "facts", "defaults"), SHORTEST, ids=IDS)
def test_an_input_comes_back_from_a_history_as_it_was(
    model: type[BaseModel], facts: dict[str, object], defaults: dict[str, object]
) -> None:
    made = model.model_validate(facts)
    assert model.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(("model", "facts", "defaults"), SHORTEST, ids=IDS)
def test_an_input_does_not_change(
    model: type[BaseModel], facts: dict[str, object], defaults: dict[str, object]
) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        model.model_validate(facts).site = "other"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("model", "facts", "defaults"), SHORTEST, ids=IDS)
def test_a_field_that_is_not_there_is_refused_by_name_so_that_a_typo_is_no_consent(
    model: type[BaseModel], facts: dict[str, object], defaults: dict[str, object]
) -> None:
    field, sentence = no(model, {**facts, "forse": True})
    assert field == ""
    assert f"{model.__name__}: no field 'forse'" in sentence
    assert all(name in sentence for name in model.model_fields)


@pytest.mark.parametrize(("model", "facts", "defaults"), SHORTEST, ids=IDS)
def test_each_required_field_is_asked_for_by_name(
    model: type[BaseModel], facts: dict[str, object], defaults: dict[str, object]
) -> None:
    for name in facts:
        field, sentence = no(model, {key: value for key, value in facts.items() if key != name})
        assert field == ""
        assert f"needs '{name}'" in sentence


@pytest.mark.parametrize("site", ["Lab", "lab_1", "-lab", "lab-", "lab/1", "lab.1", "", "a" * 64, "lab\n", " lab", 7])
@pytest.mark.parametrize(("model", "facts", "defaults"), SHORTEST, ids=IDS)
def test_a_bad_site_is_refused_with_what_is_allowed(
    model: type[BaseModel], facts: dict[str, object], defaults: dict[str, object], site: object
) -> None:
    field, sentence = no(model, {**facts, "site": site})
    assert field == "site"
    assert "lower-case letters, digits and inner '-'" in sentence or (site == 7 and "string" in sentence)


@pytest.mark.parametrize("name", ["gpu 001", "gpu-001;x", "gpu[001-002]", "a,b", "-x", "", "x" * 64, "gpu-001\n", "ü"])
@pytest.mark.parametrize(
    ("model", "facts", "field"),
    [(row[0], row[1], field) for row in SHORTEST for field in ("node", "device") if field in row[1]],
)
def test_a_name_that_slurm_would_take_for_several_or_for_none_is_refused(
    model: type[BaseModel], facts: dict[str, object], field: str, name: str
) -> None:
    refused, sentence = no(model, {**facts, field: name})
    assert refused == field
    assert "a letter or digit, then letters, digits and . _ -" in sentence


@pytest.mark.parametrize("name", ["gpu-001", "A001", "a", "rack1.u3", "n_1", "01HZY3M5V7W8X9Y0Z1A2B3C4D5", "x" * 63])
def test_names_and_ids_as_the_hub_gives_them_are_taken(name: str) -> None:
    assert adopt.AdoptInput(site="lab", device=name).device == name


@given(st.text(max_size=70) | st.from_regex(r"[a-zA-Z0-9._-]{1,66}\n?"))
def test_hub_and_workflows_agree_on_what_a_site_and_a_name_are(text: str) -> None:
    def taken(kind: object) -> bool:
        try:
            TypeAdapter(kind).validate_python(text)
        except ValidationError:
            return False
        return True

    assert taken(SiteId) is is_site_id(text)
    assert taken(NodeName) is is_name(text)


@pytest.mark.parametrize(
    ("model", "facts", "field"),
    [
        (adopt.AdoptInput, {"site": "lab", "device": "gpu-001", "burn_in": "smok"}, "burn_in"),
        (burn_in.BurnInInput, {"site": "lab", "node": "gpu-001", "suite": "smok"}, "suite"),
    ],
)
def test_an_unknown_suite_is_refused_with_those_that_exist(
    model: type[BaseModel], facts: dict[str, object], field: str
) -> None:
    refused, sentence = no(model, facts)
    assert refused == field
    assert sentence == "Value error, burn-in suite 'smok' does not exist; allowed: smoke"


@pytest.mark.parametrize("name", sorted(SUITES))
def test_every_suite_can_be_asked_for(name: str) -> None:
    assert adopt.AdoptInput(site="lab", device="x", burn_in=name).burn_in == name


DRAIN: dict[str, object] = {"site": "lab", "node": "gpu-001", "reason": "psu"}
PLAN: dict[str, object] = {"site": "lab", "verb": "drain", "selector": "all"}


@pytest.mark.parametrize(
    ("model", "facts", "field", "allowed"),
    [
        (drain.DrainInput, {**DRAIN, "reason": ""}, "reason", "at least 1 character"),
        (drain.DrainInput, {**DRAIN, "reason": "x" * 501}, "reason", "at most 500 characters"),
        (drain.DrainInput, {**DRAIN, "deadline": "PT0S"}, "deadline", "greater than 0"),
        (drain.DrainInput, {**DRAIN, "deadline": "-PT1H"}, "deadline", "greater than 0"),
        (drain.DrainInput, {**DRAIN, "deadline": "soon"}, "deadline", "valid duration"),
        (drain.DrainInput, {**DRAIN, "on_deadline": "kill"}, "on_deadline", "'wait', 'requeue', 'cancel' or 'fail'"),
        (drain.DrainInput, {**DRAIN, "owner": "Bob Smith"}, "owner", "[a-z0-9]"),
        (resume.ResumeInput, {"site": "lab", "node": "n", "hold": "x"}, "hold", "{12,64}"),
        (
            resume.ResumeInput,
            {"site": "lab", "node": "n", "override": {"human": "alice"}},
            "override",
            "needs 'reason'",
        ),
        (fleet_plan.FleetPlanInput, {**PLAN, "verb": "job"}, "verb", "adopt"),
        (fleet_plan.FleetPlanInput, {**PLAN, "canary": -1}, "canary", "greater than or equal to 0"),
        (fleet_plan.FleetPlanInput, {**PLAN, "stop_after": 0}, "stop_after", "greater than 0"),
        (fleet_plan.FleetPlanInput, {**PLAN, "max_unavailable": "many"}, "max_unavailable", "%"),
        (
            run_slurm_job.RunSlurmJobInput,
            {"site": "lab", "job": {**JOB, "time_limit_minutes": 0}},
            "job.time_limit_minutes",
            "greater than 0",
        ),
        (run_slurm_job.RunSlurmJobInput, {"site": "lab", "job": {**JOB, "script": ""}}, "job.script", "at least 1"),
    ],
)
def test_a_bad_value_is_refused_with_its_field_and_what_is_allowed(
    model: type[BaseModel], facts: dict[str, object], field: str, allowed: str
) -> None:
    refused, sentence = no(model, facts)
    assert refused == field
    assert allowed in sentence


def test_a_deadline_is_written_as_people_and_machines_write_it() -> None:
    for text in ("PT2H", 7200, "02:00:00"):
        assert drain.DrainInput.model_validate({**DRAIN, "deadline": text}).deadline == timedelta(hours=2)


def test_the_default_of_a_drain_never_ends_a_job() -> None:
    assert drain.DrainInput.model_validate(DRAIN).on_deadline is drain.OnDeadline.WAIT


# -- results


STATE = node_actor.ActorState(
    holds=(Hold(id=ID, owner="adopt", why="burn-in", since=NOW, kind=HoldKind.GATE),),
    claim=node_actor.Claim(id=ID, verb=Verb.ADOPT, workflow_id="adopt/lab/gpu-001", started_by="alice", since=NOW),
    gate=node_actor.Gate(build=Build(server_id="s", build_id="b"), reservation="fm_gpu-001"),
    projection=Projection(seen=True, drained=True, state="IDLE+DRAIN", reason="x", whose=ReasonClass.OURS),
)
GIVEN: list[Payload] = [
    adopt.AdoptResult(
        outcome=adopt.AdoptOutcome.IN_SERVICE,
        site="lab",
        device_id="d",
        device="gpu-001",
        node="gpu-001",
        server_id="s",
        build_id="b",
        config_revision=3,
        way="create",
        job_ids=(7,),
        steps=(adopt.StepTime(phase=adopt.AdoptPhase.SURVEY, since=NOW),),
        finished_at=NOW,
    ),
    burn_in.BurnInResult(verdict=Verdict.FAIL, job_ids=(7,), evidence=("job 7 (smoke) failed: x",)),
    drain.DrainResult(drained=False, hold_id=ID, holds=("alice: psu",), running_jobs=(41,), eta=NOW),
    resume.ResumeResult(schedulable=False, holds_left=("bob: fans",)),
    release.ReleaseResult(node="gpu-001", node_deleted=True, server_deleted=False),
    run_slurm_job.RunSlurmJobResult(job_id=7, end=JobEnd.PASSED, why="completed with exit code 0"),
    fleet_plan.FleetPlanResult(outcomes=(fleet_plan.NodeOutcome(node="gpu-001", outcome="drained"),)),
    STATE,
]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: type(given).__name__)
def test_a_result_comes_back_from_a_history_as_it_was(given: Payload) -> None:
    assert type(given).model_validate_json(given.model_dump_json()) == given


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: type(given).__name__)
def test_a_field_of_a_newer_sender_is_let_through_in_a_result(given: Payload) -> None:
    newer = {**json.loads(given.model_dump_json()), "brand_new": 1}
    assert type(given).model_validate_json(json.dumps(newer)) == given


def test_an_actor_continues_as_new_with_all_that_it_knows() -> None:
    given = node_actor.ActorInput(site="lab", node="gpu-001", state=STATE)
    assert node_actor.ActorInput.model_validate_json(given.model_dump_json()).state == STATE


def test_times_without_a_zone_are_refused() -> None:
    claim = STATE.claim
    assert claim
    with pytest.raises(ValidationError, match="timezone"):
        node_actor.Claim.model_validate({**claim.model_dump(), "since": datetime(2026, 11, 30)})  # noqa: DTZ001


@pytest.mark.parametrize("contract", Contract.__subclasses__(), ids=lambda cls: cls.__name__)
def test_every_input_is_frozen_and_closed(contract: type[Contract]) -> None:
    assert contract.model_config["frozen"]
    assert contract.model_config["extra"] == "forbid"


# -- names, ids, queues


def test_every_workflow_has_a_name_of_its_own() -> None:
    assert [module.WORKFLOW for module in MODULES] == [
        "AdoptNode",
        "BurnInNode",
        "DrainNode",
        "FleetPlan",
        "NodeActor",
        "ReleaseNode",
        "ResumeNode",
        "RunSlurmJob",
    ]


def test_workflow_ids_are_natural_keys() -> None:
    assert adopt.workflow_id("lab", "gpu-001") == "adopt/lab/gpu-001"
    assert burn_in.workflow_id("lab", "gpu-001") == "burn-in/lab/gpu-001"
    assert drain.workflow_id("lab", "gpu-001", "sre") == "drain/lab/gpu-001/sre"
    assert resume.workflow_id("lab", "gpu-001") == "resume/lab/gpu-001"
    assert release.workflow_id("lab", "gpu-001") == "release/lab/gpu-001"
    assert node_actor.workflow_id("lab", "gpu-001") == "node/lab/gpu-001"
    assert run_slurm_job.workflow_id("lab", "nccl-7") == "job/lab/nccl-7"
    assert fleet_plan.workflow_id("lab", "drain", "w48") == "plan/lab/drain/w48"


def test_no_two_verbs_share_an_id() -> None:
    ids = [module.workflow_id("lab", "x") for module in (adopt, burn_in, resume, release, node_actor, run_slurm_job)]
    ids += [drain.workflow_id("lab", "x", "x"), fleet_plan.workflow_id("lab", "x", "x")]
    assert len(set(ids)) == len(ids)


def test_a_node_and_its_other_spelling_have_actors_of_their_own() -> None:
    assert node_actor.workflow_id("lab", "A001") != node_actor.workflow_id("lab", "a001")


def test_queues_are_those_of_the_site() -> None:
    assert task_queue("lab") == "fleet-slurm/lab"
    assert watch_queue("lab") == "fleet-slurm/lab/watch"


def test_every_failure_is_a_type_that_people_can_search_for() -> None:
    for failure in Failure:
        assert failure.value.isidentifier()
        assert failure.value[0].isupper()
    assert len({failure.value for failure in Failure}) == len(Failure)
