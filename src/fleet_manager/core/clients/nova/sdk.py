"""The only module that touches openstacksdk and keystoneauth: one blocking call in, one `Reply` or error out.

openstacksdk gives us clouds.yaml, OS_CLOUD and every auth plugin, keystoneauth the token and the catalog. Its resource
layer is left aside on purpose: `openstack.proxy` caches, its exceptions carry `response` and `details`, and a 400 of
Nova's quotes the whole user-data in them, twice (nova-api.md 2).

Where a secret could leak, and what stops it:
- an exception of keystoneauth or requests holds the request (user-data, application credential's secret) and the
  response (adminPass). None leaves this module, not even as `__cause__` or `__context__`: `from None` only hides the
  context from a traceback's text, while error reporters walk it. So errors are made and *returned* outside of the
  `except` block, and raised by the caller, whose frames hold no body either.
- keystoneauth logs bodies at DEBUG: every call says `log=False`, and its loggers are held at WARNING beside that.
- `Reply` and `Request` hide their bodies from `repr`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

import msgspec
from keystoneauth1 import adapter, discover
from keystoneauth1 import exceptions as ks
from keystoneauth1.identity.base import BaseIdentityPlugin
from openstack import exceptions as os_exceptions
from openstack.config import OpenStackConfig
from openstack.config.cloud_region import CloudRegion
from openstack.warnings import RemovedInSDK60Warning

from fleet_manager.core.clients.errors import AuthRejected, ClientError, Unavailable, UnavailableTimeout
from fleet_manager.core.clients.nova.errors import PEER, Misconfigured, NovaBusy
from fleet_manager.settings.clients.nova import NovaSettings

Service = Literal["compute", "image", "network"]
Decoded = TypeVar("Decoded")

_VERSIONS: Mapping[Service, tuple[str | None, str | None]] = {
    "compute": ("2.1", "2.latest"),
    "image": ("2", "2.latest"),
    "network": (None, None),  # Neutron's versions cannot be discovered everywhere: the path names v2.0 itself
}
_STALE_TOKEN = (b"Not authorized for image", b"ImageNotAuthorized")


@dataclass(frozen=True)
class Request:
    """One call. `path` is below the service's endpoint; `query` holds names and tags only."""

    method: str
    path: str
    service: Service = "compute"
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Reply:
    """An answer, whatever its status."""

    status: int
    url: str
    request_id: str
    retry_after: str | None
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Identity:
    """What the token says of its bearer."""

    project_id: str
    roles: tuple[str, ...]


class Cloud:
    """A cloud of clouds.yaml: a session, and an adapter for each service. Blocking; safe to share between threads."""

    def __init__(self, settings: NovaSettings) -> None:
        self._settings = settings
        self._timeout = (settings.connect_timeout.total_seconds(), settings.read_timeout.total_seconds())
        _quiet()
        region = _region(settings)
        self._session: Any = region.get_session()
        self._adapters = {
            service: adapter.Adapter(
                session=self._session,
                service_type=region.get_service_type(service),
                interface=region.get_interface(service),
                region_name=region.get_region_name(service),
                endpoint_override=region.get_endpoint(service),
                min_version=lowest,
                max_version=highest,
            )
            for service, (lowest, highest) in _VERSIONS.items()
        }

    def send(self, request: Request) -> Reply:
        """Send a request, once; a second time only with a new token where the first was refused for its token.

        keystoneauth does that for a 401. Nova answers 400 or 500 when it still holds a revoked token for good and
        Glance does not; nothing was done then, as the image is looked up before anything else.
        """
        reply = self._send(request)
        if reply.status in (400, 500) and any(text in reply.content for text in _STALE_TOKEN):
            self._session.invalidate()
            reply = self._send(request)
        return reply

    def _send(self, request: Request) -> Reply:
        service = self._adapters[request.service]
        response: Any = service.request(
            request.path,
            request.method,
            params=dict(request.query),
            json=request.body,
            microversion=self._settings.microversion if request.service == "compute" else None,
            headers={"Accept": "application/json"},
            timeout=self._timeout,
            raise_exc=False,
            log=False,
            connect_retries=0,  # clouds.yaml may ask for retries; a write is never repeated here
            status_code_retries=0,
        )
        headers = response.headers
        return Reply(
            status=response.status_code,
            url=str(response.url),
            request_id=headers.get("x-openstack-request-id") or headers.get("x-compute-request-id") or "",
            retry_after=headers.get("Retry-After"),
            content=response.content,
        )

    def identity(self) -> Identity:
        """Return project and roles of the token; empty where the auth plugin knows of none."""
        auth = self._session.auth
        if not isinstance(auth, BaseIdentityPlugin):
            return Identity("", ())
        access = auth.get_access(self._session)
        return Identity(access.project_id or "", tuple(sorted(access.role_names or ())))

    def offered_microversion(self) -> str:
        """Return the highest microversion of this Nova, "" when it names none."""
        data = self._adapters["compute"].get_endpoint_data()
        if data is None or not data.max_microversion:
            return ""
        return discover.version_to_string(data.max_microversion)

    def close(self) -> None:
        """Close the pooled connections."""
        self._session.session.close()


