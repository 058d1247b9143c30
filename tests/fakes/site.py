"""A whole site in memory: fakes of SLURM, Nova and hub, with a data hall between them, under the real activities.

What the metal does on a real site, `Metal` does here: when Nova says that a build is ACTIVE its machine registers.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.fakes.hub import FakeFleetManager, FakeSlurmBootstrapConfigs
from tests.fakes.nova import FakeCloud, FakeNova
from tests.fakes.slurm import FakeSlurm
from tests.fakes.slurm_cluster import FakeCluster

from fleet_manager.core.domain.device import Device
from fleet_manager.core.domain.server import Server, ServerStatus
from fleet_manager.core.domain.slurm_bootstrap_config import BIRTH_REASON, SlurmBootstrapConfig
from fleet_manager.core.domain.slurm_job import JobSpec
from fleet_manager.settings.clients.nova import NovaSettings
from fleet_manager.settings.site import SiteSettings
from fleet_manager.temporal.worker import Peers

NODE, DEVICE, ROLE = "gpu-001", "dev-001", "gpu-h100"
QUICK = timedelta(seconds=0.02)


def user_data(mark: str = "1") -> str:
    """Return base64 user-data that keeps every rule."""
    text = (
        "## template: jinja\n#cloud-config\nwrite_files:\n  - path: /etc/default/slurmd\n    content: |\n"
        '      SLURMD_OPTIONS="-Z --instance-id {{ v1.instance_id }} --extra fm_build={{ ds.meta_data.meta.fm_build }} '
        f'--conf \'State=DRAIN Reason=\\"{BIRTH_REASON}\\"\'"\n# {mark}\n'
    )
    return base64.b64encode(text.encode()).decode()


class Metal(FakeNova):
    """A Nova whose ACTIVE servers boot, unless `boots` is False; `found_gres` is what a machine really has."""

    def __init__(self, cloud: FakeCloud, cluster: FakeCluster) -> None:
        super().__init__(cloud)
        self.cluster = cluster
        self.boots = True
        self.found_gres: str | None = None
        self.booted: dict[str, str] = {}

    async def get(self, server_id: str) -> Server:
        server = await super().get(server_id)
        if self.boots and server.status is ServerStatus.ACTIVE and server.task_state is None:
            self.boot(server)
        return server

    def boot(self, server: Server) -> None:
        """Let the machine register, once a build."""
        build = server.metadata.get("fm_build", "")
        if self.booted.get(server.id) == build:
            return
        self.booted[server.id] = build
        self.cluster.register(
            server.name,
            features=("dynamic",),
            found_gres=self.found_gres,
            memory_mib=server.flavor_ram_mib,
            cpus=server.flavor_vcpus,
            drained=BIRTH_REASON,
            instance_id=server.id,
            extra=f"fm_build={build}",
        )


@dataclass
class FakeSite:
    """The site of one test; its id is its own, and so are its task queues."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self.id = f"s{uuid.uuid4().hex[:12]}"
        self.cluster = FakeCluster(now=self.now, silence=timedelta(0))
        self.cluster.outcome = lambda spec: self.burn_in(spec)
        self.slurm = FakeSlurm(self.cluster)
        self.cloud = FakeCloud(hosts=("hv-001",))
        self.nova = Metal(self.cloud, self.cluster)
        self.hub = FakeFleetManager(
            [Device(id=DEVICE, site=self.id, name=NODE, role=ROLE, hypervisor_hostname="hv-001")]
        )
        self.configs = FakeSlurmBootstrapConfigs([self.config()])
        self.burn_in: Callable[[JobSpec], tuple[timedelta, int]] = lambda _: (timedelta(0), 0)
        self.settings = SiteSettings(
            id=self.id,
            slurm_user="fleet",
            burn_in_partition="main",
            watch_interval=QUICK,
            reserved_memory_mib=500,
        )
        self.nova_settings = NovaSettings(networks="auto")

    def config(self, **more: object) -> SlurmBootstrapConfig:
        fields = {
            "id": "c1",
            "site": self.id,
            "device_role": ROLE,
            "image": "slurm-node-b",
            "flavor": "gpu-h100",
            "features": ("dynamic", "h100"),
            "gres": "gpu:h100:8",
            "user_data": user_data(),
            "revision": 1,
        }
        return SlurmBootstrapConfig.model_validate({**fields, **more})

    @property
    def peers(self) -> Peers:
        return Peers(slurm=self.slurm, nova=self.nova, hub=self.hub, configs=self.configs)
