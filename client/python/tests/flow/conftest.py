# SPDX-License-Identifier: Apache-2.0
"""One broker for all tests that do no harm to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import broker as brokers
from stockade import Client, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker() -> Iterator[brokers.Broker]:
    why = brokers.why_not()
    if why:
        pytest.skip(why)
    with brokers.Broker() as started:
        yield started


@pytest.fixture
def own_broker() -> Iterator[brokers.Broker]:
    """A broker that the test may end."""
    why = brokers.why_not()
    if why:
        pytest.skip(why)
    with brokers.Broker() as started:
        yield started


@pytest.fixture
def client(broker: brokers.Broker) -> Iterator[Client]:
    with Client(broker.ipc) as made:
        yield made


@pytest.fixture
def sandbox(client: Client) -> Iterator[Sandbox]:
    with Sandbox.create(ttl=120, client=client) as made:
        yield made
