"""Settings of the 1Password client."""

from __future__ import annotations

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class OnePasswordSettings(BaseSettings):
    """Read from `OP_SERVICE_ACCOUNT_TOKEN`, the name that 1Password's own tools use, or from `FLEET_OP__*`."""

    model_config = SettingsConfigDict(env_prefix="FLEET_OP__", frozen=True, extra="ignore")

    service_account_token: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("FLEET_OP__SERVICE_ACCOUNT_TOKEN", "OP_SERVICE_ACCOUNT_TOKEN"),
    )
    """Token of the service account that may read the site's vault; None where nothing is read from 1Password."""
