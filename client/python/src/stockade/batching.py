# SPDX-License-Identifier: Apache-2.0
"""Many jobs at once, for programs with threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from stockade.batches import BatchResult, BatchSource, Jobs, run_batch_request
from stockade.both import now
from stockade.client import chosen
from stockade.scoped import Scoped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from stockade.client import Client
    from stockade.limits import Limits, Seconds
    from stockade.network import Network


class Batch(Jobs, Scoped):
    """The results of many jobs, in the order in which the jobs end.

    Iterate over it. Leaving the ``with`` block, or ``close()``, cancels the jobs that are left.
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BatchResult:
        result = now(self._next())
        if result is None:
            raise StopIteration
        return result

    def close(self) -> None:
        """Cancel the jobs that are left. Does nothing after the last result."""
        if not self._over:
            self._close()

    def _exit(self, error: Optional[BaseException]) -> None:
        self.close()


def batch(
    jobs: BatchSource,
    *,
    template: Optional[str] = None,
    limits: Optional[Limits] = None,
    timeout: Optional[Seconds] = None,
    network: Union[Network, str, None] = None,
    reset: str = "sandbox",
    warm: Optional[str] = None,
    parallel: int = 0,
    window: int = 0,
    deadline: Optional[Seconds] = None,
    volumes: Optional[Mapping[str, str]] = None,
    key: Optional[str] = None,
    client: Optional[Client] = None,
) -> Batch:
    """Run many jobs in sandboxes without traces of others, and iterate over results as they finish.

    ``jobs``      ``BatchJob`` objects, or the arguments of each job. They are read as far ahead as
                  the window permits, between the results
    ``template``  kind of sandbox; None: ``default``
    ``limits``    limits of each job; None: the template's
    ``timeout``   wall-clock limit of each job
    ``network``   policy of each job, or ``"none"``; None: the template's
    ``reset``     what a job finds of the one before it: ``"sandbox"``, a fresh one, or ``"files"``,
                  the same one without the processes, files and memory of that job, which is faster
                  and needs the network ``"none"`` or ``"off"``
    ``warm``      with ``reset="files"``: ``"python"`` forks jobs whose arguments are ``python3``,
                  ``-c`` and code from an interpreter that runs already; None: each starts its own
    ``parallel``  jobs that run at the same time; 0: two for each CPU of the broker's host
    ``window``    jobs that the broker may have ahead of this program; 0: 256
    ``deadline``  time for all of them: jobs that have not ended by then are cancelled, and after
                  their results the iteration raises ``DeadlineExceeded`` if jobs are left
    ``volumes``   volumes to mount in each sandbox, as in ``run``
    ``key``       name of the batch; None: a random one

    A job that fails is a result, not an exception. No job is executed twice, also when the
    connection breaks: the iteration continues. ``ConnectionLost``: the broker was restarted; see
    ``Batch.unfinished``.

    >>> for done in batch([("echo", "a"), ("echo", "b")]):                          # doctest: +SKIP
    ...     print(done.number, done.result.stdout)
    """
    request = run_batch_request(
        key=key,
        template=template,
        limits=limits,
        timeout=timeout,
        network=network,
        reset=reset,
        warm=warm,
        parallel=parallel,
        window=window,
        deadline=deadline,
        volumes=volumes,
    )
    return Batch(chosen(client), jobs, request)
