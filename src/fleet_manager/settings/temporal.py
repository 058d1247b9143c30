"""How to reach Temporal. Read from the environment as FLEET_TEMPORAL__<FIELD>."""

from __future__ import annotations

from pydantic_settings import BaseSettings, SettingsConfigDict


class TemporalSettings(BaseSettings):
    """One namespace of one Temporal."""

    model_config = SettingsConfigDict(env_prefix="FLEET_TEMPORAL__", frozen=True, extra="forbid")

    address: str = "127.0.0.1:7233"
    """host:port of the frontend; the default is a dev server's."""
    namespace: str = "fleet"
    """Our own namespace, so that retention and search attributes are ours."""
    ui_url: str = "http://127.0.0.1:8233"
    """Where people open the UI; only links are made of it."""
    retention_days: int = 30
    """How long closed workflows are kept: a month of "who drained that node" (used by the bootstrap alone)."""
