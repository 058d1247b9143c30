"""The markdown that an operator reads in the Temporal UI at 3 a.m.: phase, since when, what for, until when.

Pure functions of a workflow's state; no secrets, no HTML. Limit of the server: 20 KB.
"""

from __future__ import annotations

from datetime import datetime

from fleet_manager.core.domain.slurm_holds import Hold, one_line
from fleet_manager.temporal.contracts.adopt import AdoptProgress
from fleet_manager.temporal.contracts.node_actor import ActorState

MAX_HOLDS = 20
"""Holds that are shown: the server takes 20 KB of details."""


def clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def hold_line(hold: Hold) -> str:
    until = f", until {clock(hold.expires)}" if hold.expires else ""
    return f"- **{hold.owner}** since {clock(hold.since)}{until}: {one_line(hold.why, 200)} (`{hold.id}`, {hold.kind})"


def actor_details(node: str, state: ActorState) -> str:
    """Return who holds and who has the node, and whether SLURM shows it."""
    lines = [f"## Node {node}", ""]
    lines += ["Held by:", *map(hold_line, state.holds[:MAX_HOLDS])] if state.holds else ["No hold of ours."]
    if len(state.holds) > MAX_HOLDS:
        lines.append(f"- and {len(state.holds) - MAX_HOLDS} more; the query `view` has them all")
    if state.claim:
        claim = state.claim
        lines += [
            "",
            f"Taken by **{claim.verb}** since {clock(claim.since)}, by {claim.started_by}: `{claim.workflow_id}`.",
        ]
    if state.gate:
        lines += [
            "",
            f"The gate is open for build `{state.gate.build.build_id}` under reservation `{state.gate.reservation}`.",
        ]
    if state.projection:
        shown = state.projection
        lines += ["", f"SLURM shows: {shown.state}, reason `{shown.reason or '-'}` ({shown.whose})."]
        if shown.problem:
            lines.append(f"**{shown.problem}**")
    if state.trouble:
        lines += ["", f"Cannot write SLURM now, tried again shortly: {state.trouble}"]
    return "\n".join(lines)


def adopt_details(device: str, progress: AdoptProgress) -> str:
    """Return where an adoption is, and how to stop it."""
    lines = [
        f"## Adopting {device}: {progress.phase}",
        "",
        f"Since {clock(progress.since)}: {progress.waiting_for}",
    ]
    if progress.until:
        lines.append(f"Until {clock(progress.until)} at the latest.")
    facts = [("node", progress.node), ("server", progress.server_id), ("build", progress.build_id)]
    facts.append(("jobs", ", ".join(map(str, progress.job_ids)) or None))
    lines += ["", *(f"- {name}: `{value}`" for name, value in facts if value)]
    if progress.phase not in ("done", "giving up"):
        lines += ["", "Cancel this workflow to stop: the node is left held, or untouched if nothing was built yet."]
    return "\n".join(lines)
