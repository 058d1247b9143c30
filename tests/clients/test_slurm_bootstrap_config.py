"""The hub's SLURM bootstrap configurations through the client: one body for the real hub and the fake, then writing."""

import json
import pickle
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.clients.hub_support import HubServer
from tests.fakes.hub import FakeSlurmBootstrapConfigs
from tests.integration.hub.support import AGENT, HPC, SCRIPT, SECRET, USER_DATA, WORKER, b64

from fleet_manager.core.clients.errors import BadRequest, ClientError, Conflict, Forbidden, IncompatibleServer, NotFound
from fleet_manager.core.clients.slurm_bootstrap_config import (
    ConfigChanges,
    ConfigDraft,
    SlurmBootstrapConfigClient,
    SlurmBootstrapConfigReader,
)
from fleet_manager.core.domain.slurm_bootstrap_config import SlurmBootstrapConfig, UserData
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings

pytest_plugins = ["tests.clients.hub_server"]


def draft(role: str | None = None, **changes: Any) -> ConfigDraft:
    values = {"image": "slurm-node", "flavor": "gpu.8", "features": ("h100",), "gres": "gpu:h100:8"}
    return ConfigDraft(**{"device_role": role or f"r-{uuid4().hex[:8]}", "user_data": USER_DATA, **values, **changes})


def as_read(made: ConfigDraft) -> SlurmBootstrapConfig:
    fields = {name: getattr(made, name) for name in type(made).model_fields}
    return SlurmBootstrapConfig(id="c", site="lab", revision=1, **fields)


@pytest.fixture(params=["hub", "fake"])
async def reader(request: pytest.FixtureRequest, seeded: HubServer) -> AsyncIterator[SlurmBootstrapConfigReader]:
    """A reader of a site that has a configuration for the role `gpu`."""
    if request.param == "fake":
        made = draft("gpu")
        yield FakeSlurmBootstrapConfigs(
            [
                SlurmBootstrapConfig(
                    id="c", site="lab", revision=1, **{k: getattr(made, k) for k in type(made).model_fields}
                )
            ]
        )
        return
    async with seeded.configs(HPC) as writer:
        await writer.ensure("lab", draft("gpu"))
    async with seeded.configs(WORKER) as client:
        yield client


async def test_a_configuration_is_read_with_its_user_data(reader: SlurmBootstrapConfigReader) -> None:
    config = await reader.get("lab", "gpu")
    assert (config.site, config.device_role, config.image, config.flavor) == ("lab", "gpu", "slurm-node", "gpu.8")
    assert (config.features, config.gres, config.revision) == (("h100",), "gpu:h100:8", 1)
    assert config.user_data.reveal() == USER_DATA


async def test_a_role_without_one_is_not_found_with_site_role_and_the_call(reader: SlurmBootstrapConfigReader) -> None:
    with pytest.raises(NotFound) as caught:
        await reader.get("lab", "storage")
    assert caught.value.message == (
        "site lab has no SLURM bootstrap configuration for device role storage; make one with "
        "POST /api/v1/sites/lab/slurm-bootstrap-configs/ (scope slurm-bootstrap-config:create)"
    )


async def test_the_user_data_shows_in_no_form_that_could_leave_the_process(reader: SlurmBootstrapConfigReader) -> None:
    config = await reader.get("lab", "gpu")
    shown = f"{config} {config!r} {config.model_dump()} {config.user_data} {vars(config)} {[config.user_data]}"
    assert SECRET not in shown
    assert USER_DATA[:40] not in shown
    for leak in (config.model_dump_json, lambda: json.dumps(config.model_dump(), default=dict)):
        with pytest.raises((ValueError, TypeError)):
            leak()
    with pytest.raises(TypeError):
        pickle.dumps(config)


async def test_a_null_image_is_read_as_none(seeded: HubServer) -> None:
    made = draft(image=None, flavor=None)
    async with seeded.configs(HPC) as client:
        await client.create("lab", made)
        config = await client.get("lab", made.device_role)
    assert (config.image, config.flavor) == (None, None)


async def test_who_may_not_read_is_forbidden_and_told_the_scope(seeded: HubServer) -> None:
    async with seeded.configs(AGENT) as client:
        with pytest.raises(Forbidden, match="slurm-bootstrap-config:read"):
            await client.get("lab", "gpu")


