# SPDX-License-Identifier: Apache-2.0
"""Capability tokens: the published vectors, and narrowing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stockade import tokens

pytest.importorskip("cryptography")
VECTORS = json.loads(
    (Path(__file__).parents[4] / "tests" / "vectors" / "tokens.json").read_text(encoding="utf-8")
)
KEY = bytes.fromhex(VECTORS["key"])
GOOD = next(t["token"] for t in VECTORS["tokens"] if t["name"] == "three blocks")


@pytest.mark.parametrize("vector", VECTORS["tokens"], ids=lambda v: str(v["name"]))
def test_a_vector_is_accepted_or_refused(vector: dict[str, Any]) -> None:
    if vector["reason"] is None:
        info = tokens.verify(vector["token"], KEY)
        assert (info.tenant, info.scopes, info.sealed, info.block_ids) == (
            vector["tenant"],
            vector["scopes"],
            vector["sealed"],
            vector["block_ids"],
        )
        return
    with pytest.raises(tokens.TokenError) as failed:
        tokens.verify(vector["token"], KEY)
    assert vector["reason"] in ("ANY", failed.value.reason)


def test_a_narrower_token_is_valid_and_says_so() -> None:
    tool = tokens.Tool("git", ("clone", "https://*"))
    narrow = tokens.attenuate(GOOD, expires=2e9, uses=1, tools=[tool], network=[])
    info = tokens.verify(narrow, KEY)
    assert len(info.blocks) == 4
    assert {"uses": 1} in info.blocks[3]
    assert {"network": []} in info.blocks[3]
    assert {"tools": [tool]} in info.blocks[3]


def test_a_sealed_token_cannot_be_narrowed() -> None:
    sealed = tokens.seal(GOOD)
    assert tokens.verify(sealed, KEY).sealed
    with pytest.raises(tokens.TokenError) as failed:
        tokens.attenuate(sealed, uses=1)
    assert failed.value.reason == "TOKEN_SEALED"


def test_each_changed_byte_is_refused() -> None:
    for at in range(5, len(GOOD), 3):
        other = "A" if GOOD[at] != "A" else "B"
        with pytest.raises(tokens.TokenError):
            tokens.verify(GOOD[:at] + other + GOOD[at + 1 :], KEY)
