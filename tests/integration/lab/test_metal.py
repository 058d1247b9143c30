"""The metal boots Nova's servers as SLURM nodes, as their user-data says, and misbehaves when told to (SLURM 26.05)."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest
from tests.integration.lab.data_hall import REASON, SECRET, STATIC, USER_DATA, DataHall, data_hall

from fmlab.metal import metal_up
from fmlab.nova import NovaCloud
from fmlab.procs import Daemons, alive, identify, wait_for

pytestmark = [pytest.mark.nova, pytest.mark.slurm]
pytest_plugins = ["tests.integration.nova_cloud"]


@pytest.fixture(scope="module")
def whole_hall(tmp_path_factory: pytest.TempPathFactory, nova_cloud: NovaCloud) -> Iterator[DataHall]:
    with data_hall(tmp_path_factory.mktemp("hall"), "sid", nova_cloud) as hall:
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
    assert (node["CPUTot"], node["RealMemory"]) == ("16", "4000")


def test_the_files_of_the_user_data_are_in_a_root_of_the_machines_own(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    folder = hall.metal.dir / "state" / "metal" / "machines" / hall.record(name).server
    assert (folder / "root/etc/fleet/site.key").read_text() == f"{SECRET}\n"
    assert S_IMODE((folder / "root/etc/fleet/site.key").stat().st_mode) == 0o600
    assert S_IMODE(folder.stat().st_mode) == 0o700


def test_the_user_datas_secret_is_in_no_argument_environment_log_or_record(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    process = hall.process(name)
    assert process is not None
    seen = [Path(f"/proc/{process.pid}/{what}").read_text() for what in ("cmdline", "environ")]
    seen += [
        file.read_text(errors="replace") for log in (hall.metal, hall.slurm) for file in (log.dir / "log").iterdir()
    ]
    seen += [file.read_text() for file in (hall.metal.dir / "state" / "metal").rglob("*.json")]
    assert [text for text in seen if SECRET in text] == []
    # the shell that becomes slurmd adds three of its own
    harmless = {"PATH", "HOME", "LANG", "SLURM_CONF", "TZ", "PWD", "OLDPWD", "SHLVL"}
    assert {entry.split("=")[0] for entry in seen[1].split("\0") if entry} <= harmless


def test_a_rebuild_ends_the_old_slurmd_and_boots_the_new_build(hall: DataHall) -> None:
    name = hall.create(build="b1")
    hall.registered(name, "b1")
    before = hall.process(name)
    assert before is not None
    hall.rebuild(name, "b2")
    hall.registered(name, "b2")
    assert not alive(before)
    assert hall.process(name) is not None


def test_a_deleted_servers_machine_is_gone(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    process, server = hall.process(name), hall.record(name).server
    assert process is not None
    hall.delete(server)
    wait_for(lambda: hall.metal.machine(name) is None, 30, "the machine to go")
    assert not alive(process)
    assert not (hall.metal.dir / "state" / "metal" / "machines" / server).exists()


def test_a_deleted_servers_jobs_die_with_it(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    hall.slurm.run("scontrol", "update", f"nodename={name}", "state=undrain")
    job = hall.submit(name, "echo $$; exec sleep 3600")
    wait_for(lambda: (hall.slurm.jobs / f"{job}.out").exists() and hall.output(job).strip(), 30, "the job to run")
    pid = int(hall.output(job))
    hall.delete(hall.record(name).server)
    wait_for(lambda: hall.metal.machine(name) is None, 30, "the machine to go")
    assert identify(pid) is None


def test_a_stopped_server_is_off_and_a_started_one_runs_what_is_on_its_disk(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    server = hall.record(name).server
    hall.act(server, **{"os-stop": None})
    hall.wait_state(name, "off")
    assert hall.process(name) is None
    wait_for(lambda: (hall.ops.server(server) or {}).get("status") == "SHUTOFF", 30, "SHUTOFF")
    hall.act(server, **{"os-start": None})
    hall.wait_state(name, "running")
    hall.wait_node(name, "to answer", lambda n: "NOT_RESPONDING" not in n["State"] and "DOWN" not in n["State"])


def test_a_rebooted_server_starts_its_slurmd_anew(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    before = hall.process(name)
    assert before is not None
    hall.act(hall.record(name).server, reboot={"type": "HARD"})
    wait_for(lambda: hall.process(name) not in (None, before), 90, "another slurmd")
    assert not alive(before)


def test_a_restarted_metal_finds_its_running_machines(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    before = hall.process(name)
    Daemons(hall.metal.dir).stop("metal")
    metal_up(hall.metal.dir, slurm=hall.slurm, nova=hall.nova)
    assert before is not None
    assert hall.process(name) == before
    hall.rebuild(name, "b2")
    hall.registered(name, "b2")
    assert not alive(before)


def test_a_server_that_went_while_the_metal_was_away_loses_its_power(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    before, server = hall.process(name), hall.record(name).server
    Daemons(hall.metal.dir).stop("metal")
    hall.delete(server)
    wait_for(lambda: hall.ops.server(server) is None, 30, "the server to go")
    metal_up(hall.metal.dir, slurm=hall.slurm, nova=hall.nova)
    assert before is not None
    assert not alive(before)


def test_a_node_of_slurm_conf_gets_a_plain_slurmd(hall: DataHall) -> None:
    plain = (
        USER_DATA.replace("-Z ", "").split(" --conf ")[0] + '"\n' + USER_DATA[USER_DATA.index("  - path: /etc/fl") :]
    )
    hall.create(name=STATIC, user_data=plain, build="s1")
    node = hall.registered(STATIC, "s1")
    assert node["InstanceId"] == hall.record(STATIC).server
    hall.wait_node(STATIC, "to be idle", lambda n: n["State"] == "IDLE")


@pytest.mark.parametrize(
    "user_data",
    [
        "#!/bin/sh\necho " + SECRET,
        USER_DATA + "  - [reboot]\n",
        USER_DATA + "packages: [x]\n",
        USER_DATA.replace("-Z", "-K"),
    ],
)
def test_user_data_that_is_not_understood_is_an_error_and_boots_nothing(hall: DataHall, user_data: str) -> None:
    name = hall.create(user_data=user_data)
    record = hall.wait_state(name, "refused")
    log = hall.daemons.log("metal").read_text()
    assert f"{name} ({record.server}) ERROR: does not boot: {record.why}" in log
    assert SECRET not in log
    assert hall.process(name) is None


def test_never_boots(hall: DataHall) -> None:
    name = hall.create("never-boots")
    hall.wait_state(name, "never-boots")
    assert hall.process(name) is None
    assert hall.node(name) == {}


def test_boots_late(hall: DataHall) -> None:
    name = hall.create("boots-late=3")
    assert hall.wait_state(name, "late").due > 0
    assert hall.node(name) == {}
    hall.registered(name)


def test_gpus_7_is_an_invalid_registration(hall: DataHall) -> None:
    name = hall.create("gpus=7")
    node = hall.wait_node(name, "to try to register", lambda n: "INVALID_REG" in n.get("State", ""))
    assert node["Reason"].startswith("gres/gpu count reported lower than configured (7 < 8)")


def test_gpus_counted_7_registers_with_7(hall: DataHall) -> None:
    name = hall.create("gpus-counted=7")
    node = hall.registered(name)
    assert (node["Gres"], node["State"]) == ("gpu:h100:7", "IDLE+DRAIN+DYNAMIC_NORM")


def test_registers_as_another_name(hall: DataHall) -> None:
    name = hall.create("registers-as=impostor")
    hall.nodes.append("impostor")
    node = hall.registered("impostor")
    assert node["InstanceId"] == hall.record(name).server
    assert hall.node(name) == {}


def test_old_build_says_the_build_before(hall: DataHall) -> None:
    name = hall.create(build="b1")
    hall.registered(name, "b1")
    before = hall.process(name)
    hall.metal.switch(name, "old-build")
    hall.rebuild(name, "b2")
    wait_for(lambda: hall.process(name) not in (None, before), 30, "the rebuilt machine")
    process = hall.process(name)
    assert process is not None
    assert "fm_build=b1" in Path(f"/proc/{process.pid}/cmdline").read_text()
    hall.registered(name, "b1")


def test_less_memory(hall: DataHall) -> None:
    name = hall.create("less-memory=1000")
    assert hall.registered(name)["RealMemory"] == "3000"


BURN_IN = """nvidia-smi --query-gpu=uuid,name,ecc.errors.uncorrected.volatile.total --format=csv,noheader || exit 1"""


def test_a_burn_in_sees_the_machines_gpus(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    hall.slurm.run("scontrol", "update", f"nodename={name}", "state=undrain")
    job = hall.submit(name, BURN_IN)
    assert hall.job_ended(job)["JobState"] == "COMPLETED"
    assert len(set(hall.output(job).splitlines())) == 8


def test_fails_burn_in_acts_at_once(hall: DataHall) -> None:
    name = hall.create()
    hall.registered(name)
    hall.slurm.run("scontrol", "update", f"nodename={name}", "state=undrain")
    hall.metal.switch(name, "fails-burn-in")
    job = hall.submit(name, BURN_IN)
    assert hall.job_ended(job)["ExitCode"] == "1:0"
    assert hall.output(job) == "ERR!\n"


def test_reboots_in_burn_in_kills_the_job_and_starts_slurmd_anew(hall: DataHall) -> None:
    name = hall.create("reboots-in-burn-in")
    hall.registered(name)
    before = hall.process(name)
    assert before is not None
    hall.slurm.run("scontrol", "update", f"nodename={name}", "state=undrain")
    job = hall.submit(name, "sleep 3600")
    wait_for(lambda: hall.process(name) not in (None, before), 90, "another slurmd")
    assert not alive(before)
    hall.wait_node(name, "to be found rebooted", lambda n: "unexpectedly rebooted" in n.get("Reason", ""))
    assert hall.node(name)["State"] == "DOWN+DYNAMIC_NORM"
    assert (hall.job(job)["JobState"], hall.job(job)["Restarts"]) == ("PENDING", "1")
    hall.slurm.run("scancel", job)


def test_the_program_of_the_burn_in_is_everybodys(hall: DataHall) -> None:
    for user in (hall.slurm.fleet_user, hall.slurm.job_user):
        said = subprocess.run(
            ["setpriv", f"--reuid={user}", "--clear-groups", hall.metal.bin / "nvidia-smi", "-L"],
            env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "nowhere"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 9, said.stderr
    assert (hall.metal.dir / "state" / "metal" / "bin" / "nvidia-smi").exists()
