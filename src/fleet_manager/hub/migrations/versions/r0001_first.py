"""The first tables: sites, devices, conditions, SLURM bootstrap configurations, used assertions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "sites",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sites"),
    )
    op.create_table(
        "devices",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("site", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("name_key", sa.String(63), nullable=False),
        sa.Column("role", sa.String(63), nullable=False),
        sa.Column("slurm_node", sa.String(63)),
        sa.Column("node_key", sa.String(63), nullable=False),
        sa.Column("hypervisor_hostname", sa.String(255)),
        sa.Column("server_id", sa.String(64)),
        sa.Column("build_id", sa.String(64)),
        sa.Column("config_revision", sa.Integer),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("updated_by", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.ForeignKeyConstraint(["site"], ["sites.id"], name="fk_devices_site"),
        sa.UniqueConstraint("site", "name_key", name="uq_devices_site_name_key"),
        sa.UniqueConstraint("site", "node_key", name="uq_devices_site_node_key"),
    )
    op.create_table(
        "device_conditions",
        sa.Column("device_id", sa.String(36), nullable=False),
        sa.Column("type", sa.String(63), nullable=False),
        sa.Column("status", sa.String(7), nullable=False),
        sa.Column("reason", sa.String(128), nullable=False),
        sa.Column("message", sa.String(1024), nullable=False),
        sa.Column("last_transition_time", _TIME, nullable=False),
        sa.Column("observed_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("updated_by", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("device_id", "type", name="pk_device_conditions"),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_device_conditions_device_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_device_conditions_type_status", "device_conditions", ["type", "status"])
    op.create_table(
        "slurm_bootstrap_configs",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("site", sa.String(63), nullable=False),
        sa.Column("device_role", sa.String(63), nullable=False),
        sa.Column("image", sa.String(255)),
        sa.Column("flavor", sa.String(255)),
        sa.Column("features", sa.JSON, nullable=False),
        sa.Column("gres", sa.String(255), nullable=False),
        sa.Column("user_data", sa.LargeBinary, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.Column("updated_by", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_slurm_bootstrap_configs"),
        sa.ForeignKeyConstraint(["site"], ["sites.id"], name="fk_slurm_bootstrap_configs_site"),
        sa.UniqueConstraint("site", "device_role", name="uq_slurm_bootstrap_configs_site_device_role"),
    )
    op.create_table(
        "used_assertions",
        sa.Column("client_id", sa.String(128), nullable=False),
        sa.Column("jti", sa.String(128), nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("client_id", "jti", name="pk_used_assertions"),
    )
    op.create_index("ix_used_assertions_expires_at", "used_assertions", ["expires_at"])


def downgrade() -> None:
    for table in ("used_assertions", "slurm_bootstrap_configs", "device_conditions", "devices", "sites"):
        op.drop_table(table)
