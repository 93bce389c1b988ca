# SPDX-License-Identifier: Apache-2.0
"""One broker for all tests that do no harm to it, and its clients, also of a file's own broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import broker as brokers
from stockade import Client, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker() -> Iterator[brokers.Broker]:
    yield from brokers.running()


@pytest.fixture
def own_broker() -> Iterator[brokers.Broker]:
    """A broker that the test may end, without BPF programs: loading them is most of a start."""
    yield from brokers.running(config=brokers.NO_BPF)


@pytest.fixture
def client(broker: brokers.Broker) -> Iterator[Client]:
    with Client(broker.ipc) as made:
        yield made


@pytest.fixture
def root(broker: brokers.Broker) -> Iterator[Client]:
    """The user root."""
    with Client(broker.ipc) as made:
        yield made


@pytest.fixture
def agent(broker: brokers.Broker) -> Iterator[Client]:
    """The tenant tcp, which is no operator."""
    with Client(broker.tcp) as made:
        yield made


@pytest.fixture
def sandbox(client: Client) -> Iterator[Sandbox]:
    with Sandbox.create(ttl=120, client=client) as made:
        yield made
