# SPDX-License-Identifier: Apache-2.0
"""Contexts and single cells of code, for programs with threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Union

from stockade.both import now
from stockade.client import Client, chosen
from stockade.code import (
    Cells,
    CodeResult,
    Collector,
    Execution,
    TextCallback,
    execute,
    fresh_request,
)
from stockade.simulating import Simulate, set_simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stockade.limits import Limits, Seconds
    from stockade.live import Checkpoint
    from stockade.network import Network


class Context(Cells):
    """An interpreter in a sandbox that keeps its variables. See ``Sandbox.create_context``."""

    def run(
        self,
        code: str,
        *,
        timeout: Optional[Seconds] = None,
        on_stdout: Optional[TextCallback] = None,
        on_stderr: Optional[TextCallback] = None,
        on_result: Optional[Callable[[CodeResult], object]] = None,
    ) -> Execution:
        """Run a cell here. See ``Sandbox.run_code``."""
        return now(self._run(code, timeout, Collector(on_stdout, on_stderr, on_result)))

    def restart(self) -> None:
        """End the interpreter. The next cell gets a fresh one."""
        now(self._restart())

    def interrupt(self) -> None:
        """Stop the running cell, as Ctrl-C does. Its variables stay."""
        now(self._interrupt())

    def checkpoint(self, name: Optional[str] = None) -> Checkpoint:
        """Keep the variables of a python context; no cell may run in it meanwhile.

        ``FailedPrecondition``: it holds something that cannot be kept, such as a thread or a
        connection; the text says what. ``ResourceExhausted``: too many, or too much memory.
        """
        return now(self._checkpoint(name))

    def restore(self, checkpoint: Union[Checkpoint, str]) -> None:
        """Go back to a checkpoint of its sandbox. The variables of now are lost."""
        now(self._restore(checkpoint))

    def fork(self, checkpoint: Union[Checkpoint, str, None] = None) -> Context:
        """Make a context with the variables of a checkpoint; None: with those of now."""
        return Context(self._client, now(self._fork(checkpoint)))

    def delete(self) -> None:
        """End the interpreter and remove the context. Does nothing if it does not exist."""
        now(self._delete())


def run_code(
    code: str,
    *,
    language: str = "",
    timeout: Optional[Seconds] = None,
    template: Optional[str] = None,
    limits: Optional[Limits] = None,
    network: Union[Network, str, None] = None,
    env: Optional[Mapping[str, str]] = None,
    volumes: Optional[Mapping[str, str]] = None,
    on_stdout: Optional[TextCallback] = None,
    on_stderr: Optional[TextCallback] = None,
    on_result: Optional[Callable[[CodeResult], object]] = None,
    simulate: Simulate = False,
    client: Optional[Client] = None,
) -> Execution:
    """Run a cell of code in a fresh sandbox, which is destroyed afterwards.

    ``language``   ``python`` (the default), ``bash`` or ``javascript``
    ``timeout``    seconds, or ``"1.5m"``, after which the cell is interrupted; None: 60
    ``template``   name of the template; None: ``default``
    ``limits``     limits of the sandbox, without ``timeout`` and ``output``
    ``network``    a ``Network``, or ``"none"`` or ``"open"``; None: the template's
    ``env``        variables to add to the template's environment
    ``volumes``    volumes to mount, as in ``run``
    ``on_stdout``  called with text as it is written; ``on_stderr``, ``on_result`` likewise
    ``simulate``   True or a mapping: nothing leaves the sandbox, as in ``run``
                   (``Execution.simulation``)
    ``client``     None: the shared client for ``STOCKADE_ADDRESS`` and ``STOCKADE_TOKEN``

    Code that fails raises nothing here: see ``Execution.error``.

    >>> run_code("6 * 7").text                                                      # doctest: +SKIP
    '42'
    """
    request = fresh_request(
        code,
        language,
        timeout=timeout,
        template=template,
        limits=limits,
        network=network,
        env=env,
        volumes=volumes,
    )
    set_simulate(request, simulate)
    collector = Collector(on_stdout, on_stderr, on_result)
    return now(execute(chosen(client), request, collector))
