"""What one reading of a server proves, row by row."""

import base64
import hashlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fleet_manager.core.domain.server import (
    BUILD_KEY,
    USER_DATA_KEY,
    Building,
    BuildState,
    Done,
    Elsewhere,
    Failed,
    Lost,
    NotThisBuild,
    PowerState,
    Server,
    ServerStatus,
    Stopped,
    build_state,
    build_tag,
    capacity_failure,
    clean_fault,
    device_tag,
    is_gone,
    is_leaving,
    is_settled,
    rebuild_refusal,
    user_data_sha256,
)

NO_ROOM = "No valid host was found. There are not enough hosts available."
ACTIVE = Server(
    id="s-1",
    name="gpu-001",
    status=ServerStatus.ACTIVE,
    image_id="image-1",
    metadata={BUILD_KEY: "b-1"},
    hypervisor_hostname="rack1-u1",
    launched_at=datetime(2026, 1, 1, tzinfo=UTC),
)
S = ServerStatus

STATES: list[tuple[str, Server | None, BuildState]] = [
    ("404", None, Lost("the server is gone")),
    ("DELETED is gone too", replace(ACTIVE, status=S.DELETED), Lost("the server is gone")),
    ("ACTIVE while it is deleted", replace(ACTIVE, task_state="deleting"), Lost("the server is being deleted")),
    ("soft-deleted can come back", replace(ACTIVE, status=S.SOFT_DELETED), Lost("the server is being deleted")),
    ("scheduling", replace(ACTIVE, status=S.BUILD, task_state="scheduling"), Building("BUILD/scheduling")),
    ("BUILD without a task is between two steps", replace(ACTIVE, status=S.BUILD), Building("BUILD")),
    ("ACTIVE with a task", replace(ACTIVE, task_state="spawning"), Building("ACTIVE/spawning")),
    ("rebuilding", replace(ACTIVE, status=S.REBUILD, task_state="rebuilding"), Building("REBUILD/rebuilding")),
    ("a status we do not know", replace(ACTIVE, status=S.UNKNOWN), Building("UNKNOWN")),
    ("done", ACTIVE, Done()),
    ("rebuilt from SHUTOFF", replace(ACTIVE, status=S.SHUTOFF), Stopped()),
    ("no room", replace(ACTIVE, status=S.ERROR, fault_message=NO_ROOM), Failed(NO_ROOM, capacity=True)),
    ("aborted", replace(ACTIVE, status=S.ERROR, fault_message="burnt"), Failed("burnt")),
    ("ERROR, no fault", replace(ACTIVE, status=S.ERROR), Failed("the server is in ERROR and Nova gives no fault")),
    ("wrong image", replace(ACTIVE, image_id="image-0"), Failed("it boots image image-0 instead of image-1")),
    ("paused by hand", replace(ACTIVE, status=S.PAUSED), Failed("the server is PAUSED, which no build leaves behind")),
    ("another build", replace(ACTIVE, metadata={BUILD_KEY: "b-0"}), NotThisBuild("b-0", busy=False)),
    ("no build of ours", replace(ACTIVE, metadata={}), NotThisBuild(None, busy=False)),
    (
        "another build is under way",
        replace(ACTIVE, metadata={BUILD_KEY: "b-2"}, status=S.REBUILD, task_state="rebuilding"),
        NotThisBuild("b-2", busy=True),
    ),
    ("another build failed", replace(ACTIVE, metadata={}, status=S.ERROR), NotThisBuild(None, busy=False)),
]


@pytest.mark.parametrize(("server", "state"), [row[1:] for row in STATES], ids=[row[0] for row in STATES])
def test_a_reading_says_where_the_build_stands(server: Server | None, state: BuildState) -> None:
    assert build_state(server, "b-1", "image-1") == state


@pytest.mark.parametrize(
    ("wanted", "found", "state"),
    [
        ("rack1-u1", "rack1-u1", Done()),
        ("rack1-u2", "rack1-u1", Elsewhere("rack1-u2", "rack1-u1")),
        ("RACK1-U1", "rack1-u1", Elsewhere("RACK1-U1", "rack1-u1")),
        ("rack1-u1", None, Elsewhere("rack1-u1", None)),
    ],
)
def test_a_pinned_build_is_done_only_where_it_is_seen(wanted: str, found: str | None, state: BuildState) -> None:
    server = replace(ACTIVE, hypervisor_hostname=found)
    assert build_state(server, "b-1", "image-1", hypervisor_hostname=wanted) == state


def test_a_build_on_its_way_is_not_judged_by_its_machine() -> None:
    server = replace(ACTIVE, status=S.BUILD, task_state="spawning", hypervisor_hostname=None)
    assert build_state(server, "b-1", "image-1", hypervisor_hostname="rack1-u1") == Building("BUILD/spawning")


@pytest.mark.parametrize("status", [s for s in ServerStatus if s is not ServerStatus.DELETED])
def test_only_deleted_is_gone(status: ServerStatus) -> None:
    assert not is_gone(replace(ACTIVE, status=status))


def test_nothing_and_deleted_are_gone() -> None:
    assert is_gone(None)
    assert is_gone(replace(ACTIVE, status=S.DELETED))


