"""Devices, names and how one report changes a condition."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_manager.core.domain.device import (
    Condition,
    ConditionOutcome,
    ConditionReport,
    ConditionStatus,
    Device,
    DeviceBuild,
    apply_report,
    is_name,
    is_site_id,
    name_key,
)

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
DEVICE = Device(id="dev-1", site="lab", name="gpu-001", role="gpu")

statuses = st.sampled_from(list(ConditionStatus))
seconds = st.integers(min_value=-100, max_value=100)


def report(status: ConditionStatus = ConditionStatus.TRUE, at: int = 0, reason: str = "Registered") -> ConditionReport:
    when = NOON + timedelta(seconds=at)
    return ConditionReport(device="gpu-001", type="T", status=status, reason=reason, message="", observed_at=when)


def test_a_device_without_a_slurm_name_is_its_name_in_slurm() -> None:
    assert DEVICE.node_name == "gpu-001"


def test_the_node_name_is_the_exact_spelling_of_slurm() -> None:
    """Case 027: node names are case-sensitive in SLURM."""
    assert DEVICE.model_copy(update={"slurm_node": "GPU001"}).node_name == "GPU001"


def test_two_names_that_differ_in_case_alone_have_one_key() -> None:
    assert name_key("A001") == name_key("a001")


def test_a_device_without_a_server_has_an_empty_build() -> None:
    assert DEVICE.build == DeviceBuild()


def test_a_device_is_frozen() -> None:
    with pytest.raises(ValueError):
        DEVICE.name = "other"  # type: ignore[misc]


def test_a_device_goes_through_json_and_back() -> None:
    condition, _ = apply_report(None, report())
    device = DEVICE.model_copy(update={"conditions": (condition,)})
    assert Device.model_validate_json(device.model_dump_json()) == device


@pytest.mark.parametrize("text", ["a", "ams1", "eu-west-1", "x" * 63])
def test_a_site_id_is_a_dns_label(text: str) -> None:
    assert is_site_id(text)


@pytest.mark.parametrize("text", ["", "*", "AMS1", "-a", "a-", "a.b", "a/b", "x" * 64, "a\n"])
def test_what_is_no_dns_label_is_no_site_id(text: str) -> None:
    assert not is_site_id(text)


@pytest.mark.parametrize("text", ["gpu-001", "Node02", "a.b_c", "x" * 63])
def test_a_name_is_what_slurm_takes_unquoted(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize("text", ["", "-a", "a b", "a,b", "a[1-2]", "a/b", "x" * 64, "a\n"])
def test_what_slurm_would_read_otherwise_is_no_name(text: str) -> None:
    assert not is_name(text)


def test_the_first_report_is_a_condition_since_it_was_seen() -> None:
    condition, outcome = apply_report(None, report())
    assert outcome is ConditionOutcome.CREATED
    assert condition == Condition(
        type="T",
        status=ConditionStatus.TRUE,
        reason="Registered",
        message="",
        last_transition_time=NOON,
        observed_at=NOON,
    )


def test_the_same_status_keeps_its_last_transition_time() -> None:
    first, _ = apply_report(None, report())
    second, outcome = apply_report(first, report(at=60, reason="StillThere"))
    assert outcome is ConditionOutcome.REFRESHED
    assert (second.reason, second.last_transition_time, second.observed_at) == (
        "StillThere",
        NOON,
        NOON + timedelta(seconds=60),
    )


def test_another_status_moves_the_last_transition_time() -> None:
    first, _ = apply_report(None, report())
    second, outcome = apply_report(first, report(ConditionStatus.UNKNOWN, at=60))
    assert outcome is ConditionOutcome.TRANSITIONED
    assert second.last_transition_time == NOON + timedelta(seconds=60)


def test_a_report_from_before_what_is_known_changes_nothing() -> None:
    first, _ = apply_report(None, report(at=60))
    assert apply_report(first, report(ConditionStatus.FALSE, at=59)) == (first, ConditionOutcome.STALE)


def test_the_retry_of_a_report_changes_nothing_more() -> None:
    first, _ = apply_report(None, report(at=60))
    assert apply_report(first, report(at=60)) == (first, ConditionOutcome.REFRESHED)


@given(st.lists(st.tuples(statuses, seconds), min_size=1, max_size=20))
def test_whatever_the_order_the_newest_report_is_what_is_known(told: list[tuple[ConditionStatus, int]]) -> None:
    known: Condition | None = None
    for status, at in told:
        known, _ = apply_report(known, report(status, at))
    assert known is not None
    newest = max(at for _, at in told)
    assert known.observed_at == NOON + timedelta(seconds=newest)
    assert known.status in {status for status, at in told if at == newest}
    assert known.last_transition_time <= known.observed_at
