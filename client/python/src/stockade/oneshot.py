# SPDX-License-Identifier: Apache-2.0
"""One command in a fresh sandbox, for programs with threads: ``run`` and ``start``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade import requests
from stockade.both import now
from stockade.boxes import one_shot
from stockade.client import Client, chosen
from stockade.events import KEEP_BYTES, Collector, LineCallback
from stockade.process import Process
from stockade.simulating import Simulate, set_simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stockade.limits import Limits, Seconds, Size
    from stockade.network import Network
    from stockade.requests import Data, Stdin
    from stockade.result import Result


def start(
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
    return now(one_shot(chosen(client), Process, request, collector, deadline))


def run(
    *args: str,
    template: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    stdin: Optional[Stdin] = None,
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

    ``template``   name of the template; None: ``default``
    ``env``        variables to add to the template's environment, or to replace in it
    ``cwd``        absolute path of the working directory; None: the template's
    ``stdin``      bytes, text, a file, or an iterable of either; None: the command reads
    end-of-file
    ``timeout``    wall-clock time in seconds, or ``"1.5m"``, after which the broker kills the job
                   (``Result.timed_out``); None: the template's
    ``limits``     limits; None: the template's
    ``network``    a ``Network``, or ``"none"`` or ``"open"``; None: the template's
    ``metadata``   labels of the sandbox while it exists
    ``volumes``    volumes to mount, from paths to names: ``{"/a": "mine", "/b": "other:ro"}``;
                   or, as a name, the path of a host folder that the template lists
    ``terminal``   (rows, columns): run it in a terminal; stdout and stderr are then one stream
    ``on_stdout``  called with each line of stdout as text, without its line end, as it arrives
    ``on_stderr``  the same for stderr
    ``keep``       maximum size of stdout and of stderr in the result, in bytes or ``"1M"``; the
                   rest is only counted
    ``check``      raise ``JobError`` if the exit code is not 0 or output was cut
    ``simulate``   True: nothing leaves the sandbox, and ``Result.simulation`` says what the job
                   would have changed and sent; a mapping: and these destinations answer with these
                   bytes, ``{"example.com:80": b"..."}``
    ``deadline``   seconds for the whole call, including the queue; ``DeadlineExceeded`` after that,
                   without a result
    ``client``     None: the shared client for ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``

    If an exception interrupts the wait (Ctrl-C, or one in a callback), the job is cancelled. Raises
    ``ConnectionLost``  when the connection breaks. The job is then cancelled, and never run again.

    >>> run("echo", "hello").stdout                                                 # doctest: +SKIP
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
    process = now(one_shot(chosen(client), Process, request, collector, deadline))
    return now(process._to_end(feed, check=check))
