# SPDX-License-Identifier: Apache-2.0
"""Simulations, for threads and asyncio alike (``both``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from stockade.filing import change
from stockade.v1 import simulation_pb2

if TYPE_CHECKING:
    from stockade.filing import Change

#: Whether to simulate a job; or what destinations say meanwhile: ``{"example.com:80": b"..."}``.
Simulate = Union[bool, Mapping[str, bytes]]


@dataclass(frozen=True)
class SimulatedConnection:
    """What a simulated job would have sent to one destination."""

    #: Such as ``example.com:443``; of a query the name.
    destination: str
    #: ``tcp``, ``udp``, or ``dns``: a query for a name.
    protocol: str
    #: The rule of the network policy that allows it, from 1; 0: its mode does.
    rule: int
    #: The first bytes, at most 256.
    data: bytes
    #: Number of bytes that it sent.
    out_bytes: int
    #: Number of bytes of the answer that it got.
    in_bytes: int


@dataclass(frozen=True)
class SimulatedRefusal:
    """What would be refused."""

    #: ``call``: the whole call, by a policy of the host; otherwise ``connect``, ``dns``, ...
    operation: str
    #: The destination, or the method.
    destination: str
    #: ``tcp``, ``udp``, ...; empty: none.
    protocol: str
    #: Why.
    reason: str
    #: The rule; empty: no rule allows it.
    rule: str
    #: People would be asked.
    would_ask: bool
    #: Number of equal refusals.
    count: int


@dataclass(frozen=True)
class Simulation:
    """What a simulated job did. Lists hold the first ones; the totals count all."""

    #: The job ran. False: ``refused`` says why it would not.
    executed: bool
    #: The files that it changed, at most 100, sorted by path.
    changes: tuple[Change, ...]
    #: There are more changes than these.
    more: bool
    #: Why the changes are not known; empty: they are.
    unknown: str
    #: What it would have sent, at most 64.
    sent: tuple[SimulatedConnection, ...]
    #: Number of connections and queries.
    sent_total: int
    #: There may be more connections than ``sent_total``.
    sent_lost: bool
    #: What was refused, or would be.
    refused: tuple[SimulatedRefusal, ...]
    #: Number of refusals.
    refused_total: int
    #: What the simulation could not show.
    not_included: tuple[str, ...]


def set_simulate(request: Any, simulate: Simulate) -> None:
    """Set how a job runs. ``TypeError`` names what is wrong."""
    if isinstance(simulate, Mapping):
        for destination, reply in simulate.items():
            request.answers.add(destination=destination, reply=reply)
    elif not isinstance(simulate, bool):
        raise TypeError(f"simulate={simulate!r}: expected True, False or a mapping to bytes")
    if simulate is not False:
        request.mode = simulation_pb2.JOB_MODE_SIMULATE


def simulation(message: simulation_pb2.SimulationOutcome) -> Simulation:
    """Return what the last message of a job says about its simulation."""
    return Simulation(
        executed=message.executed,
        changes=tuple(change(one) for one in message.changes),
        more=message.more,
        unknown=message.unknown,
        sent=tuple(
            SimulatedConnection(s.destination, s.protocol, s.rule, s.data, s.out_bytes, s.in_bytes)
            for s in message.sent
        ),
        sent_total=message.sent_total,
        sent_lost=message.sent_lost,
        refused=tuple(
            SimulatedRefusal(
                r.operation, r.destination, r.protocol, r.reason, r.rule, r.would_ask, r.count
            )
            for r in message.refused
        ),
        refused_total=message.refused_total,
        not_included=tuple(message.not_included),
    )