async def test_a_configuration_is_made_changed_and_listed(seeded: HubServer) -> None:
    made = draft()
    async with seeded.configs(HPC) as client:
        first = await client.create("lab", made)
        second = await client.update("lab", made.device_role, ConfigChanges(image="newer"), revision=first.revision)
        listed = {record.device_role: record for record in await client.list("lab")}
    assert (first.revision, second.revision) == (1, 2)
    assert (second.image, second.flavor, second.created_by) == ("newer", "gpu.8", HPC)
    assert listed[made.device_role] == second
    assert second.user_data_sha256 == as_read(made).user_data_sha256


async def test_a_change_of_an_older_revision_is_a_conflict(seeded: HubServer) -> None:
    made = draft()
    async with seeded.configs(HPC) as client:
        await client.create("lab", made)
        await client.update("lab", made.device_role, ConfigChanges(image="a"), revision=1)
        with pytest.raises(Conflict, match="revision 2 by now"):
            await client.update("lab", made.device_role, ConfigChanges(image="b"), revision=1)
        record = await client.update("lab", made.device_role, ConfigChanges(flavor=None), revision=None)
    assert (record.image, record.flavor, record.revision) == ("a", None, 3)


async def test_a_second_one_for_a_role_is_a_conflict(seeded: HubServer) -> None:
    made = draft()
    async with seeded.configs(HPC) as client:
        await client.create("lab", made)
        with pytest.raises(Conflict, match="already, at revision 1"):
            await client.create("lab", made)


async def test_ensuring_twice_changes_nothing_the_second_time(seeded: HubServer) -> None:
    made = draft()
    async with seeded.configs(HPC) as client:
        first = await client.ensure("lab", made)
        assert await client.ensure("lab", made) == first
        changed = await client.ensure("lab", made.model_copy(update={"gres": ""}))
    assert (changed.gres, changed.revision) == ("", 2)


async def test_a_refusal_tells_the_rule_and_no_user_data(seeded: HubServer) -> None:
    wrong = draft(user_data=b64(SCRIPT.replace("State=DRAIN", "State=IDLE")))
    async with seeded.configs(HPC) as client:
        with pytest.raises(BadRequest, match="write State=DRAIN in slurmd's --conf") as caught:
            await client.create("lab", wrong)
    assert SECRET not in str(caught.value)
    assert wrong.user_data.reveal()[:40] not in repr(caught.value)


async def test_an_answer_that_does_not_fit_is_refused_without_what_it_holds() -> None:
    body = {"id": "c", "site": "lab", "device_role": "gpu", "image": 7, "flavor": None, "user_data": USER_DATA}
    with pytest.raises(IncompatibleServer) as caught:
        await _answered({**body, "features": SCRIPT}).get("lab", "gpu")
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        assert USER_DATA[:40] not in str(error)
        error = error.__cause__ or error.__context__


async def test_the_configuration_of_another_role_or_site_is_not_believed() -> None:
    body = {"id": "c", "image": "i", "flavor": "f", "user_data": USER_DATA, "revision": 1}
    for wrong in ({"site": "lab", "device_role": "cpu"}, {"site": "other", "device_role": "gpu"}):
        with pytest.raises(IncompatibleServer, match="another configuration"):
            await _answered({**body, **wrong}).get("lab", "gpu")


async def test_a_404_that_is_not_the_hubs_is_not_a_missing_configuration() -> None:
    with pytest.raises(ClientError) as caught:
        await _answered("default backend", status=404).get("lab", "gpu")
    assert not isinstance(caught.value, NotFound)


def test_a_draft_shows_no_user_data() -> None:
    made = draft()
    assert USER_DATA[:40] not in repr(made)
    with pytest.raises(ValueError):
        made.model_dump_json()


class _Once:
    """A client of a server that gives one answer."""

    def __init__(self, body: Any, status: int) -> None:
        content = {"json": body} if isinstance(body, dict) else {"text": body}
        settings = FleetManagerSettings(
            url="http://127.0.0.1:1", client_id="me", private_key_file="/nowhere", read_attempts=1
        )
        transport = httpx.MockTransport(lambda _: httpx.Response(status, **content))
        self._client = SlurmBootstrapConfigClient(settings, auth=httpx.Auth(), transport=transport)

    async def get(self, site: str, role: str) -> SlurmBootstrapConfig:
        async with self._client as client:
            return await client.get(site, role)


def _answered(body: Any, status: int = 200) -> _Once:
    return _Once(body, status)


def test_user_data_is_equal_by_its_text_whatever_its_folding() -> None:
    assert UserData("QUJD\nREVG") == UserData("QUJDREVG")
    assert len({UserData("QUJD\nREVG"), UserData("QUJDREVG")}) == 1