@pytest.mark.parametrize(
    ("status", "task", "settled"),
    [
        (S.ACTIVE, None, True),
        (S.SHUTOFF, None, True),
        (S.ERROR, None, True),
        (S.VERIFY_RESIZE, None, True),
        (S.BUILD, None, False),
        (S.REBUILD, None, False),
        (S.UNKNOWN, None, False),
        (S.REBOOT, None, False),
        (S.ACTIVE, "not shown", False),
        (S.ACTIVE, "deleting", False),
    ],
)
def test_settled_is_no_task_and_no_moving_status(status: ServerStatus, task: str | None, settled: bool) -> None:
    assert is_settled(replace(ACTIVE, status=status, task_state=task)) is settled


@pytest.mark.parametrize(
    ("status", "message", "capacity"),
    [
        (S.ERROR, "No valid host was found. ", True),
        (S.ERROR, "no valid host was found. Exhausted all hosts", True),
        (
            S.ERROR,
            "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures",
            False,
        ),
        (S.ERROR, "Build of instance aborted: image checksum mismatch", False),
        (S.ERROR, "", False),
        (S.ACTIVE, "No valid host was found. ", False),
    ],
)
def test_no_room_is_not_a_broken_node(status: ServerStatus, message: str, capacity: bool) -> None:
    assert capacity_failure(replace(ACTIVE, status=status, fault_message=message)) is capacity


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (ACTIVE, None),
        (replace(ACTIVE, status=S.SHUTOFF), None),
        (replace(ACTIVE, status=S.ERROR), None),
        (replace(ACTIVE, volume_booted=True, image_id=None), "boots from a volume"),
        (replace(ACTIVE, locked=True), "locked"),
        (replace(ACTIVE, status=S.DELETED), "deleted"),
        (replace(ACTIVE, task_state="deleting"), "deleted"),
        (replace(ACTIVE, status=S.REBUILD, task_state="rebuilding"), "busy with it (REBUILD/rebuilding)"),
        (replace(ACTIVE, status=S.UNKNOWN), "busy"),
        (replace(ACTIVE, status=S.ERROR, launched_at=None), "it never ran"),
        (replace(ACTIVE, status=S.VERIFY_RESIZE), "it is VERIFY_RESIZE"),
        (replace(ACTIVE, status=S.RESCUE), "it is RESCUE"),
    ],
)
def test_a_rebuild_is_refused_before_anything_is_touched(server: Server, why: str | None) -> None:
    refusal = rebuild_refusal(server)
    assert (refusal is None) is (why is None)
    assert (why or "") in (refusal or "")


def test_leaving_is_a_delete_task_or_a_soft_delete() -> None:
    assert is_leaving(replace(ACTIVE, task_state="deleting"))
    assert is_leaving(replace(ACTIVE, status=S.SOFT_DELETED))
    assert not is_leaving(ACTIVE)


def test_tags_name_device_and_build() -> None:
    assert device_tag("gpu-001") == "fm-device-gpu-001"
    assert build_tag("0f9c") == "fm-build-0f9c"


@pytest.mark.parametrize("wrong", ["", "a,b", "a/b", "a b", "ä", "-a", "a\n"])
def test_a_tag_that_nova_or_a_url_would_trip_over_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="cannot be a server tag"):
        device_tag(wrong)


def test_a_tag_has_sixty_characters_at_most() -> None:
    assert len(device_tag("x" * 50)) == 60
    with pytest.raises(ValueError, match="has 61 characters; Nova keeps 60"):
        device_tag("x" * 51)


def test_the_hash_is_of_the_bytes_so_line_breaks_do_not_matter() -> None:
    raw = b"#cloud-config\n" + b"x" * 100
    expected = hashlib.sha256(raw).hexdigest()
    assert user_data_sha256(base64.b64encode(raw).decode()) == expected
    assert user_data_sha256(base64.encodebytes(raw).decode()) == expected


def test_bad_base64_is_refused_without_its_text() -> None:
    with pytest.raises(ValueError) as caught:
        user_data_sha256("munge-key-hunter2!")
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__context__ is None


def test_the_shown_hash_goes_before_the_written_one() -> None:
    server = replace(ACTIVE, metadata={USER_DATA_KEY: "written"})
    assert server.known_user_data_sha256 == "written"
    assert replace(server, user_data_sha256="shown").known_user_data_sha256 == "shown"


def test_a_fault_is_one_line_cut_and_without_long_runs() -> None:
    blob = base64.b64encode(b"secret" * 20).decode()
    assert clean_fault(f"Failed to deploy\n  {blob}: bad") == "Failed to deploy …: bad"
    assert len(clean_fault("word " * 200)) == 300


def test_a_new_status_word_reads_as_unknown() -> None:
    assert ServerStatus.of("ACTIVE") is ServerStatus.ACTIVE
    assert ServerStatus.of("TELEPORTING") is ServerStatus.UNKNOWN


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (0, PowerState.NOSTATE),
        (1, PowerState.RUNNING),
        (4, PowerState.SHUTDOWN),
        (9, PowerState.NOSTATE),
        (None, PowerState.NOSTATE),
    ],
)
def test_power_states_are_words(number: int | None, word: PowerState) -> None:
    assert PowerState.of(number) is word
