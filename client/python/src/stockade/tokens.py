# SPDX-License-Identifier: Apache-2.0
"""Capability tokens: reading and narrowing them, without the broker.

A token is sent like an API key (``Client(token=...)`` or ``STOCKADE_TOKEN``). Whoever has one can
append a block with further caveats; nobody can remove or change one. Narrowing and verifying need
the package ``cryptography`` (Ed25519); reading needs nothing.

>>> token = os.environ["STOCKADE_TOKEN"]                               # doctest: +SKIP
>>> narrow = attenuate(token, expires=time.time() + 300, uses=1)       # doctest: +SKIP
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from google.protobuf.message import DecodeError

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
except ImportError:
    _HAS_ED25519 = False
else:
    _HAS_ED25519 = True

from stockade.errors import StockadeError
from stockade.v1 import token_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "stkt_"
_BLOCK = b"stockade token block\0"
_SEAL = b"stockade token sealed\0"
_TEXT_MAX = 5 + 4000
_BLOCKS_MAX = 16


class TokenError(StockadeError):
    """A text is no valid token, or cannot be narrowed as requested. ``reason`` says why."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"the token is not valid: {text}")
        #: ``TOKEN_FORM``, ``TOKEN_WIDER``, ``TOKEN_SIGNATURE``, ``TOKEN_SEALED``
        self.reason = reason


@dataclass(frozen=True)
class Tool:
    """A program that jobs may run, and patterns for its arguments (``*``: any text)."""

    program: str
    args: Sequence[str] = ()
    more_args: bool = False
    env: Sequence[str] = ()


@dataclass(frozen=True)
class TokenInfo:
    """What a token says. ``blocks`` has the caveats of each block, as dicts."""

    tenant: str
    scopes: list[str]
    key_id: str
    sealed: bool
    #: the ids of the blocks, by which they can be revoked
    block_ids: list[str] = field(default_factory=list)
    blocks: list[list[Mapping[str, Any]]] = field(default_factory=list)


def _ed25519() -> Any:
    if not _HAS_ED25519:
        raise StockadeError("narrowing and verifying need: pip install cryptography")
    return ed25519


def _canonical(kind: Any, data: bytes) -> Any:
    """Parse a message, and refuse one that has unknown fields or another form than ours."""
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise TokenError("TOKEN_FORM", "it is cut or damaged") from None
    message.DiscardUnknownFields()
    if message.SerializeToString(deterministic=True) != data:
        raise TokenError("TOKEN_FORM", "it has a field or a caveat that is not known here")
    return message


def _decode(text: str) -> bytes:
    body = text[len(PREFIX) :]
    if not text.startswith(PREFIX) or len(text) > _TEXT_MAX:
        raise TokenError("TOKEN_FORM", "it does not begin with stkt_, or is too long")
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenError("TOKEN_FORM", "it has characters that no token has") from None
    if _encode(data) != text:
        raise TokenError("TOKEN_FORM", "it has characters that no token has")
    return data


