"""The hub's tables. Rows only: what a change means is decided in the domain, what is allowed in the routes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, ForeignKey, Index, Integer, LargeBinary, MetaData, String, UniqueConstraint
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
"""Names of constraints, so that a migration can drop on either database what another made."""


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time, kept in UTC; SQLite has no zone, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {datetime: UtcDateTime(), list[str]: JSON()}  # noqa: RUF012 - SQLAlchemy's own spelling


class Site(Base):
    """A site that the hub knows; seeded from a file."""

    __tablename__ = "sites"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    created_at: Mapped[datetime]


class DeviceRow(Base):
    """A device. `name_key` and `node_key` are the names in lower case, unique in the site (see `name_key`)."""

    __tablename__ = "devices"
    __table_args__ = (UniqueConstraint("site", "name_key"), UniqueConstraint("site", "node_key"))

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    site: Mapped[str] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[str] = mapped_column(String(63))
    name_key: Mapped[str] = mapped_column(String(63))
    role: Mapped[str] = mapped_column(String(63))
    slurm_node: Mapped[str | None] = mapped_column(String(63))
    node_key: Mapped[str] = mapped_column(String(63))
    hypervisor_hostname: Mapped[str | None] = mapped_column(String(255))
    server_id: Mapped[str | None] = mapped_column(String(64))
    build_id: Mapped[str | None] = mapped_column(String(64))
    config_revision: Mapped[int | None] = mapped_column(Integer)
    revision: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str] = mapped_column(String(128))


class ConditionRow(Base):
    """What was last reported of one condition of one device."""

    __tablename__ = "device_conditions"
    __table_args__ = (Index(None, "type", "status"),)

    device_id: Mapped[str] = mapped_column(ForeignKey("devices.id", ondelete="CASCADE"), primary_key=True)
    type: Mapped[str] = mapped_column(String(63), primary_key=True)
    status: Mapped[str] = mapped_column(String(7))
    reason: Mapped[str] = mapped_column(String(128))
    message: Mapped[str] = mapped_column(String(1024))
    last_transition_time: Mapped[datetime]
    observed_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str] = mapped_column(String(128))


class ConfigRow(Base):
    """A SLURM bootstrap configuration; `user_data` is the decoded user-data and is secret."""

    __tablename__ = "slurm_bootstrap_configs"
    __table_args__ = (UniqueConstraint("site", "device_role"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    site: Mapped[str] = mapped_column(ForeignKey("sites.id"))
    device_role: Mapped[str] = mapped_column(String(63))
    image: Mapped[str | None] = mapped_column(String(255))
    flavor: Mapped[str | None] = mapped_column(String(255))
    features: Mapped[list[str]]
    gres: Mapped[str] = mapped_column(String(255))
    user_data: Mapped[bytes] = mapped_column(LargeBinary)
    revision: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(String(128))
    updated_at: Mapped[datetime]
    updated_by: Mapped[str] = mapped_column(String(128))

    def __repr__(self) -> str:
        return f"ConfigRow({self.site}/{self.device_role} revision {self.revision})"


class UsedAssertion(Base):
    """The jti of a client assertion that was taken, kept until the assertion has expired."""

    __tablename__ = "used_assertions"

    client_id: Mapped[str] = mapped_column(String(128), primary_key=True)
    jti: Mapped[str] = mapped_column(String(128), primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


def columns(row: Base) -> dict[str, Any]:
    """Return a row's columns by name, for building a domain model."""
    return {column.key: getattr(row, column.key) for column in row.__mapper__.column_attrs}
