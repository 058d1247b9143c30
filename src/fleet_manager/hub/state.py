"""What one hub process holds, built once from its settings and handed to the routes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import Request

from fleet_manager.hub.database import Database
from fleet_manager.hub.keys import SigningKeys, load_or_create
from fleet_manager.hub.roster import Roster
from fleet_manager.hub.tokens import TokenService
from fleet_manager.settings.hub import HubSettings

Now = Callable[[], datetime]
"""The clock: an aware time. Tests hand in their own."""


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Hub:
    """The hub's parts."""

    settings: HubSettings
    database: Database
    roster: Roster
    keys: SigningKeys
    tokens: TokenService
    now: Now


def build(settings: HubSettings, now: Now) -> Hub:
    """Build the parts of a hub.

    Raises:
        RosterError: the roster cannot be used.
        KeyFileError: the signing key cannot be used.
    """
    roster = Roster(settings.roster_path)
    keys = load_or_create(settings.state_dir)
    tokens = TokenService(keys, roster, settings.issuer_id, settings.audience, settings.access_token_ttl)
    return Hub(settings, Database(settings.sqlalchemy_url), roster, keys, tokens, now)


def hub_of(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub
