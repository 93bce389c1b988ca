# SPDX-License-Identifier: Apache-2.0
"""API keys and tokens: credentials that the broker makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from stockade import keys_of as shared
from stockade.both import each, now
from stockade.client import Client, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stockade.keys_of import KeyForm, KeyInfo, NewKey, NewToken, SigningKeys
    from stockade.limits import Seconds


class ApiKeys:
    """API keys: texts that clients send as their credential.

    >>> key = ApiKeys.create("ci", scopes=["process.run"], ttl="30d")           # doctest: +SKIP
    >>> client = Client(token=key.secret)                                       # doctest: +SKIP
    >>> ApiKeys.revoke(key.info.id)                                             # doctest: +SKIP
    """

    @classmethod
    def create(
        cls,
        label: str = "",
        *,
        scopes: Sequence[str] = (),
        tenant: str = "",
        form: KeyForm = "stk",
        ttl: Optional[Seconds] = None,
        client: Optional[Client] = None,
    ) -> NewKey:
        """Make a key. Its ``secret`` is shown this once.

        ``label``   what it is for, in a few words
        ``scopes``  its rights, such as ``["process.run"]``; none: those of the caller, without
                    those of operators and those to make further credentials
        ``tenant``  another tenant, which needs an operator
        ``form``    ``"e2b"``: for clients that check the form of E2B's keys
        ``ttl``     it expires after this time, such as ``"30d"``; None: never

        Raises ``PermissionDenied`` (a right that the caller does not have) and
        ``ResourceExhausted`` (too many keys).
        """
        return now(shared.create(chosen(client), label, scopes, tenant, form, ttl))

    @classmethod
    def list(cls, *, tenant: str = "", client: Optional[Client] = None) -> Iterator[KeyInfo]:
        """Iterate over keys, oldest first, expired and revoked ones included.

        ``tenant``  another tenant, or ``"*"`` for all, which needs an operator
        """
        return each(shared.keys(chosen(client), tenant))

    @classmethod
    def revoke(cls, id: str, *, client: Optional[Client] = None) -> None:  # noqa: A002
        """Revoke a key for ever, by ``KeyInfo.id``. Raises ``NotFound``."""
        now(shared.revoke(chosen(client), id))


class Tokens:
    """Capability tokens that the broker makes; ``tokens`` reads and narrows them offline.

    >>> minted = Tokens.mint(["process.run"], expires=time.time() + 300)        # doctest: +SKIP
    >>> client = Client(token=Tokens.exchange(jwt).token)                       # doctest: +SKIP
    """

    @classmethod
    def mint(
        cls,
        scopes: Sequence[str] = (),
        *,
        tenant: str = "",
        client: Optional[Client] = None,
        **caveats: Any,
    ) -> NewToken:
        """Make a token with one block.

        ``scopes``   its rights, such as ``["process.run"]``; none: those of the caller, without
                     those of operators and those to make further credentials
        ``tenant``   another tenant, which needs an operator
        ``caveats``  what must hold for each call: the arguments of ``tokens.attenuate``

        Raises ``PermissionDenied``: the caller does not have the right, or has a token itself.
        """
        return now(shared.mint(chosen(client), scopes, tenant, caveats))

    @classmethod
    def exchange(
        cls,
        jwt: str,
        *,
        scopes: Sequence[str] = (),
        ttl: Optional[Seconds] = None,
        client: Optional[Client] = None,
        **caveats: Any,
    ) -> NewToken:
        """Exchange a JSON Web Token of an issuer that the broker knows for a token.

        ``jwt``      sent in place of the client's own credential
        ``scopes``   rights; none: all that the issuer's grant gives
        ``ttl``      the token expires after this time; None: as late as the broker allows
        ``caveats``  what must hold for each call: the arguments of ``tokens.attenuate``

        Raises ``Unauthenticated`` (``reason`` says why) and ``PermissionDenied`` (a right that is
        not granted).
        """
        return now(shared.exchange(chosen(client), jwt, scopes, ttl, caveats))

    @classmethod
    def revoke(cls, block_id: str, *, client: Optional[Client] = None) -> None:
        """Revoke a block for ever, and with it every token that has it.

        ``block_id``  ``NewToken.block_id``, or one of ``tokens.TokenInfo.block_ids``
        """
        now(shared.revoke_token(chosen(client), block_id))

    @classmethod
    def signing_keys(cls, *, client: Optional[Client] = None) -> SigningKeys:
        """Return the public keys of the broker, with which anyone can verify a token offline."""
        return now(shared.signing_keys(chosen(client)))

    @classmethod
    def rotate(cls, *, overlap: Optional[Seconds] = None, client: Optional[Client] = None) -> None:
        """Sign with a new key from now on, which needs an operator.

        ``overlap``  tokens of the key before stay valid for so long; None: not at all
        """
        now(shared.rotate(chosen(client), overlap))
