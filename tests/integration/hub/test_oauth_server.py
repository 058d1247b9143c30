"""The token endpoint, its metadata and its keys, each refusal by name."""

import asyncio
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.integration.hub.support import AGENT, HPC, WORKER, Api, kid_of, new_key, public_pem

from fleet_manager.hub.assertions import ASSERTION_TYPE

ISSUER = "http://127.0.0.1:18080"


async def ask(api: Api, who: str = AGENT, assertion: str | None = None, **changes: Any) -> httpx.Response:
    form = {
        "grant_type": "client_credentials",
        "client_assertion_type": ASSERTION_TYPE,
        "client_assertion": assertion or api.lab.assertion(who, api.clock(), ISSUER),
        **changes,
    }
    return await api.http.post("/oauth/token", data={name: value for name, value in form.items() if value is not None})


def refused(answer: httpx.Response, code: str, word: str = "", status: int | None = None) -> None:
    assert answer.json()["error"] == code, answer.text
    assert word in answer.json()["error_description"]
    assert answer.status_code == (status or (401 if code == "invalid_client" else 400))
    assert answer.headers["cache-control"] == "no-store"


async def test_the_metadata_names_issuer_endpoints_and_what_is_taken(api: Api) -> None:
    found = (await api.http.get("/.well-known/oauth-authorization-server")).json()
    assert found["issuer"] == ISSUER
    assert found["token_endpoint"] == f"{ISSUER}/oauth/token"
    assert found["jwks_uri"] == f"{ISSUER}/oauth/jwks"
    assert found["grant_types_supported"] == ["client_credentials"]
    assert found["token_endpoint_auth_methods_supported"] == ["private_key_jwt"]
    assert found["token_endpoint_auth_signing_alg_values_supported"] == ["ES256", "EdDSA", "RS256"]


async def test_a_token_is_what_rfc_9068_says_and_the_jwks_verifies_it(api: Api) -> None:
    answer = await ask(api)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert (answer.json()["token_type"], answer.json()["expires_in"]) == ("Bearer", 300)
    assert answer.json()["scope"] == "device-condition:create device:read device:update"
    token = answer.json()["access_token"]
    [jwk] = (await api.http.get("/oauth/jwks")).json()["keys"]
    assert "d" not in jwk
    claims = jwt.decode(token, jwt.PyJWK(jwk), algorithms=["ES256"], audience=f"{ISSUER}/api/v1", issuer=ISSUER)
    assert jwt.get_unverified_header(token)["typ"] == "at+jwt"
    assert (claims["sub"], claims["client_id"], claims["site"]) == (AGENT, AGENT, "lab")
    assert claims["exp"] - claims["iat"] == 300


