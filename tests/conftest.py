"""What every layer shares: the session's real servers as plugins, and the count of tests per layer at the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest_plugins = [
    "tests.integration.slurm_site",
    "tests.integration.nova_cloud",
    "tests.workflows.environments",
    "tests.integration.site.plugin",
]

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workflow-environment",
        default="both",
        choices=("both", "time-skipping", "local"),
        help="Temporal servers that the workflow tests run on",
    )
    parser.addoption("--record-histories", action="store_true", help="write tests/replay/histories anew")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests of each layer ended how."""
    layers: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            layer = report.nodeid.removeprefix("tests/").partition("/")[0]
            layers.setdefault(layer, Counter())[outcome] += 1
    for layer, counts in sorted(layers.items()):
        words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        terminalreporter.write_line(f"layer {layer}: {words}")