def failure(exc: Exception, request: Request | None = None) -> ClientError:
    """Turn an exception of the SDK into ours, keeping class, status and request id, and nothing that it holds.

    An HTTP error here is Keystone's: Nova's statuses come back as replies.
    """
    method, path = (request.method, request.path) if request else ("", "")
    match exc:
        case ks.ConnectTimeout():
            return UnavailableTimeout("no answer in time", peer=PEER, method=method, url=path)
        case ks.HttpError():
            return _keystone_failure(exc)
        case ks.ConnectionError() | ks.DiscoveryFailure():
            return Unavailable(f"no connection: {_root(exc)}", peer=PEER, method=method, url=path)
        case ks.EndpointNotFound():
            service = request.service if request else "compute"
            return Misconfigured(
                f"the catalog has no {service} endpoint for this region and interface", peer="keystone"
            )
        case os_exceptions.ConfigException():
            return Misconfigured("the cloud cannot be read from clouds.yaml: is its name right?", peer=PEER)
        case ks.ClientException() | os_exceptions.SDKException():
            return Misconfigured(f"the credential of clouds.yaml cannot be used: {type(exc).__name__}", peer="keystone")
        case _:
            return Unavailable(f"the call broke: {type(exc).__name__}", peer=PEER, method=method, url=path)


def _keystone_failure(exc: ks.HttpError) -> ClientError:
    status, request_id = exc.http_status, exc.request_id or ""
    if status in (429, 503):
        wait = timedelta(seconds=exc.retry_after) if exc.retry_after else None
        return NovaBusy("Keystone is busy", retry_after=wait, peer="keystone", status=status, request_id=request_id)
    if status >= 500:
        return Unavailable("Keystone failed", peer="keystone", method="AUTH", status=status, request_id=request_id)
    # An unknown application credential is 404, a wrong secret 401, a scope beside one 401.
    return AuthRejected(
        "Keystone does not accept the credential of clouds.yaml (wrong, expired, or revoked)",
        peer="keystone",
        method="AUTH",
        status=status,
        request_id=request_id,
    )


def _root(exc: BaseException) -> str:
    """Name the innermost cause by the system's own words ("Connection refused"), never by an exception's text."""
    seen: BaseException = exc
    while (inner := seen.__cause__ or seen.__context__) is not None:
        seen = inner
    return seen.strerror or type(seen).__name__ if isinstance(seen, OSError) else type(seen).__name__


def _region(settings: NovaSettings) -> CloudRegion:
    files = [str(settings.config_file)] if settings.config_file else None
    config = OpenStackConfig(config_files=files, app_name="fleet-manager")
    with warnings.catch_warnings():
        # openstacksdk 4.22 warns of its own InfluxDB default whatever clouds.yaml says (cloud_region.py:400).
        warnings.filterwarnings("ignore", message="Support for InfluxDB", category=RemovedInSDK60Warning)
        return config.get_one(cloud=settings.cloud, api_timeout=settings.read_timeout.total_seconds())


def _quiet() -> None:
    for name in ("keystoneauth", "openstack"):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))


def decode(reply: Reply, kind: type[Decoded]) -> Decoded:
    """Read a reply's JSON as `kind`; Unavailable when it is something else (a proxy's page, a cut answer)."""
    wrong = ""
    try:
        return msgspec.json.decode(reply.content, type=kind)
    except msgspec.ValidationError as exc:
        wrong = str(exc)  # names type and path, never a value (it would for an enum: none is decoded)
    except msgspec.DecodeError:
        wrong = "not JSON"
    raise Unavailable(
        f"the answer is not Nova's: {wrong}", peer=PEER, url=reply.url, status=reply.status, request_id=reply.request_id
    )
