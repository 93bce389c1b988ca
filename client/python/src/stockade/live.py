# SPDX-License-Identifier: Apache-2.0
"""The variables of contexts at one moment, for threads and asyncio alike (``both``)."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

from stockade import methods
from stockade.fields import made, optional, wrong
from stockade.v1 import code_service_pb2

if TYPE_CHECKING:
    from stockade.calls import Caller


@dataclass(frozen=True)
class Checkpoint:
    """The variables of a python context at one moment. See ``Context.checkpoint``."""

    #: Unique in its sandbox.
    name: str
    #: The sandbox that it belongs to.
    sandbox_id: str
    #: The context that it was made of.
    context_id: str
    #: ``python``.
    language: str
    #: Number of cells that the interpreter had run.
    execution_count: int
    #: Private memory of the interpreter at that moment in bytes: the most that it costs.
    memory: int
    #: When it was made, in UTC.
    created: datetime.datetime
    #: Why it cannot be used any more; empty: it can.
    lost: str


def checkpoint_of(message: code_service_pb2.Checkpoint) -> Checkpoint:
    """Convert a message."""
    return Checkpoint(
        name=message.name,
        sandbox_id=message.sandbox_id,
        context_id=message.context_id,
        language=message.language,
        execution_count=message.execution_count,
        memory=message.memory_bytes,
        created=message.create_time.ToDatetime(tzinfo=datetime.timezone.utc),
        lost=message.lost,
    )


def name_of(checkpoint: Union[Checkpoint, str]) -> str:
    """Return the name of a checkpoint."""
    if not isinstance(checkpoint, (Checkpoint, str)):
        raise wrong("checkpoint", checkpoint, "a Checkpoint or its name")
    name = checkpoint.name if isinstance(checkpoint, Checkpoint) else checkpoint
    return optional("checkpoint", name)


async def make_checkpoint(client: Caller, context_id: str, name: Optional[str]) -> Checkpoint:
    """Keep the variables of a context."""
    request = made(
        code_service_pb2.CheckpointContextRequest,
        context_id=context_id,
        name=optional("name", name),
    )
    answer = await client._call(methods.CHECKPOINT_CONTEXT, request)
    return checkpoint_of(answer.checkpoint)


async def list_checkpoints(client: Caller, sandbox_id: str) -> list[Checkpoint]:
    """List the checkpoints of a sandbox."""
    request = made(code_service_pb2.ListCheckpointsRequest, sandbox_id=sandbox_id)
    answer = await client._call(methods.LIST_CHECKPOINTS, request)
    return [checkpoint_of(message) for message in answer.checkpoints]


async def delete_checkpoint(
    client: Caller, sandbox_id: str, checkpoint: Union[Checkpoint, str]
) -> None:
    """Delete a checkpoint."""
    request = made(
        code_service_pb2.DeleteCheckpointRequest, sandbox_id=sandbox_id, name=name_of(checkpoint)
    )
    await client._call(methods.DELETE_CHECKPOINT, request)


async def restore_context(
    client: Caller, context_id: str, checkpoint: Union[Checkpoint, str]
) -> code_service_pb2.CodeContext:
    """Give a context the variables of a checkpoint."""
    request = made(
        code_service_pb2.RestoreContextRequest,
        context_id=context_id,
        checkpoint=name_of(checkpoint),
    )
    return (await client._call(methods.RESTORE_CONTEXT, request)).context


async def fork_context(
    client: Caller, context_id: str, checkpoint: Union[Checkpoint, str, None]
) -> code_service_pb2.CodeContext:
    """Make a context with the variables of another one, or of a checkpoint."""
    request = made(
        code_service_pb2.ForkContextRequest,
        context_id=context_id,
        checkpoint="" if checkpoint is None else name_of(checkpoint),
    )
    return (await client._call(methods.FORK_CONTEXT, request)).context
