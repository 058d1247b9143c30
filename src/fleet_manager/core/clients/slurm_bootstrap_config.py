"""The hub's SLURM bootstrap configurations: read one with its user-data, or write it as HPC does.

The user-data leaves this module only inside `UserData`. Nothing here keeps it between two calls.
"""

from __future__ import annotations

from typing import Any, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict

from fleet_manager.core.clients.errors import Conflict, NotFound
from fleet_manager.core.clients.http import HubClient
from fleet_manager.core.domain.slurm_bootstrap_config import SlurmBootstrapConfig, UserData


class SlurmBootstrapConfigReader(Protocol):
    """What adoption asks of the hub about configurations; the fakes of tests implement it too."""

    async def get(self, site: str, role: str) -> SlurmBootstrapConfig:
        """Return the configuration of a device role.

        Raises:
            NotFound: the role has none; the sentence names site, role and the call that makes one.
            ClientError: as its class says.
        """
        ...


class ConfigDraft(BaseModel):
    """A configuration to be made."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    device_role: str
    image: str | None = None
    flavor: str | None = None
    features: tuple[str, ...] = ()
    gres: str = ""
    user_data: UserData


class ConfigChanges(BaseModel):
    """Fields to be changed; one that is not given stays, None clears image or flavor."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    image: str | None = None
    flavor: str | None = None
    features: tuple[str, ...] | None = None
    gres: str | None = None
    user_data: UserData | None = None


class ConfigRecord(BaseModel):
    """A configuration as the hub tells it to a writer: of the user-data only digest and size."""

    model_config = ConfigDict(frozen=True)

    id: str
    site: str
    device_role: str
    image: str | None
    flavor: str | None
    features: tuple[str, ...]
    gres: str
    revision: int
    user_data_sha256: str
    user_data_bytes: int
    created_at: AwareDatetime
    created_by: str
    updated_at: AwareDatetime
    updated_by: str


class _ConfigPage(BaseModel):
    items: list[ConfigRecord]
    next_after: str | None


class SlurmBootstrapConfigClient(HubClient):
    """The hub's configurations over HTTP."""

    async def get(self, site: str, role: str) -> SlurmBootstrapConfig:
        """Return the configuration of a device role; see `SlurmBootstrapConfigReader`."""
        try:
            answer = await self._http.get(*_path(site, role))
        except NotFound as error:
            sentence = (
                f"site {site} has no SLURM bootstrap configuration for device role {role}; make one with "
                f"POST /api/v1/sites/{site}/slurm-bootstrap-configs/ (scope slurm-bootstrap-config:create)"
            )
            where: dict[str, Any] = {"method": error.method, "url": error.url, "status": error.status}
            raise NotFound(sentence, peer=error.peer, request_id=error.request_id, **where) from error
        config = self._http.parse(SlurmBootstrapConfig, answer)
        if (config.site, config.device_role) != (site, role):
            raise self._http.unfit(answer, f"it answered with another configuration than {role} of {site}")
        return config

    async def list(self, site: str) -> tuple[ConfigRecord, ...]:
        """Return what there is at a site, by device role, without user-data."""
        found: list[ConfigRecord] = []
        params = {"limit": "1000"}
        while True:
            answer = await self._http.get(*_path(site, ""), params=params)
            page = self._http.parse(_ConfigPage, answer)
            found += page.items
            if page.next_after is None:
                return tuple(found)
            if page.next_after == params.get("after"):
                raise self._http.unfit(answer, "its pages do not end")
            params["after"] = page.next_after

    async def create(self, site: str, draft: ConfigDraft) -> ConfigRecord:
        """Make the configuration of a role.

        Raises:
            Conflict: the role has one; the sentence names it.
            BadRequest: a rule refuses a field; the sentence says what is allowed.
        """
        answer = await self._http.send("POST", *_path(site, ""), json=_wire(draft))
        return self._http.parse(ConfigRecord, answer)

    async def update(self, site: str, role: str, changes: ConfigChanges, *, revision: int | None) -> ConfigRecord:
        """Change some fields of a role's configuration.

        `revision` is the one that the change was made from; None overwrites whatever is there, knowingly.

        Raises:
            Conflict: it is at another revision by now.
            NotFound: the role has none.
            BadRequest: a rule refuses a field.
        """
        tag = "*" if revision is None else f'"{revision}"'
        answer = await self._http.send("PATCH", *_path(site, role), json=_wire(changes), headers={"If-Match": tag})
        return self._http.parse(ConfigRecord, answer)

    async def ensure(self, site: str, draft: ConfigDraft) -> ConfigRecord:
        """Make the configuration, or bring the one that is there to the draft; safe to repeat."""
        try:
            return await self.create(site, draft)
        except Conflict:
            fields = {name: getattr(draft, name) for name in type(draft).model_fields if name != "device_role"}
            return await self.update(site, draft.device_role, ConfigChanges(**fields), revision=None)


def _path(site: str, last: str) -> tuple[str, ...]:
    return ("api", "v1", "sites", site, "slurm-bootstrap-configs", last)


def _wire(model: ConfigDraft | ConfigChanges) -> dict[str, Any]:
    """Return the request's body: the one place where user-data is revealed to the hub."""
    body = model.model_dump(exclude_unset=isinstance(model, ConfigChanges))
    user_data = body.get("user_data")
    return {**body, "user_data": user_data.reveal()} if isinstance(user_data, UserData) else body
