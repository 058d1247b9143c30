"""The roster's rules."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm
from tests.integration.hub.support import kid_of, new_key, pem, public_pem

from fleet_manager.core.clients.client_key import public_jwk
from fleet_manager.hub.roster import Roster, RosterError, load

KEY = new_key()
JWK = {"kid": kid_of(KEY), **public_jwk(KEY)}


def written(tmp_path: Path, **changes: Any) -> Path:
    client = {"client_id": "agent", "site": "lab", "scopes": ["device:read"], "keys": [JWK], **changes}
    path = tmp_path / "roster.json"
    path.write_text(json.dumps({"clients": [client]}))
    return path


@pytest.mark.parametrize("kind,algorithm", [("EC", "ES256"), ("OKP", "EdDSA"), ("RSA", "RS256")])
@pytest.mark.parametrize("as_pem", [True, False])
def test_a_key_signs_with_its_own_algorithm_only(tmp_path: Path, kind: str, algorithm: str, as_pem: bool) -> None:
    key = new_key(kind)
    entry = {"kid": "k", "pem": public_pem(key)} if as_pem else {"kid": "k", **public_jwk(key)}
    assert load(written(tmp_path, keys=[entry]))["agent"].keys["k"][0] == algorithm


def test_a_jwks_own_alg_does_not_decide(tmp_path: Path) -> None:
    assert load(written(tmp_path, keys=[{**JWK, "alg": "HS256"}]))["agent"].keys[JWK["kid"]][0] == "ES256"


@pytest.mark.parametrize(
    "changes,word",
    [
        ({"scopes": ["device:write"]}, "device:read"),
        ({"site": "Not A Label"}, "DNS label"),
        ({"keys": []}, "keys"),
        ({"keys": [{**JWK, "kid": ""}]}, "kid"),
        ({"keys": [{"kty": "EC"}]}, "kid"),
        ({"keys": [JWK, JWK]}, "two keys"),
        ({"keys": [{"kid": "k", "kty": "oct", "k": "c2VjcmV0"}]}, "not allowed|cannot be read"),
        ({"keys": [{"kid": "k", "pem": "nonsense"}]}, "cannot be read"),
        ({"keys": [{"kid": "k", "pem": pem(KEY).decode()}]}, "private key"),
        ({"keys": [{**ECAlgorithm.to_jwk(KEY, as_dict=True), "kid": "k"}]}, "private key"),
        ({"keys": [{"kid": "k", "pem": public_pem(ec.generate_private_key(ec.SECP384R1()))}]}, "use EC P-256"),
        ({"keys": [{"kid": "k", "pem": public_pem(rsa.generate_private_key(65537, 1024))}]}, "RSA of 2048 bits"),
        ({"client_id": "a b"}, "client_id"),
        ({"secret": "x"}, "secret"),
    ],
)
def test_a_client_out_of_form_is_refused_with_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], word: str
) -> None:
    with pytest.raises(RosterError, match=word) as caught:
        load(written(tmp_path, **changes))
    assert "PRIVATE" not in str(caught.value)


def test_a_client_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    [client] = json.loads(path.read_text())["clients"]
    path.write_text(json.dumps({"clients": [client, client]}))
    with pytest.raises(RosterError, match="'agent' is there twice"):
        load(path)


def test_a_roster_that_is_not_json_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    path.write_text('{\n "clients": [,]}')
    with pytest.raises(RosterError, match="line 2"):
        load(path)


def test_a_changed_roster_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path)
    roster = Roster(path)
    assert roster.get("agent") is not None
    written(tmp_path, client_id="another")
    assert (roster.get("agent"), roster.get("another") is not None) == (None, True)


@pytest.mark.parametrize("spoil", [lambda path: path.write_text("{"), lambda path: path.unlink()])
def test_a_roster_that_turns_bad_is_logged_and_the_last_good_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Any
) -> None:
    path = written(tmp_path)
    roster = Roster(path)
    spoil(path)
    assert [roster.get("agent") is not None for _ in range(3)] == [True] * 3
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
