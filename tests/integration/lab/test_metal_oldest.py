"""The same user-data makes the same node on SLURM 24.11."""

from collections.abc import Iterator

import pytest
from tests.integration.lab.data_hall import REASON, DataHall, data_hall

from fmlab.nova import NovaCloud
from fmlab.procs import alive

pytestmark = [pytest.mark.nova, pytest.mark.slurm]
pytest_plugins = ["tests.integration.nova_cloud"]


@pytest.fixture(scope="module")
def whole_hall(tmp_path_factory: pytest.TempPathFactory, nova_cloud: NovaCloud) -> Iterator[DataHall]:
    with data_hall(tmp_path_factory.mktemp("hall"), "trixie", nova_cloud) as hall:
        yield hall


@pytest.fixture
def hall(whole_hall: DataHall) -> Iterator[DataHall]:
    yield whole_hall
    whole_hall.clear()


def test_a_server_becomes_the_node_that_its_user_data_describes(hall: DataHall) -> None:
    name = hall.create(build="b7")
    node = hall.registered(name, "b7")
    assert node["State"] == "IDLE+DRAIN+DYNAMIC_NORM"
    assert node["Reason"].startswith(f"{REASON} [root@")
    assert node["InstanceId"] == hall.record(name).server
    assert (node["Gres"], node["AvailableFeatures"]) == ("gpu:h100:8", "dynamic,h100")


def test_a_rebuild_ends_the_old_slurmd_and_boots_the_new_build(hall: DataHall) -> None:
    name = hall.create(build="b1")
    hall.registered(name, "b1")
    before = hall.process(name)
    assert before is not None
    hall.rebuild(name, "b2")
    hall.registered(name, "b2")
    assert not alive(before)


def test_gpus_7_is_an_invalid_registration(hall: DataHall) -> None:
    name = hall.create("gpus=7")
    node = hall.wait_node(name, "to try to register", lambda n: "INVALID_REG" in n.get("State", ""))
    assert node["Reason"].startswith("gres/gpu count reported lower than configured (7 < 8)")


def test_reboots_in_burn_in_kills_the_job_and_starts_slurmd_anew(hall: DataHall) -> None:
    name = hall.create("reboots-in-burn-in")
    hall.registered(name)
    hall.slurm.run("scontrol", "update", f"nodename={name}", "state=undrain")
    job = hall.submit(name, "sleep 3600")
    hall.wait_node(name, "to be found rebooted", lambda n: "unexpectedly rebooted" in n.get("Reason", ""))
    hall.slurm.run("scancel", job)
