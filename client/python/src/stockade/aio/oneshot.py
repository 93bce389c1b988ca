# SPDX-License-Identifier: Apache-2.0
"""One command in a fresh sandbox, for asyncio: the same as ``stockade.oneshot``, with ``await``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade import requests
from stockade.aio.client import Client, chosen
from stockade.aio.process import Process
from stockade.boxes import one_shot
from stockade.events import KEEP_BYTES, Collector, LineCallback
from stockade.simulating import Simulate, set_simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stockade.limits import Limits, Seconds, Size
    from stockade.network import Network
    from stockade.requests import AsyncStdin, Data
    from stockade.result import Result


async def start(
    *args: str,
    template: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: Data = b"",
    stdin_open: bool = False,
    timeout: Optional[Seconds] = None,
    limits: Optional[Limits] = None,
    network: Union[Network, str, None] = None,
    metadata: Optional[Mapping[str, str]] = None,
    volumes: Optional[Mapping[str, str]] = None,
    terminal: Optional[tuple[int, int]] = None,
    on_stdout: Optional[LineCallback] = None,
    on_stderr: Optional[LineCallback] = None,
    keep: Size = KEEP_BYTES,
    deadline: Optional[Seconds] = None,
    client: Optional[Client] = None,
) -> Process:
    """Start a command in a fresh sandbox, which is destroyed when the command ends.

    Iterate over the ``Process`` to read its output. When the reader disconnects, the job is
    cancelled. When the reader is slow, the job waits, as with a pipe. The arguments are those of
    ``run``.
    """
    command = requests.command(
        args,
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdin_open=stdin_open or terminal is not None,
        terminal=terminal,
    )
    request = requests.run_request(
        command,
        template=template,
        limits=limits,
        timeout=timeout,
        network=network,
        metadata=metadata,
        volumes=volumes,
    )
    collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
    return await one_shot(chosen(client), Process, request, collector, deadline)


async def run(
    *args: str,
    template: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: Optional[AsyncStdin] = None,
    timeout: Optional[Seconds] = None,
    limits: Optional[Limits] = None,
    network: Union[Network, str, None] = None,
    metadata: Optional[Mapping[str, str]] = None,
    volumes: Optional[Mapping[str, str]] = None,
    terminal: Optional[tuple[int, int]] = None,
    on_stdout: Optional[LineCallback] = None,
    on_stderr: Optional[LineCallback] = None,
    keep: Size = KEEP_BYTES,
    check: bool = False,
    simulate: Simulate = False,
    deadline: Optional[Seconds] = None,
    client: Optional[Client] = None,
) -> Result:
    r"""Run a command in a fresh sandbox, wait for its end, and destroy the sandbox.

    ``stdin``  may be an asynchronous iterable or stream as well; one that is not is read in the
               event loop, so it should not have to wait

    See ``stockade.run``.

    >>> (await run("echo", "hello")).stdout                                         # doctest: +SKIP
    'hello\n'
    """
    feed, command = requests.fed_command(args, env=env, cwd=cwd, stdin=stdin, terminal=terminal)
    request = requests.run_request(
        command,
        template=template,
        limits=limits,
        timeout=timeout,
        network=network,
        metadata=metadata,
        volumes=volumes,
    )
    set_simulate(request, simulate)
    collector = Collector(on_stdout=on_stdout, on_stderr=on_stderr, keep=keep)
    process = await one_shot(chosen(client), Process, request, collector, deadline)
    return await process._to_end(feed, check=check)
