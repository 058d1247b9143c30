"""What the API takes and gives where that is not a domain model. Unknown fields are refused; types are not guessed."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from fleet_manager.core.domain.device import NAME_PATTERN, Condition, ConditionResult, ConditionStatus

ItemT = TypeVar("ItemT")

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
NovaName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^\S(.*\S)?$")]
Token64 = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
CamelCase = r"^[A-Z][A-Za-z0-9]*$"

MAX_REPORTS = 5000
"""Condition reports in one call: a site's worth in a few calls, and one call within the body limit."""


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Page(BaseModel, Generic[ItemT]):
    """A page of a list; `next_after` goes into `after` of the next call, null at the end."""

    items: list[ItemT]
    next_after: str | None = None


class PageQuery(_Input):
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    after: Annotated[str, StringConstraints(max_length=130)] = ""


class DeviceQuery(PageQuery):
    """Filters of the device list; each is an exact value (names whatever the case), all must hold."""

    name: str | None = None
    slurm_node: str | None = None
    role: str | None = None
    server_id: str | None = None


class DevicePatch(_Input):
    """The fields of a device that a client may set; a field that is not there stays, null clears it."""

    server_id: Token64 | None = None
    build_id: Token64 | None = None
    config_revision: Annotated[int, Field(ge=1, strict=True)] | None = None


class ReportIn(_Input):
    """One condition of one device; `device` is its id or its name."""

    device: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    type: Annotated[str, StringConstraints(pattern=CamelCase, max_length=63)]
    status: ConditionStatus
    reason: Annotated[str, StringConstraints(pattern=CamelCase, max_length=128)]
    message: Annotated[str, StringConstraints(max_length=1024)] = ""
    observed_at: AwareDatetime


class ReportsIn(_Input):
    conditions: Annotated[list[ReportIn], Field(min_length=1, max_length=MAX_REPORTS)]


class ReportsOut(BaseModel):
    """One result for each report, in its order."""

    results: list[ConditionResult]


class ConditionQuery(PageQuery):
    device: str | None = None
    type: str | None = None
    status: ConditionStatus | None = None


class DeviceCondition(Condition):
    """A condition with the device that it is of."""

    device_id: str
    device: str


class ConfigQuery(PageQuery):
    device_role: str | None = None


class ConfigCreate(_Input):
    """A new configuration. Null image or flavor is taken: adoption then refuses the role and says so."""

    device_role: Name
    image: NovaName | None = None
    flavor: NovaName | None = None
    features: Annotated[list[str], Field(max_length=64)] = []
    gres: Annotated[str, StringConstraints(max_length=255)] = ""
    user_data: str = Field(repr=False)


class ConfigPatch(_Input):
    """A field that is not there stays; null clears image and flavor, and nothing else."""

    image: NovaName | None = None
    flavor: NovaName | None = None
    features: Annotated[list[str], Field(max_length=64)] = []
    gres: Annotated[str, StringConstraints(max_length=255)] = ""
    user_data: str = Field(default="", repr=False)


class ConfigOut(BaseModel):
    """A configuration as told to everyone with a scope on it: of the user-data only its digest and size."""

    id: str
    site: str
    device_role: str
    image: str | None
    flavor: str | None
    features: list[str]
    gres: str
    revision: int
    created_at: AwareDatetime
    created_by: str
    updated_at: AwareDatetime
    updated_by: str
    user_data_sha256: str
    user_data_bytes: int


class ConfigWithUserData(ConfigOut):
    """The same with the user-data (base64), for `slurm-bootstrap-config:read` and one row at a time."""

    user_data: str = Field(repr=False)
