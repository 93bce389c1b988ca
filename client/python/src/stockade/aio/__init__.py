# SPDX-License-Identifier: Apache-2.0
r"""Run the code of AI agents in sandboxes, with asyncio.

>>> from stockade import aio
>>> (await aio.run("python3", "-c", "print(6 * 7)")).stdout                         # doctest: +SKIP
'42\n'

The names are those of ``stockade``; values and exceptions are the same classes.
"""

from stockade.aio.approvals import Approval
from stockade.aio.audit import AuditLog
from stockade.aio.batching import Batch, batch
from stockade.aio.client import Client, MessageStream, default_client, info
from stockade.aio.context import Context, run_code
from stockade.aio.findings import Findings
from stockade.aio.forward import Forward
from stockade.aio.keys import ApiKeys, Tokens
from stockade.aio.oneshot import run, start
from stockade.aio.policy import Policy
from stockade.aio.process import Process
from stockade.aio.rules import Rules
from stockade.aio.sandbox import Sandbox
from stockade.aio.telemetry import EventStream
from stockade.aio.transaction import Transaction
from stockade.aio.volumes import Volume
from stockade.approving import approval, narrowed

__all__ = [
    "ApiKeys",
    "Approval",
    "AuditLog",
    "Batch",
    "Client",
    "Context",
    "EventStream",
    "Findings",
    "Forward",
    "MessageStream",
    "Policy",
    "Process",
    "Rules",
    "Sandbox",
    "Tokens",
    "Transaction",
    "Volume",
    "approval",
    "batch",
    "default_client",
    "info",
    "narrowed",
    "run",
    "run_code",
    "start",
]
