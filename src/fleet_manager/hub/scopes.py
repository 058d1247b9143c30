"""The closed set of the hub's scopes."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a client may do at its site; a roster that names another scope is refused."""

    DEVICE_READ = "device:read"
    DEVICE_UPDATE = "device:update"
    CONDITION_CREATE = "device-condition:create"
    CONDITION_READ = "device-condition:read"
    CONFIG_READ = "slurm-bootstrap-config:read"
    CONFIG_CREATE = "slurm-bootstrap-config:create"
    CONFIG_UPDATE = "slurm-bootstrap-config:update"


ALL_SCOPES = tuple(scope.value for scope in Scope)
