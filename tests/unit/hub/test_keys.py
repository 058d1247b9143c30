"""The hub's signing keys."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.integration.hub.support import pem

from fleet_manager.core.clients.client_key import jwk_thumbprint
from fleet_manager.hub.keys import CURRENT, KeyFileError, load_or_create, rotate


def test_the_first_start_makes_a_key_that_only_we_can_read(tmp_path: Path) -> None:
    keys = load_or_create(tmp_path / "state")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / CURRENT).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "state").iterdir()] == [CURRENT]
    assert load_or_create(tmp_path / "state").current.kid == keys.current.kid


def test_hubs_that_start_at_once_get_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        kids = list(pool.map(lambda _: load_or_create(tmp_path).current.kid, range(16)))
    assert len(set(kids)) == 1


def test_the_jwks_holds_public_halves_only(tmp_path: Path) -> None:
    [jwk] = load_or_create(tmp_path).jwks()["keys"]
    assert sorted(jwk) == ["alg", "crv", "kid", "kty", "use", "x", "y"]


def test_a_rotation_publishes_the_new_key_and_the_one_before(tmp_path: Path) -> None:
    first = load_or_create(tmp_path).current.kid
    second = rotate(tmp_path).current.kid
    third = rotate(tmp_path)
    assert [key.kid for key in third.published] == [third.current.kid, second]
    assert third.by_kid(first) is None


def test_no_repr_shows_a_key(tmp_path: Path) -> None:
    keys = load_or_create(tmp_path)
    assert "private" not in repr(keys).lower()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    load_or_create(tmp_path)
    (tmp_path / CURRENT).chmod(mode)
    with pytest.raises(KeyFileError, match="chmod 600"):
        load_or_create(tmp_path)


@pytest.mark.parametrize("content", [b"", b"nonsense", pem(ec.generate_private_key(ec.SECP384R1()))])
def test_a_file_that_is_no_such_key_is_refused_with_the_way_out(tmp_path: Path, content: bytes) -> None:
    load_or_create(tmp_path)
    (tmp_path / CURRENT).write_bytes(content)
    with pytest.raises(KeyFileError, match="move it away"):
        load_or_create(tmp_path)


def test_the_thumbprint_is_that_of_rfc_7638() -> None:
    """The example of RFC 7638 section 3.1."""
    jwk = {
        "kty": "RSA",
        "n": (
            "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3"
            "oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdA"
            "ZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-"
            "kEgU8awapJzKnqDKgw"
        ),
        "e": "AQAB",
        "alg": "RS256",
        "kid": "2011-04-29",
    }
    assert jwk_thumbprint(jwk) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
