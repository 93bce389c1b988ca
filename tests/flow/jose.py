# SPDX-License-Identifier: Apache-2.0
"""Issuers of JSON Web Tokens, for tests: their keys, key sets and tokens."""

import base64
import json
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    """A key of the issuer."""

    def __init__(self, algorithm, kid, issuer):
        self.algorithm, self.kid, self.issuer = algorithm, kid, issuer
        makers = {
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }
        self.key = makers[algorithm]()

    def jwk(self):
        public = self.key.public_key()
        if self.algorithm == "EdDSA":
            return {"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": b64(public.public_bytes(Encoding.Raw, PublicFormat.Raw))}
        numbers = public.public_numbers()
        if self.algorithm == "ES256":
            return {"kty": "EC", "crv": "P-256", "kid": self.kid, "x": b64(numbers.x.to_bytes(32, "big")), "y": b64(numbers.y.to_bytes(32, "big"))}
        return {"kty": "RSA", "use": "sig", "kid": self.kid, "n": b64(numbers.n.to_bytes(256, "big")), "e": "AQAB"}

    def sign(self, **claims):
        now = time.time()
        everything = {"iss": self.issuer, "aud": "stockade", "sub": "repo:acme/app", "iat": now, "exp": now + 300, **claims}
        head = b64(json.dumps({"alg": self.algorithm, "kid": self.kid}).encode())
        text = f"{head}.{b64(json.dumps(everything).encode())}"
        return f"{text}.{b64(self.signature(text.encode()))}"

    def signature(self, text):
        if self.algorithm == "EdDSA":
            return self.key.sign(text)
        if self.algorithm == "RS256":
            return self.key.sign(text, padding.PKCS1v15(), hashes.SHA256())
        r, s = utils.decode_dss_signature(self.key.sign(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def key_set(*signers):
    return json.dumps({"keys": [s.jwk() for s in signers]})
