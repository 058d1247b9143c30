"""The Nova client's settings: where they come from, and what they refuse."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fleet_manager.settings.clients.nova import NovaSettings


def test_the_environment_names_cloud_and_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_NOVA__CLOUD", "ops-app")
    monkeypatch.setenv("FLEET_NOVA__CONFIG_FILE", "/etc/openstack/clouds.yaml")
    monkeypatch.setenv("FLEET_NOVA__NETWORKS", '["shared-net"]')
    settings = NovaSettings()
    assert (settings.cloud, settings.config_file) == ("ops-app", Path("/etc/openstack/clouds.yaml"))
    assert settings.networks == ("shared-net",)


def test_networks_may_be_nova_s_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_NOVA__NETWORKS", "none")
    assert NovaSettings().networks == "none"


def test_the_default_microversion_is_the_lowest_that_has_all_we_use() -> None:
    assert NovaSettings().microversion == "2.74"


@pytest.mark.parametrize(("version", "why"), [("2.73", "below 2.74"), ("2.1", "below 2.74"), ("latest", "pattern")])
def test_a_microversion_that_lacks_something_is_refused(version: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        NovaSettings(microversion=version)
