# SPDX-License-Identifier: Apache-2.0
"""API keys and tokens that the broker makes, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from stockade import methods, tokens
from stockade.fields import made
from stockade.limits import Seconds, lifetime_ms
from stockade.requests import moment
from stockade.v1 import access_service_pb2

if TYPE_CHECKING:
    import datetime
    from collections.abc import AsyncIterator, Mapping, Sequence

    from google.protobuf.message import Message

    from stockade.calls import Caller

KeyForm = Literal["stk", "e2b"]

_FORMS: dict[KeyForm, access_service_pb2.KeyForm] = {
    "stk": access_service_pb2.KEY_FORM_STK,
    "e2b": access_service_pb2.KEY_FORM_E2B,
}


@dataclass(frozen=True)
class KeyInfo:
    """An API key, without its secret."""

    #: Names the key; not secret.
    id: str
    #: Whose objects it may see and make.
    tenant: str
    #: What it is for.
    label: str
    #: The rights that it has, such as ``sandbox.read``.
    scopes: tuple[str, ...]
    #: How the key begins, to recognize it: ``stk_1a2b``.
    hint: str
    #: When it was made, in UTC.
    created: datetime.datetime
    #: The tenant that made it.
    maker: str
    #: It is refused from then on; None: it does not expire.
    expires: Optional[datetime.datetime]
    #: When it was revoked; None: it was not.
    revoked: Optional[datetime.datetime]


@dataclass(frozen=True)
class NewKey:
    """An API key that was made just now."""

    #: The key itself: keep it, it cannot be shown again. ``repr`` leaves it out.
    secret: str = field(repr=False)
    #: What ``ApiKeys.list`` shows of it.
    info: KeyInfo


@dataclass(frozen=True)
class NewToken:
    """A token that was made just now."""

    #: The token itself. ``repr`` leaves it out.
    token: str = field(repr=False)
    #: Names its block: ``Tokens.revoke`` takes it.
    block_id: str
    #: Whose objects it may see and make.
    tenant: str
    #: The rights that it has.
    scopes: tuple[str, ...]
    #: When it expires, in UTC; None: only the caveats say.
    expires: Optional[datetime.datetime]


@dataclass(frozen=True)
class SigningKey:
    """A key of the broker that signs tokens, or did."""

    #: As in ``tokens.TokenInfo.key_id``: 16 hex digits.
    id: str
    #: Its public half (Ed25519), for ``tokens.verify``: 32 bytes.
    key: bytes
    #: When it was made, in UTC.
    created: datetime.datetime
    #: Its tokens are refused from then on; None: it signs.
    expires: Optional[datetime.datetime]


@dataclass(frozen=True)
class SigningKeys:
    """The public keys of the broker."""

    #: The one that signs last.
    keys: tuple[SigningKey, ...]
    #: The name of the broker in caveats of an audience.
    audience: str


def _when(message: Message, name: str) -> Optional[datetime.datetime]:
    return moment(getattr(message, name)) if message.HasField(name) else None


def key_info(message: access_service_pb2.ApiKey) -> KeyInfo:
    """Return what a message says about a key."""
    return KeyInfo(
        id=message.id,
        tenant=message.tenant,
        label=message.label,
        scopes=tuple(message.scopes),
        hint=message.hint,
        created=moment(message.create_time),
        maker=message.maker,
        expires=_when(message, "expire_time"),
        revoked=_when(message, "revoke_time"),
    )


def _names(what: str, values: Sequence[str]) -> Sequence[str]:
    if isinstance(values, str):
        raise TypeError(f"{what}={values!r}: expected a list of names")
    return values


async def create(
    client: Caller,
    label: str,
    scopes: Sequence[str],
    tenant: str,
    form: KeyForm,
    ttl: Optional[Seconds],
) -> NewKey:
    """Make a key."""
    if form not in _FORMS:
        raise ValueError(f"form={form!r}: not one of {', '.join(_FORMS)}")
    request = made(
        access_service_pb2.KeyServiceCreateRequest,
        tenant=tenant,
        label=label,
        scopes=_names("scopes", scopes),
        form=_FORMS[form],
        ttl_ms=lifetime_ms(ttl),
    )
    answer = await client._call(methods.CREATE_KEY, request)
    return NewKey(answer.secret, key_info(answer.key))


async def keys(client: Caller, tenant: str) -> AsyncIterator[KeyInfo]:
    """Yield keys."""
    request = made(access_service_pb2.KeyServiceListRequest, tenant=tenant)
    async for page in client._pages(methods.LIST_KEYS, request):
        for message in page.keys:
            yield key_info(message)


async def revoke(client: Caller, id_: str) -> None:
    """Revoke a key."""
    await client._call(methods.REVOKE_KEY, made(access_service_pb2.KeyServiceRevokeRequest, id=id_))


def _narrowed(
    request: Union[access_service_pb2.MintRequest, access_service_pb2.ExchangeRequest],
    caveats: Mapping[str, Any],
) -> None:
    known = tokens.CAVEATS
    for name in caveats:
        if name not in known:
            raise TypeError(f"{name}: no such caveat; they are {', '.join(known)}")
    tokens.add_caveats(request, caveats)


async def mint(
    client: Caller, scopes: Sequence[str], tenant: str, caveats: Mapping[str, Any]
) -> NewToken:
    """Make a token."""
    request = made(access_service_pb2.MintRequest, tenant=tenant, scopes=_names("scopes", scopes))
    _narrowed(request, caveats)
    answer = await client._call(methods.MINT, request)
    said = tokens.inspect(answer.token)
    expires = caveats.get("expires")
    return NewToken(
        token=answer.token,
        block_id=answer.block_id,
        tenant=said.tenant,
        scopes=tuple(said.scopes),
        expires=None if expires is None else tokens.time_of(expires),
    )


async def exchange(
    client: Caller,
    jwt: str,
    scopes: Sequence[str],
    ttl: Optional[Seconds],
    caveats: Mapping[str, Any],
) -> NewToken:
    """Exchange a JSON Web Token for a token."""
    if not jwt.isascii() or not jwt.isprintable() or not jwt:
        raise ValueError("jwt: not the text of a JSON Web Token")
    request = made(
        access_service_pb2.ExchangeRequest, scopes=_names("scopes", scopes), ttl_ms=lifetime_ms(ttl)
    )
    _narrowed(request, caveats)
    credential = [("authorization", f"Bearer {jwt}")]
    answer = await client._call(methods.EXCHANGE, request, metadata=credential)
    return NewToken(
        token=answer.token,
        block_id=answer.block_id,
        tenant=answer.tenant,
        scopes=tuple(answer.scopes),
        expires=_when(answer, "expire_time"),
    )


async def revoke_token(client: Caller, block_id: str) -> None:
    """Revoke a block."""
    request = made(access_service_pb2.TokenServiceRevokeRequest, block_id=block_id)
    await client._call(methods.REVOKE_TOKEN, request)


async def signing_keys(client: Caller) -> SigningKeys:
    """Return the public keys of the broker."""
    request = access_service_pb2.ListSigningKeysRequest()
    listed = await client._call(methods.LIST_SIGNING_KEYS, request)
    keys_ = (
        SigningKey(k.id.hex(), k.key, moment(k.create_time), _when(k, "expire_time"))
        for k in listed.keys
    )
    return SigningKeys(tuple(keys_), listed.audience)


async def rotate(client: Caller, overlap: Optional[Seconds]) -> None:
    """Sign with a new key."""
    request = made(
        access_service_pb2.RotateSigningKeyRequest, overlap_ms=lifetime_ms(overlap, "overlap")
    )
    await client._call(methods.ROTATE_SIGNING_KEY, request)