async def test_the_token_opens_the_api(api: Api) -> None:
    token = (await ask(api)).json()["access_token"]
    answer = await api.http.get("/api/v1/sites/lab/devices", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200


async def test_fewer_scopes_can_be_asked_for(api: Api) -> None:
    assert (await ask(api, scope="device:read")).json()["scope"] == "device:read"


@pytest.mark.parametrize("scope", ["slurm-bootstrap-config:read", "device:read admin", " "])
async def test_a_scope_that_the_client_does_not_have_is_invalid_scope(api: Api, scope: str) -> None:
    refused(await ask(api, scope=scope), "invalid_scope", "device:read")


async def test_an_assertion_is_taken_once(api: Api) -> None:
    assertion = api.lab.assertion(AGENT, api.clock(), ISSUER)
    assert (await ask(api, assertion=assertion)).status_code == 200
    refused(await ask(api, assertion=assertion), "invalid_client", "used before")


async def test_of_one_assertion_sent_many_times_at_once_one_is_taken(api: Api) -> None:
    assertion = api.lab.assertion(AGENT, api.clock(), ISSUER)
    answers = await asyncio.gather(*(ask(api, assertion=assertion) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 7


async def test_a_jti_is_kept_until_its_assertion_has_expired_whatever_else_is_asked(api: Api) -> None:
    assertion = api.lab.assertion(AGENT, api.clock(), ISSUER)
    await ask(api, assertion=assertion)
    api.clock.pass_(seconds=85)  # exp was 60 s ahead, the leeway is 30 s
    assert (await ask(api, WORKER)).status_code == 200
    refused(await ask(api, assertion=assertion), "invalid_client", "used before")
    api.clock.pass_(seconds=6)
    refused(await ask(api, assertion=assertion), "invalid_client", "exp has passed")


async def test_two_clients_may_use_one_jti(api: Api) -> None:
    for who in (AGENT, WORKER):
        assertion = api.lab.assertion(who, api.clock(), ISSUER, jti="same")
        assert (await ask(api, assertion=assertion)).status_code == 200


@pytest.mark.parametrize(
    "changes,word",
    [
        ({"iss": "somebody"}, "iss and sub"),
        ({"iss": None}, "iss and sub"),
        ({"aud": f"{ISSUER}/oauth/token"}, "aud must be the issuer identifier"),
        ({"aud": f"{ISSUER}/"}, "aud must be the issuer identifier"),
        ({"aud": [ISSUER, "http://elsewhere"]}, "and nothing else"),
        ({"aud": None}, "aud must be"),
        ({"jti": None}, "jti"),
        ({"jti": "x" * 129}, "jti"),
        ({"jti": 7}, "jti"),
        ({"exp": None}, "exp must be there"),
        ({"exp": "soon"}, "number"),
        ({"exp": 1e300}, "out of range"),
        ({"header_kid": None}, "kid"),
        ({"header_kid": "another"}, "not signed by a key"),
        ({"header_typ": "at+jwt"}, "typ"),
        ({"header_crit": ["x"]}, ""),
    ],
)
async def test_an_assertion_with_a_wrong_claim_is_invalid_client(api: Api, changes: dict[str, Any], word: str) -> None:
    assertion = api.lab.assertion(AGENT, api.clock(), ISSUER, **changes)
    refused(await ask(api, assertion=assertion), "invalid_client", word)


async def test_an_audience_list_of_the_issuer_alone_is_taken(api: Api) -> None:
    assertion = api.lab.assertion(AGENT, api.clock(), ISSUER, aud=[ISSUER])
    assert (await ask(api, assertion=assertion)).status_code == 200


@pytest.mark.parametrize("ahead,word", [(-31, "exp has passed"), (331, "300 s ahead")])
async def test_exp_must_be_ahead_and_not_too_far(api: Api, ahead: int, word: str) -> None:
    exp = int(api.clock().timestamp()) + ahead
    refused(await ask(api, assertion=api.lab.assertion(AGENT, api.clock(), ISSUER, exp=exp)), "invalid_client", word)


@pytest.mark.parametrize("claim", ["iat", "nbf"])
async def test_an_assertion_from_the_future_is_refused(api: Api, claim: str) -> None:
    when = {claim: int(api.clock().timestamp()) + 31}
    assertion = api.lab.assertion(AGENT, api.clock(), ISSUER, **when)
    refused(await ask(api, assertion=assertion), "invalid_client", "future")


async def test_an_assertion_signed_by_another_clients_key_is_refused(api: Api) -> None:
    stolen = api.lab.assertion(WORKER, api.clock(), ISSUER, iss=AGENT, sub=AGENT)
    refused(await ask(api, assertion=stolen), "invalid_client", "not signed by a key")


async def test_another_key_under_the_right_kid_is_refused(api: Api) -> None:
    claims = {"iss": AGENT, "sub": AGENT, "aud": ISSUER, "jti": "x", "exp": int(api.clock().timestamp()) + 60}
    headers = {"kid": kid_of(api.lab.keys[AGENT])}
    forged = jwt.encode(claims, ec.generate_private_key(ec.SECP256R1()), algorithm="ES256", headers=headers)
    refused(await ask(api, assertion=forged), "invalid_client", "not signed by a key")


@pytest.mark.parametrize("algorithm", ["none", "HS256", "ES512", "RS256"])
async def test_another_algorithm_than_the_keys_own_is_refused(api: Api, algorithm: str) -> None:
    """HS256 with the public key as the secret is the classic; none needs no key at all."""
    key = api.lab.keys[AGENT]
    signers: dict[str, Any] = {
        "none": None,
        "HS256": b"x" * 32,
        "ES512": ec.generate_private_key(ec.SECP521R1()),
        "RS256": new_key("RSA"),
    }
    claims = {"iss": AGENT, "sub": AGENT, "aud": ISSUER, "jti": "x", "exp": int(api.clock().timestamp()) + 60}
    forged = jwt.encode(claims, signers[algorithm], algorithm=algorithm, headers={"kid": kid_of(key)})
    refused(await ask(api, assertion=forged), "invalid_client")


async def test_an_access_token_is_no_assertion(api: Api) -> None:
    refused(await ask(api, assertion=api.token(AGENT)), "invalid_client")


async def test_an_unknown_client_is_refused_as_a_wrong_signature_is(api: Api) -> None:
    unknown = api.lab.assertion(AGENT, api.clock(), ISSUER, iss="nobody", sub="nobody")
    forged = api.lab.assertion(WORKER, api.clock(), ISSUER, iss=AGENT, sub=AGENT)
    answers = [await ask(api, assertion=assertion) for assertion in (unknown, forged)]
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize(
    "changes,code,word",
    [
        ({"grant_type": None}, "invalid_request", "grant_type"),
        ({"grant_type": "password"}, "unsupported_grant_type", "client_credentials"),
        ({"client_assertion_type": "saml"}, "invalid_client", "client_assertion_type"),
        ({"client_assertion_type": None}, "invalid_client", "client_assertion_type"),
        ({"client_id": WORKER}, "invalid_client", "client_id"),
        ({"client_assertion": "a.b.c"}, "invalid_client", "not a JWT"),
        ({"client_assertion": "x" * 9000}, "invalid_client", "longer"),
        ({"client_assertion": None}, "invalid_client", "private_key_jwt"),
    ],
)
async def test_a_request_out_of_form_is_refused(api: Api, changes: dict[str, Any], code: str, word: str) -> None:
    refused(await ask(api, **changes), code, word)


async def test_a_parameter_that_is_there_twice_is_refused(api: Api) -> None:
    answer = await api.http.post("/oauth/token", data={"grant_type": ["client_credentials", "client_credentials"]})
    refused(answer, "invalid_request", "twice")


async def test_json_is_refused_with_what_to_send(api: Api) -> None:
    answer = await api.http.post("/oauth/token", json={"grant_type": "client_credentials"})
    refused(answer, "invalid_request", "application/x-www-form-urlencoded")


async def test_no_refusal_holds_the_assertion(api: Api) -> None:
    assertion = api.lab.assertion(AGENT, api.clock(), ISSUER, aud="wrong")
    answer = await ask(api, assertion=assertion)
    assert all(part not in answer.text for part in assertion.split("."))


@pytest.mark.parametrize("kind,algorithm", [("OKP", "EdDSA"), ("RSA", "RS256")])
async def test_keys_of_the_other_kinds_work_as_jwk_and_as_pem(api: Api, kind: str, algorithm: str) -> None:
    key = new_key(kind)
    name = f"client-{kind}"
    api.lab.add(name, "lab", ["device:read"], key)
    for as_pem in (False, True):
        if as_pem:
            api.lab.clients[name]["keys"] = [{"kid": kid_of(key), "pem": public_pem(key)}]
            api.lab.write()
        claims = {"iss": name, "sub": name, "aud": ISSUER, "jti": f"{kind}-{as_pem}"}
        claims["exp"] = int(api.clock().timestamp()) + 60  # type: ignore[assignment]
        signed = jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid_of(key)})
        assert (await ask(api, assertion=signed)).status_code == 200


async def test_a_client_changes_its_key_without_a_gap(api: Api) -> None:
    """Both keys in the roster, then the new one alone; the hub is never restarted."""
    api.lab.add("rotating", "lab", ["device:read"])
    old_key, old = api.lab.keys["rotating"], api.lab.clients["rotating"]["keys"]
    api.lab.add("rotating", "lab", ["device:read"])
    new_key_, new = api.lab.keys["rotating"], api.lab.clients["rotating"]["keys"]

    async def status(key: Any) -> int:
        api.lab.keys["rotating"] = key
        return (await ask(api, "rotating")).status_code

    api.lab.clients["rotating"]["keys"] = old + new
    api.lab.write()
    assert [await status(old_key), await status(new_key_)] == [200, 200]
    api.lab.clients["rotating"]["keys"] = new
    api.lab.write()
    assert [await status(old_key), await status(new_key_)] == [401, 200]


async def test_a_roster_that_turns_bad_leaves_the_last_good_one(api: Api) -> None:
    api.lab.roster.write_text("{ this is not JSON")
    try:
        assert (await ask(api, HPC)).status_code == 200
    finally:
        api.lab.write()