def _encode(data: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _check_block(block: Any, first: bool, expires: bool) -> None:
    if first and not (block.tenant and block.scopes):
        raise TokenError("TOKEN_FORM", "its first block names no tenant or no scopes")
    if not first and (block.tenant or block.scopes):
        raise TokenError("TOKEN_WIDER", "a later block names a tenant or scopes")
    for caveat in block.caveats:
        kind = caveat.WhichOneof("caveat")
        if kind is None:
            raise TokenError("TOKEN_FORM", "it has a caveat that is not known here")
        if kind == "uses" and not expires:
            raise TokenError("TOKEN_FORM", "a number of uses needs an expiry")


def _read(text: str) -> tuple[Any, list[Any]]:
    token = _canonical(token_pb2.Token, _decode(text))
    if not 1 <= len(token.blocks) <= _BLOCKS_MAX:
        raise TokenError("TOKEN_FORM", "it has no block, or more than 16")
    if len(token.key_id) != 8 or len(token.proof) not in (32, 64):
        raise TokenError("TOKEN_FORM", "the id of its key, or its proof, has a wrong length")
    blocks = []
    expires = False
    for index, signed in enumerate(token.blocks):
        if len(signed.next_key) != 32 or len(signed.signature) != 64:
            raise TokenError("TOKEN_FORM", "a key or a signature has a wrong length")
        block = _canonical(token_pb2.TokenBlock, signed.block)
        expires = expires or any(c.WhichOneof("caveat") == "expires_ms" for c in block.caveats)
        _check_block(block, index == 0, expires)
        blocks.append(block)
    return token, blocks


def _hash(data: bytes, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=64).digest()[:size]


def _signed(token: Any, index: int) -> bytes:
    before = token.key_id if index == 0 else token.blocks[index - 1].signature
    block = token.blocks[index]
    return bytes(_BLOCK + index.to_bytes(4, "big") + before + block.next_key + block.block)


def _public(seed: bytes) -> bytes:
    key = _ed25519().Ed25519PrivateKey.from_private_bytes(seed).public_key()
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return bytes(key.public_bytes(*raw))


def _sign(seed: bytes, data: bytes) -> bytes:
    return bytes(_ed25519().Ed25519PrivateKey.from_private_bytes(seed).sign(data))


def _append(token: Any, block: Any, seed: bytes, next_seed: bytes) -> str:
    signed = token.blocks.add()
    signed.block = block.SerializeToString(deterministic=True)
    signed.next_key = _public(next_seed)
    signed.signature = _sign(seed, _signed(token, len(token.blocks) - 1))
    token.proof = next_seed
    text = _encode(token.SerializeToString(deterministic=True))
    _read(text)
    return text


def _caveats(
    block: Any,
    words: Mapping[str, Optional[Sequence[str]]],
    numbers: Mapping[str, Optional[int]],
    tools: Optional[Sequence[Tool]],
    limits: Optional[Mapping[str, int]],
) -> None:
    for name, texts in words.items():
        if texts is not None:
            getattr(block.caveats.add(), name).SetInParent()
            getattr(block.caveats[-1], name).words.extend(texts)
    if tools is not None:
        made = block.caveats.add().tools
        made.SetInParent()
        for tool in tools:
            made.tools.add(
                program=tool.program, args=tool.args, more_args=tool.more_args, env=tool.env
            )
    if limits is not None:
        block.caveats.add().limits.CopyFrom(token_pb2.CaveatLimits(**limits))
    for name, number in numbers.items():
        if number is not None:
            setattr(block.caveats.add(), name, number)


_WORDS = ("scopes", "methods", "sandboxes", "templates", "network", "audience")

#: The arguments of ``attenuate`` that any block may have.
CAVEATS = (*_WORDS[1:], "tools", "limits", "uses", "not_before", "expires")


def add_caveats(block: Any, given: Mapping[str, Any]) -> None:
    """Add the caveats of ``attenuate`` to a message that has a list of them."""
    lists = {name: given.get(name) for name in _WORDS}
    for name, texts in lists.items():
        if isinstance(texts, str):
            raise TypeError(f"{name}={texts!r}: expected a list")
    numbers = {
        "uses": given.get("uses"),
        "not_before_ms": _ms(given.get("not_before")),
        "expires_ms": _ms(given.get("expires")),
    }
    _caveats(block, lists, numbers, given.get("tools"), given.get("limits"))


def _ms(seconds: Optional[float]) -> Optional[int]:
    return None if seconds is None else int(seconds * 1000)


def time_of(seconds: float) -> datetime.datetime:
    """Return a time in UTC of seconds since 1970."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def attenuate(
    token: str,
    *,
    scopes: Optional[Sequence[str]] = None,
    methods: Optional[Sequence[str]] = None,
    sandboxes: Optional[Sequence[str]] = None,
    templates: Optional[Sequence[str]] = None,
    network: Optional[Sequence[str]] = None,
    audience: Optional[Sequence[str]] = None,
    tools: Optional[Sequence[Tool]] = None,
    limits: Optional[Mapping[str, int]] = None,
    uses: Optional[int] = None,
    not_before: Optional[float] = None,
    expires: Optional[float] = None,
) -> str:
    """Return a narrower token: all caveats of all blocks must hold.

    ``scopes``      rights that stay, such as ``["process.run"]``
    ``methods``     such as ``["ProcessService/Run", "FileService/*"]``
    ``sandboxes``   ids or names of sandboxes that calls must concern
    ``templates``   of sandboxes that calls may make or concern
    ``network``     destinations such as ``"example.org:443"``; ``[]``: no network
    ``audience``    names of brokers
    ``tools``       programs that jobs may run
    ``limits``      the highest, such as ``{"memory_bytes": 1 << 28}``
    ``uses``        number of calls; needs ``expires`` here or in an earlier block
    ``not_before``  seconds since 1970 from which it is valid
    ``expires``     seconds since 1970 until which it is valid

    Raises ``TokenError``.
    """
    parsed, _ = _read(token)
    if len(parsed.proof) != 32:
        raise TokenError("TOKEN_SEALED", "it is sealed: nobody can narrow it")
    block = token_pb2.TokenBlock()
    given = {
        "scopes": scopes,
        "methods": methods,
        "sandboxes": sandboxes,
        "templates": templates,
        "network": network,
        "audience": audience,
        "tools": tools,
        "limits": limits,
        "uses": uses,
        "not_before": not_before,
        "expires": expires,
    }
    add_caveats(block, given)
    return _append(parsed, block, parsed.proof, secrets.token_bytes(32))


def seal(token: str) -> str:
    """Return the token in a form that nobody can narrow. Raises ``TokenError``."""
    parsed, _ = _read(token)
    if len(parsed.proof) != 32:
        raise TokenError("TOKEN_SEALED", "it is sealed already")
    parsed.proof = _sign(parsed.proof, _SEAL + parsed.blocks[-1].signature)
    return _encode(parsed.SerializeToString(deterministic=True))


def inspect(token: str) -> TokenInfo:
    """Return what a token says, without checking its signatures. Raises ``TokenError``."""
    parsed, blocks = _read(token)
    return TokenInfo(
        tenant=blocks[0].tenant,
        scopes=list(blocks[0].scopes),
        key_id=parsed.key_id.hex(),
        sealed=len(parsed.proof) == 64,
        block_ids=[_hash(b.signature, 16).hex() for b in parsed.blocks],
        blocks=[[_plain(c) for c in b.caveats] for b in blocks],
    )


def _plain(caveat: Any) -> Mapping[str, Any]:
    kind = caveat.WhichOneof("caveat")
    value = getattr(caveat, kind)
    if hasattr(value, "words"):
        return {kind: list(value.words)}
    if kind == "tools":
        return {
            kind: [Tool(t.program, tuple(t.args), t.more_args, tuple(t.env)) for t in value.tools]
        }
    if kind == "limits":
        return {kind: {f.name: n for f, n in value.ListFields()}}
    return {kind: value}


def verify(token: str, key: bytes) -> TokenInfo:
    """Check all signatures with the public key of the broker that made the token.

    ``stockade token keys`` shows the keys. Time and other caveats are not checked.
    Raises ``TokenError``.
    """
    parsed, _ = _read(token)
    made = _ed25519().Ed25519PublicKey
    if _hash(key, 8) != parsed.key_id:
        raise TokenError("TOKEN_SIGNATURE", "another key has signed it")
    signer = key
    try:
        for index, block in enumerate(parsed.blocks):
            made.from_public_bytes(signer).verify(block.signature, _signed(parsed, index))
            signer = block.next_key
        if len(parsed.proof) == 64:
            sealed = _SEAL + parsed.blocks[-1].signature
            made.from_public_bytes(signer).verify(parsed.proof, sealed)
    except (InvalidSignature, ValueError):
        raise TokenError("TOKEN_SIGNATURE", "a signature is wrong") from None
    if len(parsed.proof) == 32 and not secrets.compare_digest(_public(parsed.proof), signer):
        raise TokenError("TOKEN_SIGNATURE", "the proof is wrong")
    return inspect(token)
