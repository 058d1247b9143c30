"""The lab's Nova does what the real one does in the ways that the satellite depends on."""

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from stat import S_IMODE
from typing import Any

import httpx
import pytest

from fmlab.nova import NovaCloud, nova_down, nova_up
from fmlab.nova_api import MICROVERSION, NovaApi
from fmlab.nova_parts import SERVICES
from fmlab.procs import Daemons, alive, wait_for

pytestmark = [pytest.mark.nova]
pytest_plugins = ["tests.integration.nova_cloud"]

Json = dict[str, Any]


class Caller(NovaApi):
    """Makes servers as one of the clouds, and removes those it made."""

    def __init__(self, clouds_yaml: Path, cloud: str) -> None:
        super().__init__(clouds_yaml, cloud)
        self.made: list[str] = []

    def create(self, *, image: str = "slurm-node-a", flavor: str = "small", **more: Any) -> httpx.Response:
        body = {
            "name": f"t-{uuid.uuid4().hex[:8]}",
            "imageRef": self.image(image),
            "flavorRef": self.id_of("compute", "/flavors", flavor),
            "networks": [{"uuid": self.id_of("network", "/v2.0/networks", "shared-net")}],
            **more,
        }
        answer = self.request("POST", "/servers", {"server": body})
        if answer.status_code == 202:
            self.made.append(answer.json()["server"]["id"])
        return answer

    def image(self, name: str) -> str:
        return self.id_of("image", "/v2/images", name)

    def action(self, server_id: str, order: Json, version: str = MICROVERSION) -> int:
        return self.request("POST", f"/servers/{server_id}/action", order, version=version).status_code

    def settled(self, server_id: str, *states: str) -> Json:
        """Wait until nothing happens to the server any more, in one of these states."""
        seen: list[Json | None] = []

        def done() -> bool:
            seen.append(self.server(server_id))
            now = seen[-1]
            return now is not None and now["status"] in states and now["OS-EXT-STS:task_state"] is None

        wait_for(done, 60, f"server {server_id} to be {states}", poll_s=0.1)
        assert seen[-1] is not None
        return seen[-1]

    def created(self, state: str = "ACTIVE", **more: Any) -> Json:
        answer = self.create(**more)
        assert answer.status_code == 202
        return self.settled(answer.json()["server"]["id"], state)

    def delete(self, server_id: str) -> None:
        self.request("DELETE", f"/servers/{server_id}")
        wait_for(lambda: self.server(server_id) is None, 60, f"server {server_id} to go", poll_s=0.1)

    def close(self) -> None:
        for server_id in self.made:
            self.delete(server_id)
        super().close()


Call = Callable[[str], Caller]


@pytest.fixture
def call(nova_cloud: NovaCloud) -> Iterator[Call]:
    with ExitStack() as stack:
        yield lambda cloud: stack.enter_context(closing(Caller(nova_cloud.clouds_yaml, cloud)))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_clouds_yaml_is_readable_by_its_owner_only(nova_cloud: NovaCloud) -> None:
    assert S_IMODE(nova_cloud.clouds_yaml.stat().st_mode) == 0o600


def test_each_device_is_a_hypervisor_of_its_own_name(nova_cloud: NovaCloud, call: Call) -> None:
    hypervisors = call("admin").get("/os-hypervisors")["hypervisors"]
    assert {h["hypervisor_hostname"] for h in hypervisors} == set(nova_cloud.hosts)


def test_an_operators_create_with_tags_lands_on_the_named_hypervisor(nova_cloud: NovaCloud, call: Call) -> None:
    server = call("ops-app").created(
        hypervisor_hostname=nova_cloud.hosts[2], tags=["fm-device-x"], metadata={"fm_build": "b1"}
    )
    assert server["OS-EXT-SRV-ATTR:hypervisor_hostname"] == nova_cloud.hosts[2]
    assert (server["tags"], server["metadata"]) == (["fm-device-x"], {"fm_build": "b1"})


