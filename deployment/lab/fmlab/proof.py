"""Asks the servers themselves whether what an adoption says is true, and looks for secrets where none may be.

Nothing here asks the product's clients: a client that misreads must not confirm itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from fmlab.procs import LabError
from fmlab.site import SECRET, Site
from fmlab.slurm_site import SlurmSite

NAMESPACE = "fleet"


def expect(what: str, seen: object, wanted: object) -> None:
    """Raise LabError when two servers disagree."""
    if seen != wanted:
        raise LabError(f"{what}: seen {seen!r}, expected {wanted!r}")


def slurm_node(slurm: SlurmSite, name: str) -> dict[str, Any]:
    """Ask slurmrestd for one node."""
    answer = httpx.get(
        f"{slurm.url}/slurm/v0.0.42/node/{name}",
        headers={"X-SLURM-USER-TOKEN": slurm.token(slurm.fleet_user)},
        timeout=30,
        trust_env=False,
    )
    found: list[dict[str, Any]] = answer.raise_for_status().json().get("nodes", [])
    if len(found) != 1:
        raise LabError(f"slurmrestd has {len(found)} nodes of the name {name}")
    return found[0]


def reservations(slurm: SlurmSite) -> str:
    """Ask scontrol for all reservations."""
    return slurm.run("scontrol", "show", "reservation", "--oneliner").strip()


def job_times(slurm: SlurmSite, job: int) -> dict[str, str]:
    """Ask scontrol for a job: NodeList, SubmitTime, StartTime, JobState, Reason."""
    text = slurm.run("scontrol", "show", "job", str(job), "--oneliner")
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def servers_of(site: Site, device_id: str) -> list[dict[str, Any]]:
    """Ask Nova for the servers that have the device's tag."""
    with site.nova.api("admin") as nova:
        found: list[dict[str, Any]] = nova.get(f"/servers/detail?all_tenants=1&tags=fm-device-{device_id}")["servers"]
    return found


def history(site: Site, workflow_id: str) -> dict[str, Any]:
    """Ask Temporal for a workflow's whole history, as JSON."""

    async def fetch() -> dict[str, Any]:
        client = await Client.connect(
            site.temporal.address, namespace=NAMESPACE, data_converter=pydantic_data_converter
        )
        whole = await client.get_workflow_handle(workflow_id).fetch_history()
        found: dict[str, Any] = whole.to_json_dict()
        return found

    return asyncio.run(fetch())


def result_of(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the result that a history ends with, None when it does not end well."""
    for event in events:
        done = event.get("workflowExecutionCompletedEventAttributes")
        if done:
            payload = done["result"]["payloads"][0]["data"]
            found: dict[str, Any] = json.loads(base64.b64decode(payload))
            return found
    return None


def failure_of(events: Iterable[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the type and the sentence that a history fails with, None when it does not fail."""
    for event in events:
        failed = event.get("workflowExecutionFailedEventAttributes")
        if failed:
            failure = failed["failure"]
            return failure["applicationFailureInfo"]["type"], failure["message"]
    return None


def secrets_of(site: Site) -> dict[str, str]:
    """Return what must be seen nowhere: name -> text."""
    key = (site.hub.keys / f"{site.hub.worker}.pem").read_text().splitlines()
    return {
        "the user-data's secret": SECRET,
        "SLURM's JWT": (site.dir / "state" / "slurm.jwt").read_text().strip(),
        "the client's key": max(key, key=len),
    }


def leaks(site: Site, histories: Iterable[dict[str, Any]]) -> list[str]:
    """Look for the secrets in exported histories (payloads decoded), in every log, and in every argv."""
    found: list[str] = []
    places = {f"history {n}": _decoded(one) for n, one in enumerate(histories)}
    places["ps"] = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    for log in sorted((site.dir / "log").rglob("*")):
        if log.is_file():
            places[f"log {log.name}"] = log.read_text(errors="replace")
    for name, secret in secrets_of(site).items():
        forms = (secret, *_base64_of(secret))
        found += [f"{name} in {place}" for place, text in places.items() if any(form in text for form in forms)]
    return found


def _base64_of(secret: str) -> list[str]:
    """Return the base64 of a text wherever it begins in what is encoded, without its uncertain ends."""
    return [base64.b64encode(b"x" * offset + secret.encode()).decode()[4:-4] for offset in range(3)]


def _decoded(value: Any) -> str:
    """Return a history as text, with the data of its payloads decoded."""
    lines: list[str] = []

    def walk(one: Any) -> None:
        if isinstance(one, dict):
            for key, inner in one.items():
                if key == "data" and isinstance(inner, str):
                    lines.append(base64.b64decode(inner).decode(errors="replace"))
                else:
                    walk(inner)
        elif isinstance(one, list):
            for inner in one:
                walk(inner)
        else:
            lines.append(str(one))

    walk(value)
    return "\n".join(lines)


def count_logs(folder: Path) -> int:
    return sum(1 for path in (folder / "log").rglob("*") if path.is_file())
