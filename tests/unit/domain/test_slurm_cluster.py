"""Reservations on a node now and later, and releases compared by number (case 008)."""

from datetime import UTC, datetime, timedelta

import pytest

from fleet_manager.core.domain.slurm_cluster import Reservation, SlurmVersion

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def reservation(start: datetime | None, end: datetime | None, nodes: tuple[str, ...] = ("gpu-001",)) -> Reservation:
    return Reservation(name="maint", nodes=nodes, users=("alice",), start=start, end=end)


@pytest.mark.parametrize(
    ("start", "end", "covers", "active"),
    [
        (NOW - HOUR, NOW + HOUR, True, True),
        (NOW - HOUR, None, True, True),  # without end
        (None, None, True, True),
        (None, NOW + HOUR, True, True),
        (NOW, NOW + HOUR, True, True),  # begins this moment
        (NOW + HOUR, NOW + 2 * HOUR, True, False),  # to come: it overlaps what we would make without end
        (NOW + HOUR, None, True, False),
        (NOW - 2 * HOUR, NOW - HOUR, False, False),
        (NOW - HOUR, NOW, False, False),  # ends this moment
    ],
)
def test_a_reservation_stands_now_or_later(
    start: datetime | None, end: datetime | None, covers: bool, active: bool
) -> None:
    seen = reservation(start, end)
    assert (seen.covers("gpu-001", NOW), seen.active(NOW)) == (covers, active)


@pytest.mark.parametrize("name", ["gpu-002", "GPU-001", "gpu-00", "gpu-0011", ""])
def test_a_reservation_of_other_nodes_does_not_stand_on_this_one(name: str) -> None:
    assert not reservation(None, None).covers(name, NOW)


def test_a_reservation_of_many_nodes_stands_on_each() -> None:
    assert reservation(None, None, ("gpu-001", "gpu-002")).covers("gpu-002", NOW)


def test_a_reservation_of_no_node_stands_on_none() -> None:
    assert not reservation(None, None, ()).covers("gpu-001", NOW)


def test_releases_are_compared_by_number() -> None:
    assert SlurmVersion(25, 5, 3).key < SlurmVersion(25, 11).key < SlurmVersion(26, 5).key
    assert SlurmVersion(24, 11, 5).key > SlurmVersion(24, 11, 4).key


@pytest.mark.parametrize(("version", "text"), [(SlurmVersion(26, 5, 5), "26.05.5"), (SlurmVersion(24, 11), "24.11.0")])
def test_a_release_is_written_as_slurm_writes_it(version: SlurmVersion, text: str) -> None:
    assert str(version) == text
