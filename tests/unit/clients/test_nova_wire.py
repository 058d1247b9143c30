"""Nova's JSON and our servers: what is read, what is never built, what a missing field means."""

import json
from datetime import UTC, datetime

import msgspec
import pytest
from tests.clients.nova.recorded import answer, body

from fleet_manager.core.clients.errors import Unavailable
from fleet_manager.core.clients.nova import wire
from fleet_manager.core.clients.nova.models import RebuildSpec, ServerSpec
from fleet_manager.core.clients.nova.sdk import Reply, decode
from fleet_manager.core.domain.server import PowerState, Server, ServerStatus, is_settled

SECRET = "aHVudGVyMg=="


def server(name: str) -> Server:
    return wire.server_of(msgspec.json.decode(body(name), type=wire.OneServer).server)


def test_a_member_s_reading() -> None:
    read = server("server-ACTIVE")
    assert (read.id, read.name) == ("8f28661d-4813-4697-adf3-58e848507e4c", "n1")
    assert (read.status, read.task_state, read.power_state) == (ServerStatus.ACTIVE, None, PowerState.RUNNING)
    assert read.image_id == "19e26a86-e121-4c5a-9c5c-0d06bdb33819"
    assert (read.flavor_name, read.flavor_vcpus, read.flavor_ram_mib) == ("small", 1, 512)
    assert dict(read.metadata) == {"fm:adoption": "ad-1", "fm:build_delay": "2"}
    assert (read.hypervisor_hostname, read.host, read.user_data_sha256) == (None, None, None)
    assert read.created_at == datetime(2026, 11, 30, 13, 7, 57, tzinfo=UTC)
    assert read.launched_at == datetime(2026, 11, 30, 13, 8, 0, 906642, tzinfo=UTC)
    assert (read.locked, read.volume_booted) == (False, False)


def test_an_operator_s_reading_shows_the_machine_and_the_hash_of_the_user_data_only() -> None:
    read = server("server-after-rebuild-admin")
    assert (read.hypervisor_hostname, read.host) == ("node2", "node2")
    assert read.user_data_sha256 == "05ae914aa94cfa182471390a4a0fec803407b3e37caf2c5391fe9ce6af451553"
    assert "I2Nsb3Vk" not in repr(read)


@pytest.mark.parametrize(
    ("name", "status", "task", "fault"),
    [
        ("server-BUILD", ServerStatus.BUILD, "scheduling", ""),
        ("server-deleting", ServerStatus.ACTIVE, "deleting", ""),
        ("server-ERROR-novalidhost", ServerStatus.ERROR, None, "No valid host was found."),
        ("server-delete-failed-ERROR", ServerStatus.ERROR, None, "Failed to terminate instance: ipmi timeout"),
    ],
)
def test_states_and_faults(name: str, status: ServerStatus, task: str | None, fault: str) -> None:
    read = server(name)
    assert (read.status, read.task_state, read.fault_message) == (status, task, fault)


def test_a_server_that_boots_from_a_volume_has_an_empty_image() -> None:
    raw = answer("server-ACTIVE")["body"] | {}
    raw["server"]["image"] = ""
    read = wire.server_of(msgspec.convert(raw, wire.OneServer).server)
    assert read.volume_booted
    assert read.image_id is None


def test_a_server_of_a_cell_that_is_down_is_not_settled() -> None:
    read = wire.server_of(msgspec.convert({"id": "s-1", "status": "UNKNOWN"}, wire.WireServer))
    assert read.task_state == wire.NOT_SHOWN
    assert not is_settled(read)


def test_a_listed_server_without_tags_may_be_the_one_looked_for() -> None:
    listed = [wire.WireServer(id="s-1", status="UNKNOWN")]
    with pytest.raises(Unavailable, match="server s-1 without its tags: a cell may be down"):
        wire.tagged(listed, "fm-device-x")


def test_servers_without_the_tag_are_dropped_whatever_nova_filtered() -> None:
    listed = [
        wire.WireServer(id="s-1", status="ACTIVE", tags=["fm-device-x"]),
        wire.WireServer(id="s-2", status="ACTIVE", tags=["fm-device-xy"]),
        wire.WireServer(id="s-3", status="DELETED", tags=["fm-device-x"]),
    ]
    assert [found.id for found in wire.tagged(listed, "fm-device-x")] == ["s-1"]


@pytest.mark.parametrize(
    ("links", "marker"),
    [
        ([], None),
        ([("self", "http://nova/v2.1/servers?marker=no")], None),
        ([("next", "http://wrong-host/v2.1/servers?limit=2&marker=m-1")], "m-1"),
        ([("next", "http://nova/v2.1/servers?limit=2")], None),
    ],
)
def test_only_the_marker_of_a_link_is_followed(links: list[tuple[str, str]], marker: str | None) -> None:
    assert wire.next_marker([wire.Link(rel, href) for rel, href in links]) == marker


def test_admin_password_and_user_data_of_a_reply_are_never_built() -> None:
    created = msgspec.json.decode(body("create-202"), type=wire.Created)
    assert msgspec.to_builtins(created) == {"server": {"id": "8f28661d-4813-4697-adf3-58e848507e4c"}}
    rebuilt = msgspec.json.decode(body("rebuild-202"), type=wire.OneServer)
    assert "adminPass" not in repr(rebuilt)


def test_a_create_has_tags_and_pin_and_leaves_out_what_is_not_set() -> None:
    spec = ServerSpec(
        name="gpu-001",
        image_id="i",
        flavor_id="f",
        user_data_b64=SECRET,
        tags=frozenset({"fm-device-x", "fm-build-y"}),
        networks=("n-1",),
        hypervisor_hostname="rack1-u1",
    )
    assert wire.create_body(spec) == {
        "server": {
            "name": "gpu-001",
            "imageRef": "i",
            "flavorRef": "f",
            "user_data": SECRET,
            "tags": ["fm-build-y", "fm-device-x"],
            "metadata": {},
            "networks": [{"uuid": "n-1"}],
            "hypervisor_hostname": "rack1-u1",
        }
    }
    assert SECRET not in repr(spec)


def test_a_rebuild_lays_its_metadata_over_what_is_there() -> None:
    now = Server(id="s-1", name="n", status=ServerStatus.ACTIVE, metadata={"owner": "team", "fm_build": "b-1"})
    spec = RebuildSpec(
        server_id="s-1", image_id="i", user_data_b64=SECRET, tags=frozenset(), metadata={"fm_build": "b-2"}
    )
    rebuild = {"imageRef": "i", "user_data": SECRET, "metadata": {"owner": "team", "fm_build": "b-2"}}
    assert wire.rebuild_body(spec, now) == {"rebuild": rebuild}
    assert SECRET not in repr(spec)


@pytest.mark.parametrize("content", [b"<html>", b"", b'{"server": {"id": 1, "status": "ACTIVE"}}', b'{"servers": []}'])
def test_an_answer_that_is_not_nova_s_is_unavailable_and_not_quoted(content: bytes) -> None:
    reply = Reply(status=200, url="http://nova.test/x", request_id="req-1", retry_after=None, content=content)
    with pytest.raises(Unavailable, match="not Nova's") as caught:
        decode(reply, wire.OneServer)
    assert caught.value.__context__ is None
    assert json.dumps(content.decode()) not in str(caught.value)
