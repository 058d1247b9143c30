"""`make demo`: the main job on a real site in a box.

Two devices are adopted, one by creating its server and one by rebuilding the server it has; a third is refused because
its configuration has no image. Two jobs of an ordinary user wait all the while: they start only after the verdict.
Then the servers themselves are asked (slurmrestd, scontrol, Nova by tag, the workflows' histories), and everything is
taken down. Any disagreement makes it fail.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fmlab import proof
from fmlab.configs import ensure_config
from fmlab.hub import HPC
from fmlab.procs import LabError, Steps, guarded, wait_for
from fmlab.site import ROLE, SITE, Site, device, site_down, site_up, user_data

NO_IMAGE_ROLE = "gpu-h100-new"
CREATED, REBUILT, REFUSED = "gpu-001", "gpu-002", "gpu-003"


def main() -> int:
    """Run the demo; 0 when every server agrees."""
    folder = (Path(__file__).resolve().parents[3] / ".lab" / "demo").resolve()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    step = Steps(lambda text: print(text, flush=True))
    step("taking down what an interrupted run may have left")
    site_down(folder, purge=True)
    clean_up = [sys.executable, "-m", "fmlab.site", "down", str(folder)]
    try:
        with guarded(clean_up, env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}):
            try:
                _demo(folder, step)
            finally:
                step("taking the site down")
                site_down(folder)
    except KeyboardInterrupt:
        print("\ndemo: interrupted; the site is down, the downloads are kept", file=sys.stderr)
        return 130
    except LabError as error:
        print(f"\ndemo: {error}\nThe logs are in {folder}/log.", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    step("done: no process is left, the downloads are kept for the next run")
    return 0


def _demo(folder: Path, step: Steps) -> None:
    devices = [device(1), device(2), device(3, NO_IMAGE_ROLE)]
    site = site_up(folder, devices=devices, step=step)
    hpc = site.hub.client_env(HPC)
    ensure_config(hpc, SITE, role=ROLE, image="slurm-node-b", user_data=user_data("2"))
    ensure_config(hpc, SITE, role=NO_IMAGE_ROLE, image=None, user_data=user_data("2"))
    step("HPC wrote two bootstrap configurations; one has no image")
    earlier = _earlier_server(site)
    step(f"{REBUILT} has a server of an earlier life: {earlier}, drained, with the old image")
    jobs = {"any node": _user_job(site), REBUILT: _user_job(site, "-w", REBUILT)}
    step(f"a user submitted jobs {', '.join(map(str, jobs.values()))} to the nodes' partition; they wait")
    codes = _adopt(site, step)
    _prove(site, earlier, list(jobs.values()), codes, step)


def _earlier_server(site: Site) -> str:
    """Make the server that the second device has already, by hand: with the old image, born drained, never adopted."""
    with site.nova.api("ops-app") as nova:
        body = {
            "name": REBUILT,
            "imageRef": nova.id_of("image", "/v2/images", "slurm-node-a"),
            "flavorRef": nova.id_of("compute", "/flavors", "gpu-h100"),
            "networks": [{"uuid": nova.id_of("network", "/v2.0/networks", "shared-net")}],
            "user_data": user_data("1"),
            "metadata": {"fm_build": "of-an-earlier-life"},
            "tags": [f"fm-device-{_device_id(site, REBUILT)}"],
            "hypervisor_hostname": device(2)["hypervisor_hostname"],
        }
        server: str = nova.request("POST", "/servers", {"server": body}).raise_for_status().json()["server"]["id"]
    wait_for(
        lambda: REBUILT in site.slurm.run("sinfo", "-h", "-N", "-t", "drained", "-o", "%N"),
        60,
        f"{REBUILT} to register from its earlier server",
    )
    return server


def _device_id(site: Site, name: str) -> str:
    listed = _cli(site, "devices", "list", "--json")
    return next(str(one["id"]) for one in json.loads(listed) if one["name"] == name)


def _user_job(site: Site, *more: str) -> int:
    out = site.slurm.run(
        *("sbatch", "--parsable", f"--uid={site.slurm.job_user}", "-p", "main", "-N", "1", "--gres=gpu:8"),
        *("--exclusive", "-D", str(site.slurm.jobs), "-o", f"{site.slurm.jobs}/user-%j.out", *more),
        *("--wrap", "date"),
    )
    return int(out)


def _cli(site: Site, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fleet_manager.cli.main", *arguments],
        env={"PATH": os.defpath, "LANG": "C.UTF-8", "COLUMNS": "150", **site.env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise LabError(f"fleet-manager {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def _adopt(site: Site, step: Steps) -> dict[str, int]:
    """Adopt the three devices as an SRE would; return the exit code of each."""
    codes: dict[str, int] = {}
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", "fleet_manager.cli.main", "adopt", name],
            env={"PATH": os.defpath, "LANG": "C.UTF-8", **site.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in (CREATED, REBUILT, REFUSED)
    }
    step(f"fleet-manager adopt {' '.join(running)}")
    for name, process in running.items():
        text, _ = process.communicate(timeout=300)
        codes[name] = process.returncode
        for line in text.strip().splitlines():
            step(f"  {line}")
    return codes


def _prove(site: Site, earlier: str, jobs: list[int], codes: dict[str, int], step: Steps) -> None:
    histories = {name: proof.history(site, f"adopt/{SITE}/{name}") for name in codes}
    proof.expect("exit codes", codes, {CREATED: 0, REBUILT: 0, REFUSED: 1})
    results = {}
    for name, way in ((CREATED, "create"), (REBUILT, "rebuild")):
        results[name] = _prove_adopted(site, name, way, histories[name])
    proof.expect(f"server of {REBUILT}", results[REBUILT]["server_id"], earlier)
    kind, sentence = proof.failure_of(histories[REFUSED]["events"]) or ("", "")
    proof.expect(f"failure of {REFUSED}", kind, "BootstrapConfigIncomplete")
    proof.expect(f"sentence of {REFUSED} names the field", "image" in sentence, True)
    proof.expect(f"servers of {REFUSED}", proof.servers_of(site, _device_id(site, REFUSED)), [])
    proof.expect("reservations left", proof.reservations(site.slurm), "No reservations in the system")
    step("slurmrestd, scontrol, Nova by tag and the histories agree with the results")
    _prove_waited(site, results, jobs, step)
    every = [*histories.values(), *(proof.history(site, f"node/{SITE}/{name}") for name in (CREATED, REBUILT))]
    proof.expect("secrets seen", proof.leaks(site, every), [])
    step(
        f"no secret in {len(every)} histories, {proof.count_logs(site.dir)} logs and the argv of every process: "
        f"looked for {', '.join(proof.secrets_of(site))}"
    )
    _show(site, results)


def _prove_adopted(site: Site, name: str, way: str, history: dict[str, Any]) -> dict[str, Any]:
    result = proof.result_of(history["events"])
    if result is None:
        raise LabError(f"the adoption of {name} did not end well: {proof.failure_of(history['events'])}")
    proof.expect(f"outcome of {name}", (result["outcome"], result["way"]), ("in_service", way))
    node = proof.slurm_node(site.slurm, name)
    wanted = [result["server_id"], f"fm_build={result['build_id']}", "gpu:h100:8"]
    proof.expect(f"build of node {name}", [node["instance_id"], node["extra"], node["gres"]], wanted)
    flags = {"DRAIN", "DOWN", "MAINTENANCE", "NOT_RESPONDING"} & set(node["state"])
    proof.expect(f"what keeps jobs off {name}", flags, set())
    servers = proof.servers_of(site, result["device_id"])
    seen = [(one["id"], one["status"], one["metadata"]["fm_build"]) for one in servers]
    proof.expect(f"servers of {name}", seen, [(result["server_id"], "ACTIVE", result["build_id"])])
    proof.expect(f"events of {name}'s history, at most 120", len(history["events"]) <= 120, True)
    return result


def _prove_waited(site: Site, results: dict[str, dict[str, Any]], jobs: list[int], step: Steps) -> None:
    """Show that the user's jobs began on their nodes only after the verdicts there."""
    verdicts = {
        name: max(datetime.fromisoformat(one["since"]) for one in result["steps"] if one["phase"] == "verdict")
        for name, result in results.items()
    }

    def started() -> bool:
        return all(proof.job_times(site.slurm, job)["JobState"] in ("RUNNING", "COMPLETED") for job in jobs)

    wait_for(started, 60, "the user's jobs to start")
    for job in jobs:
        seen = proof.job_times(site.slurm, job)
        start = datetime.fromisoformat(seen["StartTime"]).astimezone(UTC)
        node = seen["NodeList"]
        verdict = verdicts[node]
        step(
            f"user's job {job}: submitted {seen['SubmitTime'][11:]}, verdict on {node} {verdict:%H:%M:%S}, "
            f"started {start:%H:%M:%S}"
        )
        # SLURM tells whole seconds
        proof.expect(f"job {job} started after the verdict", start >= verdict.replace(microsecond=0), True)


def _show(site: Site, results: dict[str, dict[str, Any]]) -> None:
    print()
    print(site.slurm.run("sinfo", "-N", "-o", "%10N %10T %15f %20E"))
    print(_cli(site, "devices", "list"))
    for name, result in results.items():
        times = [(one["phase"], datetime.fromisoformat(one["since"])) for one in result["steps"]]
        end = datetime.fromisoformat(result["finished_at"])
        spans = zip(times, [at for _, at in times[1:]] + [end], strict=True)
        words = ", ".join(f"{phase} {(until - since).total_seconds():.1f} s" for (phase, since), until in spans)
        print(f"{name}: {words}")
        print(f"  {site.temporal.ui_url}/namespaces/fleet/workflows/adopt%2F{SITE}%2F{name}")
    print(flush=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as the product's command line ends, for the same reason: see fleet_manager.cli.main
