#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokens.json: capability tokens that every implementation must accept, or refuse for the same reason.

    make_tokens.py > tokens.json          needs the Python package of this tree, and cryptography

Seeds are fixed, so the file is the same each time.
"""

import hashlib
import json
import sys

from stockade import tokens
from stockade.v1 import token_pb2


def seed(name):
    return hashlib.sha256(b"stockade test vector " + name.encode()).digest()


ROOT = seed("root")


def chain(*blocks, key_id=None):
    """A token of these blocks, each a function that fills a TokenBlock."""
    token = token_pb2.Token(key_id=key_id or tokens._hash(tokens._public(ROOT), 8))
    signer = ROOT
    for number, fill in enumerate(blocks):
        block = token_pb2.TokenBlock()
        fill(block)
        signed = token.blocks.add(block=block.SerializeToString(deterministic=True))
        following = seed(f"block {number}")
        signed.next_key = tokens._public(following)
        signed.signature = tokens._sign(signer, tokens._signed(token, number))
        signer = following
    token.proof = signer
    return token


def first(block):
    block.tenant = "team-a"
    block.scopes.extend(["sandbox.read", "sandbox.write", "process.run"])


def with_everything(block):
    words = {"scopes": ["process.run"], "methods": ["ProcessService/*"], "sandboxes": ["box"], "templates": ["default"],
             "network": ["example.org:443"], "audience": ["stockade"]}
    tool = tokens.Tool("git", ["clone", "https://*"], True, ["HOME"])
    tokens._caveats(block, words, {"uses": 7, "not_before_ms": 1000, "expires_ms": 4102444800000}, [tool],
                    {"memory_bytes": 1 << 28, "wall_ms": 5000})


def expires(block):
    block.caveats.add().expires_ms = 4102444800000


def uses(block):
    block.caveats.add().uses = 3


def other_tenant(block):
    block.tenant = "team-b"


def more_scopes(block):
    block.scopes.append("file.write")


def no_network(block):
    block.caveats.add().network.SetInParent()


def empty_caveat(block):
    block.caveats.add()


def text(token):
    return tokens._encode(token.SerializeToString(deterministic=True))


def changed(token, change):
    change(token)
    return text(token)


def swap(token):
    one, two = token_pb2.SignedBlock(), token_pb2.SignedBlock()
    one.CopyFrom(token.blocks[1])
    two.CopyFrom(token.blocks[2])
    token.blocks[1].CopyFrom(two)
    token.blocks[2].CopyFrom(one)


def drop(index):
    def change(token):
        del token.blocks[index]
    return change


def flip(token):
    token.blocks[0].block = token.blocks[0].block[:-1] + bytes([token.blocks[0].block[-1] ^ 1])


def unknown_caveat(token):
    """Field 99 of a caveat, correctly signed."""
    raw = token.blocks[1].block[:0] + bytes([0x1A, 3, 0x98, 0x06, 0x01])
    token.blocks[1].block = raw
    token.blocks[1].signature = tokens._sign(seed("block 0"), tokens._signed(token, 1))


def other_proof(token):
    token.proof = seed("another")


def other_key(token):
    token.key_id = bytes(8)


def sealed(token):
    token.proof = tokens._sign(token.proof, tokens._SEAL + token.blocks[-1].signature)


def half_seal(token):
    sealed(token)
    token.proof = token.proof[:32]


def bad_seal(token):
    sealed(token)
    token.proof = token.proof[:-1] + bytes([token.proof[-1] ^ 1])


def cases():
    three = (first, with_everything, expires)
    good = text(chain(*three))
    yield "one block", text(chain(first)), None
    yield "three blocks", good, None
    yield "no network", text(chain(first, no_network)), None
    yield "an empty block", text(chain(first, lambda block: None)), None
    yield "uses after an expiry", text(chain(first, expires, uses)), None
    yield "sixteen blocks", text(chain(first, *[lambda block: None] * 15)), None
    yield "sealed", changed(chain(*three), sealed), None
    yield "empty", "", "TOKEN_FORM"
    yield "prefix alone", "stkt_", "TOKEN_FORM"
    yield "padding", good + "=", "TOKEN_FORM"
    yield "truncated", good[:-8], "TOKEN_FORM"
    yield "a blank", good[:20] + " " + good[20:], "TOKEN_FORM"
    yield "unknown caveat", changed(chain(first, expires), unknown_caveat), "TOKEN_FORM"
    yield "empty caveat", text(chain(first, empty_caveat)), "TOKEN_FORM"
    yield "uses without an expiry", text(chain(first, uses)), "TOKEN_FORM"
    yield "no tenant", text(chain(expires)), "TOKEN_FORM"
    yield "seventeen blocks", text(chain(first, *[lambda block: None] * 16)), "TOKEN_FORM"
    yield "a later block names a tenant", text(chain(first, other_tenant)), "TOKEN_WIDER"
    yield "a later block names scopes", text(chain(first, more_scopes)), "TOKEN_WIDER"
    yield "a bit of a block is flipped", changed(chain(*three), flip), "ANY"
    yield "reordered blocks", changed(chain(*three), swap), "TOKEN_SIGNATURE"
    yield "the last block is dropped", changed(chain(*three), drop(2)), "TOKEN_SIGNATURE"
    yield "the middle block is dropped", changed(chain(*three), drop(1)), "TOKEN_SIGNATURE"
    yield "another proof", changed(chain(*three), other_proof), "TOKEN_SIGNATURE"
    yield "another key", changed(chain(*three), other_key), "TOKEN_SIGNATURE"
    yield "half of a seal", changed(chain(*three), half_seal), "TOKEN_SIGNATURE"
    yield "a bit of the seal is flipped", changed(chain(*three), bad_seal), "TOKEN_SIGNATURE"


def main():
    made = {"about": "Tokens as in proto/stockade/v1/token.proto; reason null: valid, ANY: refused for any reason",
            "seed": ROOT.hex(), "key": tokens._public(ROOT).hex(), "tokens": []}
    for name, token, reason in cases():
        one = {"name": name, "token": token, "reason": reason}
        if reason is None:
            info = tokens.inspect(token)
            one.update(tenant=info.tenant, scopes=info.scopes, sealed=info.sealed, block_ids=info.block_ids)
        made["tokens"].append(one)
    json.dump(made, sys.stdout, indent=1)
    print()


main()
