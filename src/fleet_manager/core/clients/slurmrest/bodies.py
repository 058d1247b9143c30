"""The bodies that we send to slurmrestd, as plain JSON values of every version from v0.0.40 on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from fleet_manager.core.clients.errors import BadRequest
from fleet_manager.core.clients.slurmrest.errors import PEER, SubmitRefused
from fleet_manager.core.clients.slurmrest.names import node_name, reservation_name
from fleet_manager.core.clients.slurmrest.protocol import NodeUpdate
from fleet_manager.core.domain.slurm_job import JobSpec


def node_update(update: NodeUpdate) -> dict[str, Any]:
    """Return the body of POST node.

    Raises:
        BadRequest: nothing to change, or a reason that slurmctld would ignore.
    """
    if update.reason is not None and not update.reason.strip():
        raise BadRequest("an empty reason is ignored by slurmctld: leave it out, or say why", peer=PEER)
    fields: dict[str, Any] = {
        "state": None if update.state is None else [str(update.state)],
        "reason": update.reason,
        "features": None if update.features is None else list(update.features),
        "features_act": None if update.active_features is None else list(update.active_features),
        "comment": update.comment,
        "extra": update.extra,
    }
    body = {key: value for key, value in fields.items() if value is not None}
    if not body:
        raise BadRequest("nothing to change", peer=PEER)
    return body


def submit(spec: JobSpec) -> dict[str, Any]:
    """Return the body of POST job/submit.

    Raises:
        SubmitRefused: script, working directory or environment is missing; slurmrestd's own words for that mislead.
    """
    for what, value in (("script", spec.script.strip()), ("environment", spec.environment)):
        if not value:
            raise SubmitRefused(f"a job needs a {what}", peer=PEER)
    if not spec.current_working_directory.startswith("/"):
        raise SubmitRefused("a job needs an absolute working directory", peer=PEER)
    fields: dict[str, Any] = {
        "name": spec.name,
        "partition": spec.partition,
        "current_working_directory": spec.current_working_directory,
        "environment": list(spec.environment),
        "time_limit": {"set": True, "infinite": False, "number": spec.time_limit_minutes},
        "required_nodes": [node_name(name) for name in spec.required_nodes] or None,
        "reservation": spec.reservation,
        "tres_per_node": spec.tres_per_node,
        "shared": ["none"] if spec.exclusive else None,
        "account": spec.account,
        "comment": spec.comment,
        "standard_output": spec.standard_output,
        "requeue": spec.requeue,
    }
    job = {key: value for key, value in fields.items() if value is not None}
    return {"script": spec.script, "job": job}


def reservation(
    name: str,
    nodes: tuple[str, ...],
    users: tuple[str, ...],
    flags: tuple[str, ...],
    start: datetime,
    duration: timedelta | None,
) -> dict[str, Any]:
    """Return the body of POST reservation; `duration` None is without end.

    Raises:
        BadRequest: no nodes, no users, or a name that stands for several nodes.
    """
    if not nodes or not users:
        raise BadRequest("a reservation needs nodes and users", peer=PEER)
    minutes = None if duration is None else max(1, round(duration.total_seconds() / 60))
    return {
        "name": reservation_name(name),
        "node_list": [node_name(one) for one in nodes],
        "users": list(users),
        "flags": list(flags),
        "start_time": {"set": True, "infinite": False, "number": int(start.timestamp())},
        "duration": {"set": minutes is not None, "infinite": minutes is None, "number": minutes or 0},
    }
