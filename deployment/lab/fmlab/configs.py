"""Writing a bootstrap configuration as a person of HPC does: through the product's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fleet_manager.core.clients.oauth import PrivateKeyJwtAuth
from fleet_manager.core.clients.slurm_bootstrap_config import (
    ConfigDraft,
    ConfigRecord,
    SlurmBootstrapConfigClient,
)
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings

SCOPES = tuple(f"slurm-bootstrap-config:{verb}" for verb in ("read", "create", "update"))


def ensure_config(
    client_env: Mapping[str, str],
    site: str,
    *,
    role: str,
    image: str | None,
    user_data: str,
    flavor: str | None = "gpu-h100",
) -> ConfigRecord:
    """Make the configuration of a role, or bring the one that is there to these values."""
    return asyncio.run(_ensure(client_env, site, role, image, user_data, flavor))


async def _ensure(
    client_env: Mapping[str, str], site: str, role: str, image: str | None, user_data: str, flavor: str | None
) -> ConfigRecord:
    settings = FleetManagerSettings(
        url=client_env["FLEET_MANAGER__URL"],
        client_id=client_env["FLEET_MANAGER__CLIENT_ID"],
        private_key_file=client_env["FLEET_MANAGER__PRIVATE_KEY_FILE"],
    )
    async with SlurmBootstrapConfigClient(settings, auth=PrivateKeyJwtAuth.from_settings(settings, SCOPES)) as client:
        draft = ConfigDraft(
            device_role=role,
            image=image,
            flavor=flavor,
            features=("dynamic", "h100"),
            gres="gpu:h100:8",
            user_data=user_data,
        )
        return await client.ensure(site, draft)
