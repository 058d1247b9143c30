"""The hub's settings."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fleet_manager.settings.hub import HubSettings


@pytest.mark.parametrize(
    "given,url",
    [
        (None, "sqlite+aiosqlite:////srv/hub/hub.sqlite3"),
        ("postgresql://u:p@db/hub", "postgresql+psycopg://u:p@db/hub"),
        ("postgres://u:p@db/hub", "postgresql+psycopg://u:p@db/hub"),
        ("postgresql+psycopg://u:p@db/hub", "postgresql+psycopg://u:p@db/hub"),
        ("sqlite:////tmp/x.db", "sqlite+aiosqlite:////tmp/x.db"),
    ],
)
def test_the_driver_is_chosen_by_itself(given: str | None, url: str) -> None:
    assert HubSettings(database_url=given, state_dir=Path("/srv/hub")).sqlalchemy_url == url


def test_issuer_and_audience_follow_the_address() -> None:
    settings = HubSettings(port=9000)
    assert (settings.issuer_id, settings.audience) == ("http://127.0.0.1:9000", "http://127.0.0.1:9000/api/v1")


@pytest.mark.parametrize("issuer", ["http://hub.example", "http://0.0.0.0:8800"])
def test_http_is_taken_on_loopback_only(issuer: str) -> None:
    with pytest.raises(ValidationError, match="FLEET_HUB__ISSUER"):
        HubSettings(issuer=issuer)


@pytest.mark.parametrize("issuer", ["https://hub.example/", "https://hub.example/x", "hub.example", "https://h?x=1"])
def test_an_issuer_that_clients_could_not_compare_is_refused(issuer: str) -> None:
    with pytest.raises(ValidationError, match="without path or slash"):
        HubSettings(issuer=issuer)


def test_listening_everywhere_needs_an_https_issuer() -> None:
    with pytest.raises(ValidationError):
        HubSettings(host="0.0.0.0")
    assert HubSettings(host="0.0.0.0", issuer="https://hub.example").issuer_id == "https://hub.example"


@pytest.mark.parametrize("reason", ["born new build", 'fm:a "b"', "fm:it's", "fm:", "fm:" + "x" * 62])
def test_a_birth_reason_that_slurmd_would_not_keep_whole_is_refused(reason: str) -> None:
    with pytest.raises(ValidationError):
        HubSettings(birth_reason=reason)


@pytest.mark.parametrize(
    "values",
    [
        {"access_token_ttl": timedelta(hours=1)},
        {"port": 0},
        {"log_format": "xml"},
        {"clock_leeway": timedelta(hours=1)},
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HubSettings(**values)


def test_neither_repr_nor_an_error_shows_the_databases_password() -> None:
    url = "postgresql://u:s3cret@db/hub"
    assert "s3cret" not in repr(HubSettings(database_url=url))
    with pytest.raises(ValidationError) as caught:
        HubSettings(database_url=url, issuer="http://hub.example")
    assert "s3cret" not in str(caught.value)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_HUB__PORT", "9001")
    monkeypatch.setenv("FLEET_HUB__ACCESS_TOKEN_TTL", "PT2M")
    settings = HubSettings()
    assert (settings.port, settings.access_token_ttl) == (9001, timedelta(minutes=2))
