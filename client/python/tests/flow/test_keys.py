# SPDX-License-Identifier: Apache-2.0
"""API keys and tokens of a real broker, which root makes and agents use."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import broker as brokers
import stockade
from stockade import aio, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RIGHTS = ["process.run", "process.read", "sandbox.read", "sandbox.write", "system.read"]
ISSUER = "https://ci.example.org"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """It signs JSON Web Tokens with EdDSA."""

    def __init__(self, folder: Path) -> None:
        self._key = ed25519.Ed25519PrivateKey.generate()
        x = b64(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
        jwk = {"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}
        keys = folder / "keys"
        keys.write_text(json.dumps({"keys": [jwk]}))
        keys.chmod(0o644)
        self.config = f"""
issuers:
  - issuer: {ISSUER}
    audience: stockade
    jwks_file: {keys}
    algorithms: [EdDSA]
    token_ttl: 10m
    grants:
      - {{claims: {{sub: "repo:acme/*"}}, tenant: ci, scopes: [{", ".join(RIGHTS)}]}}
"""

    def sign(self, **claims: Any) -> str:
        now = time.time()
        said = {"iss": ISSUER, "aud": "stockade", "sub": "repo:acme/a", "iat": now, "exp": now + 60}
        head = b64(json.dumps({"alg": "EdDSA", "kid": "one"}).encode())
        text = f"{head}.{b64(json.dumps({**said, **claims}).encode())}"
        return f"{text}.{b64(self._key.sign(text.encode()))}"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    folder = tmp_path_factory.mktemp("issuer")
    for parent in (folder, *folder.parents[:3]):  # the broker has an account of its own
        if parent.name.startswith(("issuer", "popen", "pytest")):
            parent.chmod(0o755)
    return Issuer(folder)


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[brokers.Broker]:
    yield from brokers.running(config=brokers.NO_BPF + issuer.config)


def runs(broker: brokers.Broker, token: str) -> str:
    with stockade.Client(broker.tcp, token=token) as client:
        return stockade.run("echo", "yes", client=client).stdout


def test_wrong_arguments_are_refused(root: stockade.Client) -> None:
    with pytest.raises(TypeError, match="list of names"):
        stockade.ApiKeys.create(scopes="process.run", client=root)
    with pytest.raises(ValueError, match="form"):
        stockade.ApiKeys.create(form="jwt", client=root)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ttl"):
        stockade.ApiKeys.create(ttl=0, client=root)
    with pytest.raises(stockade.InvalidArgument):
        stockade.ApiKeys.create(scopes=["no.such"], client=root)
    with pytest.raises(stockade.NotFound):
        stockade.ApiKeys.revoke("nothing", client=root)
    with pytest.raises(TypeError, match="no such caveat"):
        stockade.Tokens.mint(methodz=["ProcessService/Run"], client=root)
    with pytest.raises(TypeError, match="expected a list"):
        stockade.Tokens.mint(network="example.org:443", client=root)
    with pytest.raises(stockade.InvalidArgument):
        stockade.Tokens.revoke("zz", client=root)
    with pytest.raises(ValueError, match="JSON Web Token"):
        stockade.Tokens.exchange("a\nb", client=root)


def test_a_key_is_shown_once_listed_and_revoked(
    broker: brokers.Broker, root: stockade.Client
) -> None:
    made = stockade.ApiKeys.create("for ci", scopes=RIGHTS, tenant="team", ttl="1h", client=root)
    assert made.secret.startswith("stk_")
    assert made.secret not in repr(made)
    assert runs(broker, made.secret) == "yes\n"
    (info,) = stockade.ApiKeys.list(tenant="team", client=root)
    assert info == made.info
    assert (info.label, info.maker, info.revoked) == ("for ci", "uid:0", None)
    assert made.secret.startswith(info.hint)
    assert info.expires is not None
    assert round((info.expires - info.created).total_seconds()) == 3600
    assert stockade.ApiKeys.create(form="e2b", client=root).secret.startswith("e2b_")
    with (
        stockade.Client(broker.tcp, token=made.secret) as client,
        pytest.raises(stockade.PermissionDenied),
    ):
        stockade.ApiKeys.create(client=client)
    stockade.ApiKeys.revoke(info.id, client=root)
    with pytest.raises(stockade.Unauthenticated):
        runs(broker, made.secret)
    (info,) = stockade.ApiKeys.list(tenant="team", client=root)
    assert info.revoked is not None


def test_a_token_is_minted_verified_and_revoked(
    broker: brokers.Broker, root: stockade.Client
) -> None:
    expires = time.time() + 600
    minted = stockade.Tokens.mint(
        RIGHTS, tenant="team", expires=expires, tools=[tokens.Tool("echo", ["*"])], client=root
    )
    assert minted.token not in repr(minted)
    assert (minted.tenant, set(minted.scopes)) == ("team", set(RIGHTS))
    assert minted.expires is not None
    assert abs(minted.expires.timestamp() - expires) < 0.01
    known = stockade.Tokens.signing_keys(client=root)
    assert known.audience == "stockade"
    (key,) = known.keys
    said = tokens.verify(minted.token, key.key)
    assert (said.key_id, said.block_ids) == (key.id, [minted.block_id])
    assert runs(broker, minted.token) == "yes\n"
    with stockade.Client(broker.tcp, token=minted.token) as client:
        with pytest.raises(stockade.PermissionDenied):
            stockade.run("true", client=client)
        with pytest.raises(stockade.PermissionDenied):
            stockade.Tokens.mint(client=client)
    stockade.Tokens.revoke(minted.block_id, client=root)
    with pytest.raises(stockade.Unauthenticated):
        runs(broker, minted.token)


def test_a_json_web_token_is_exchanged(broker: brokers.Broker, issuer: Issuer) -> None:
    with stockade.Client(broker.tcp, token="stk_" + "0" * 40) as client:  # it is not sent
        made = stockade.Tokens.exchange(issuer.sign(), client=client)
        assert (made.tenant, set(made.scopes)) == ("ci", set(RIGHTS))
        assert made.token not in repr(made)
        assert made.expires is not None
        assert 500 < made.expires.timestamp() - time.time() <= 601
        assert runs(broker, made.token) == "yes\n"
        less = stockade.Tokens.exchange(
            issuer.sign(), scopes=["system.read"], ttl="1m", client=client
        )
        assert less.scopes == ("system.read",)
        with pytest.raises(stockade.PermissionDenied):
            runs(broker, less.token)
        with pytest.raises(stockade.PermissionDenied):
            stockade.Tokens.exchange(issuer.sign(), scopes=["key.write"], client=client)
        with pytest.raises(stockade.Unauthenticated, match="expired"):
            stockade.Tokens.exchange(issuer.sign(exp=time.time() - 3600), client=client)
        with pytest.raises(stockade.Unauthenticated):
            client.info()


def test_a_token_file_is_read_with_each_call(
    broker: brokers.Broker, root: stockade.Client, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    with pytest.raises(ValueError, match="one of the two"):
        stockade.Client(broker.tcp, token="a", token_file=path)
    with pytest.raises(stockade.StockadeError, match="No such file"):
        stockade.Client(broker.tcp, token_file=path)
    path.write_text("\n")
    with pytest.raises(stockade.StockadeError, match="it is empty"):
        stockade.Client(broker.tcp, token_file=path)
    path.write_bytes(b"stk_\xff\n")
    with pytest.raises(stockade.StockadeError, match="no token has"):
        stockade.Client(broker.tcp, token_file=str(path))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(stockade.StockadeError, match="no regular file"):
        stockade.Client(broker.tcp, token_file=tmp_path / "fifo")
    first, second = (
        stockade.ApiKeys.create(scopes=RIGHTS, tenant="files", client=root) for _ in range(2)
    )
    path.write_text(first.secret + "\r\nnot this\n")
    with stockade.Client(broker.tcp, token_file=path) as client:
        assert stockade.run("echo", "1", client=client).stdout == "1\n"
        stockade.ApiKeys.revoke(first.info.id, client=root)
        with pytest.raises(stockade.Unauthenticated):
            client.info()
        (tmp_path / "next").write_text(second.secret)
        (tmp_path / "next").rename(path)
        assert stockade.run("echo", "2", client=client).stdout == "2\n"
        path.unlink()
        with pytest.raises(stockade.StockadeError, match="No such file"):
            client.info()


def test_the_variable_does_not_replace_a_token_file(
    broker: brokers.Broker, root: stockade.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOCKADE_TOKEN", "stk_" + "0" * 40)
    path = tmp_path / "token"
    made = stockade.ApiKeys.create(scopes=RIGHTS, tenant="files", client=root)
    path.write_text(made.secret)
    with stockade.Client(broker.tcp, token_file=path) as client:
        assert stockade.run("echo", "a", client=client).stdout == "a\n"


def test_it_is_the_same_with_asyncio(
    broker: brokers.Broker, issuer: Issuer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with aio.Client(broker.ipc) as root:
            made = await aio.ApiKeys.create("aio", scopes=RIGHTS, tenant="aio", client=root)
            listed = [k async for k in aio.ApiKeys.list(tenant="aio", client=root)]
            assert listed == [made.info]
            path = tmp_path / "token"
            path.write_text(made.secret)
            async with aio.Client(broker.tcp, token_file=path) as client:
                assert (await aio.run("echo", "a", client=client)).stdout == "a\n"
            await aio.ApiKeys.revoke(made.info.id, client=root)
            minted = await aio.Tokens.mint(RIGHTS, tenant="aio", client=root)
            assert minted.expires is None
            await aio.Tokens.revoke(minted.block_id, client=root)
            old = (await aio.Tokens.signing_keys(client=root)).keys[-1]
            await aio.Tokens.rotate(overlap="1h", client=root)
            keys = (await aio.Tokens.signing_keys(client=root)).keys
            assert keys[-1].expires is None
            assert [k.expires is not None for k in keys if k.id == old.id] == [True]
        async with aio.Client(broker.tcp) as client:
            got = await aio.Tokens.exchange(issuer.sign(), client=client)
            assert got.tenant == "ci"

    asyncio.run(main())
