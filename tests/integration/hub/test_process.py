"""The hub as a process: it starts, is seeded, logs no secret, and ends on SIGTERM."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.integration.hub.support import HPC, SCRIPT, SECRET, USER_DATA, Lab, b64
from typer.testing import CliRunner

from fleet_manager.core.clients.oauth import ASSERTION_TYPE
from fleet_manager.hub.__main__ import app
from fleet_manager.hub.keys import load_or_create
from fleet_manager.hub.state import utc_now
from fmlab.procs import free_port


def hub(lab: Lab, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    values = {"STATE_DIR": str(lab.folder / "state"), "ROSTER_PATH": str(lab.roster), **settings}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
    environment = {**kept, **{f"FLEET_HUB__{name}": value for name, value in values.items()}}
    command = [sys.executable, "-W", "error", "-m", "fleet_manager.hub", *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=lab.folder
    )


def ran(lab: Lab, *arguments: str, **settings: str) -> tuple[int, str, str]:
    """Run a command in this process; returns exit code, stdout and stderr."""
    values = {"STATE_DIR": str(lab.folder / "state"), "ROSTER_PATH": str(lab.roster), **settings}
    environment = {f"FLEET_HUB__{name}": value for name, value in values.items()}
    result = CliRunner().invoke(app, arguments, env=environment)
    return result.exit_code, result.stdout, result.stderr


@contextmanager
def serving(lab: Lab, log: list[str], **settings: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve on a free port until the block ends; the log is there afterwards."""
    port = free_port()
    process = hub(lab, "serve", PORT=str(port), **settings)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", process
    finally:
        if process.poll() is None:
            process.terminate()
        log += process.communicate(timeout=30)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.make(tmp_path_factory.mktemp("hub-process"))


def test_a_served_hub_keeps_secrets_out_of_its_log_and_ends_on_sigterm(lab: Lab) -> None:
    (lab.folder / "seed.json").write_text('{"sites": [{"id": "lab"}]}')
    assert ran(lab, "seed", str(lab.folder / "seed.json"))[:2] == (0, "1 site created\n")
    log: list[str] = []
    with serving(lab, log) as (url, process):
        assertion = lab.assertion(HPC, utc_now(), url)
        form = {"grant_type": "client_credentials", "client_assertion_type": ASSERTION_TYPE}
        form["client_assertion"] = assertion
        token = httpx.post(f"{url}/oauth/token", data=form, trust_env=False).json()["access_token"]
        configs = f"{url}/api/v1/sites/lab/slurm-bootstrap-configs/"
        statuses = []
        for user_data in (USER_DATA, USER_DATA, b64(SCRIPT.replace("DRAIN", "IDLE")), [SCRIPT]):
            body = {"device_role": "gpu", "user_data": user_data}
            answer = httpx.post(
                f"{configs}?access_token={token}",
                json=body,
                headers={"Authorization": f"Bearer {token}"},
                trust_env=False,
            )
            statuses.append(answer.status_code)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert statuses == [201, 409, 422, 422]
    text = "".join(log)
    lines = [json.loads(line) for line in log[1].splitlines()]
    assert any(line["message"].endswith("/slurm-bootstrap-configs/ 201") for line in lines)
    assert all("request_id" in line for line in lines if line["logger"].startswith("fleet_manager.hub.middleware"))
    key = lab.key_file(HPC).read_text().splitlines()[1]
    for secret in (SECRET, USER_DATA[:60], token, token.split(".")[2], assertion, key, "access_token"):
        assert secret not in text
    state = lab.folder / "state"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {0o600}


def test_a_database_that_is_away_is_told_in_a_sentence_without_the_password(lab: Lab) -> None:
    url = f"postgresql://fleet:s3cret-password@127.0.0.1:{free_port()}/hub"
    code, out, err = ran(lab, "migrate", DATABASE_URL=url)
    assert code == 2
    assert "FLEET_HUB__DATABASE_URL" in err
    assert "s3cret-password" not in out + err


def test_settings_that_are_wrong_are_told_by_name(lab: Lab) -> None:
    code, _, err = ran(lab, "serve", PORT="none", DATABASE_URL="postgresql://fleet:s3cret-password@db/hub")
    assert code == 2
    assert err.startswith("FLEET_HUB__PORT: ")
    assert "s3cret-password" not in err


def test_a_missing_roster_is_told_with_its_setting(lab: Lab) -> None:
    code, _, err = ran(lab, "serve", ROSTER_PATH="/nonexistent/roster.json", PORT=str(free_port()))
    assert code == 2
    assert err.startswith("no roster at /nonexistent/roster.json")
    assert err.endswith("set FLEET_HUB__ROSTER_PATH\n")


def test_make_key_writes_a_private_file_and_prints_the_public_half(lab: Lab) -> None:
    path = lab.folder / "fresh.pem"
    code, out, _ = ran(lab, "make-key", str(path))
    assert code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(json.loads(out)) == ["crv", "kid", "kty", "x", "y"]
    before = path.read_bytes()
    code, out, err = ran(lab, "make-key", str(path))
    assert (code, out, path.read_bytes()) == (2, "", before)
    assert "never written over" in err


def test_a_rotated_key_signs_and_the_one_before_still_verifies(lab: Lab) -> None:
    state = lab.folder / "rotated"
    before = load_or_create(state)
    code, out, _ = ran(lab, "rotate-key", STATE_DIR=str(state))
    after = load_or_create(state)
    assert code == 0
    assert after.current.kid in out
    assert [key.kid for key in after.published] == [after.current.kid, before.current.kid]
