# SPDX-License-Identifier: Apache-2.0
r"""Run the code of AI agents in sandboxes.

>>> import stockade
>>> stockade.run("python3", "-c", "print(6 * 7)").stdout                            # doctest: +SKIP
'42\n'

``run`` and ``start`` use a fresh sandbox for one command; ``Sandbox`` is a sandbox that you keep.
``stockade.aio`` has the same names for asyncio. The environment variables ``STOCKADE_ADDRESS`` and
``STOCKADE_TOKEN`` set the address of the broker and a token.
"""

from stockade.approvals import Approval
from stockade.approvals_of import ApprovalInfo, ApprovalVote
from stockade.approving import approval, narrowed
from stockade.audit import AuditLog
from stockade.audit_of import AuditRecord
from stockade.batches import BatchJob, BatchResult, BatchSource
from stockade.batching import Batch, batch
from stockade.changing import TransactionInfo, TransactionOutcome, TransactionPolicy
from stockade.client import Client, MessageStream, default_client, info
from stockade.code import (
    CodeFailure,
    CodeResult,
    CodeStatus,
    ContextInfo,
    Execution,
    TextCallback,
)
from stockade.context import Context, run_code
from stockade.errors import (
    Aborted,
    AddressError,
    AlreadyExists,
    ApprovalPending,
    BrokerUnreachable,
    CallError,
    Cancelled,
    Code,
    ConnectionLost,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    InvalidArgument,
    JobError,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ProtocolError,
    ResourceExhausted,
    StockadeError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from stockade.events import Event, Gap, LineCallback, Output
from stockade.files import Files, Watch
from stockade.filing import Change, FileEvent, FileInfo
from stockade.findings import Findings
from stockade.findings_of import Acknowledgement, Finding, Silence
from stockade.forward import Forward
from stockade.keys import ApiKeys, Tokens
from stockade.keys_of import KeyInfo, NewKey, NewToken, SigningKey, SigningKeys
from stockade.limits import Limits, Seconds, Size
from stockade.live import Checkpoint
from stockade.network import Network, Ports
from stockade.oneshot import run, start
from stockade.policies_of import (
    DestinationSet,
    PolicyDecision,
    PolicyInfo,
    PolicyLayerInfo,
    PolicyQuestion,
    PolicyRuleInfo,
    PolicyStep,
)
from stockade.policy import Policy
from stockade.process import Process
from stockade.requests import (
    AsyncStdin,
    Data,
    ProcessInfo,
    SandboxInfo,
    SleepInfo,
    SnapshotInfo,
    Stdin,
    TemplateInfo,
    VolumeInfo,
)
from stockade.result import Bill, Figure, LimitHit, Outcome, Result, Scope, Source
from stockade.rules import Rules
from stockade.rules_of import RuleFile, RuleFinding, RuleInfo, RuleList
from stockade.sandbox import Sandbox
from stockade.simulating import (
    Simulate,
    SimulatedConnection,
    SimulatedRefusal,
    Simulation,
)
from stockade.stubs import Schema, Stub
from stockade.telemetry import EventStream
from stockade.tls import TLS
from stockade.transaction import Transaction
from stockade.volumes import Volume

__version__ = "0.1.0"

__all__ = [
    "TLS",
    "Aborted",
    "Acknowledgement",
    "AddressError",
    "AlreadyExists",
    "ApiKeys",
    "Approval",
    "ApprovalInfo",
    "ApprovalPending",
    "ApprovalVote",
    "AsyncStdin",
    "AuditLog",
    "AuditRecord",
    "Batch",
    "BatchJob",
    "BatchResult",
    "BatchSource",
    "Bill",
    "BrokerUnreachable",
    "CallError",
    "Cancelled",
    "Change",
    "Checkpoint",
    "Client",
    "Code",
    "CodeFailure",
    "CodeResult",
    "CodeStatus",
    "ConnectionLost",
    "Context",
    "ContextInfo",
    "Data",
    "DataLoss",
    "DeadlineExceeded",
    "DestinationSet",
    "Event",
    "EventStream",
    "Execution",
    "FailedPrecondition",
    "Figure",
    "FileEvent",
    "FileInfo",
    "Files",
    "Finding",
    "Findings",
    "Forward",
    "Gap",
    "InternalError",
    "InvalidArgument",
    "JobError",
    "KeyInfo",
    "LimitHit",
    "Limits",
    "LineCallback",
    "MessageStream",
    "Network",
    "NewKey",
    "NewToken",
    "NotFound",
    "OutOfRange",
    "Outcome",
    "Output",
    "PermissionDenied",
    "Policy",
    "PolicyDecision",
    "PolicyInfo",
    "PolicyLayerInfo",
    "PolicyQuestion",
    "PolicyRuleInfo",
    "PolicyStep",
    "Ports",
    "Process",
    "ProcessInfo",
    "ProtocolError",
    "ResourceExhausted",
    "Result",
    "RuleFile",
    "RuleFinding",
    "RuleInfo",
    "RuleList",
    "Rules",
    "Sandbox",
    "SandboxInfo",
    "Schema",
    "Scope",
    "Seconds",
    "SigningKey",
    "SigningKeys",
    "Silence",
    "Simulate",
    "SimulatedConnection",
    "SimulatedRefusal",
    "Simulation",
    "Size",
    "SleepInfo",
    "SnapshotInfo",
    "Source",
    "Stdin",
    "StockadeError",
    "Stub",
    "TemplateInfo",
    "TextCallback",
    "Tokens",
    "Transaction",
    "TransactionInfo",
    "TransactionOutcome",
    "TransactionPolicy",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Volume",
    "VolumeInfo",
    "Watch",
    "approval",
    "batch",
    "default_client",
    "info",
    "narrowed",
    "run",
    "run_code",
    "start",
]