def test_a_member_may_not_name_a_host(nova_cloud: NovaCloud, call: Call) -> None:
    answer = call("demo-app").create(hypervisor_hostname=nova_cloud.hosts[0])
    assert answer.status_code == 403
    assert "Policy doesn't allow" in answer.json()["forbidden"]["message"]


def test_a_member_may_create_without_a_host(call: Call) -> None:
    assert call("demo-app").created()["status"] == "ACTIVE"


def test_a_flavor_too_many_ends_in_error_for_want_of_a_host(call: Call) -> None:
    server = call("ops-app").created("ERROR", flavor="toobig")
    assert server["fault"]["message"].startswith("No valid host was found.")


def test_a_failing_build_is_a_knob_in_the_servers_metadata(call: Call) -> None:
    server = call("ops-app").created("ERROR", metadata={"fm:build_abort": "burnt"})
    assert "burnt" in server["fault"]["message"]


def test_a_rebuild_changes_image_and_user_data_in_place(nova_cloud: NovaCloud, call: Call) -> None:
    ops = call("ops-app")
    before = ops.created(hypervisor_hostname=nova_cloud.hosts[3], user_data=encoded("#cloud-config\n# one\n"))
    image, two = ops.image("slurm-node-b"), encoded("#cloud-config\n# two\n")
    order = {"rebuild": {"imageRef": image, "user_data": two, "metadata": {"n": "2"}}}

    assert ops.action(before["id"], order, version="2.56") == 400
    assert ops.action(before["id"], order) == 202

    after = ops.settled(before["id"], "ACTIVE")
    assert (after["image"]["id"], after["metadata"]) == (image, {"n": "2"})
    assert after["OS-SRV-USG:launched_at"] != before["OS-SRV-USG:launched_at"]
    [seen] = [server for server in call("admin").servers() if server["id"] == before["id"]]
    assert seen["OS-EXT-SRV-ATTR:user_data"] == two


def test_the_driver_tells_what_happens_to_a_machine_in_a_private_file(nova_cloud: NovaCloud, call: Call) -> None:
    ops = call("ops-app")
    server_id = ops.created(user_data=encoded("x"))["id"]
    ops.action(server_id, {"os-stop": None})
    ops.settled(server_id, "SHUTOFF")
    ops.action(server_id, {"os-start": None})
    ops.settled(server_id, "ACTIVE")
    ops.delete(server_id)

    lines = [json.loads(line) for line in nova_cloud.events.read_text().splitlines()]
    mine = [line for line in lines if line["uuid"] == server_id]
    assert [line["event"] for line in mine] == ["spawn", "power_off", "power_on", "destroy"]
    assert mine[0]["user_data"] == encoded("x")
    assert S_IMODE(nova_cloud.events.stat().st_mode) == 0o600


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    nova_down(tmp_path, purge=True)


def test_servers_can_be_rebuilt_stopped_and_deleted_after_a_restart_and_nothing_is_left_after_the_end(
    folder: Path,
) -> None:
    first = Caller(nova_up(folder, hosts=("d1", "d2")).clouds_yaml, "ops-app")
    rebuilt, stopped, deleted = (first.created(hypervisor_hostname="d1")["id"] for _ in range(3))
    NovaApi.close(first)
    nova_down(folder)

    again = Caller(nova_up(folder, hosts=("d1", "d2")).clouds_yaml, "ops-app")
    image = again.image("slurm-node-b")
    assert again.action(rebuilt, {"rebuild": {"imageRef": image}}) == 202
    assert again.settled(rebuilt, "ACTIVE", "ERROR")["status"] == "ACTIVE"
    assert again.action(stopped, {"os-stop": None}) == 202
    again.settled(stopped, "SHUTOFF", "ERROR")
    again.delete(deleted)
    NovaApi.close(again)

    running = [process for service in SERVICES if (process := Daemons(folder).process(service)) is not None]
    assert len(running) == len(SERVICES)
    nova_down(folder, purge=True)
    assert [process for process in running if alive(process)] == []
    assert not (folder / "state" / "nova").exists()
    assert list((folder / "log").iterdir()) == []
