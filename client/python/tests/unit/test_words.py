# SPDX-License-Identifier: Apache-2.0
"""What is said: a result in a line, a failed job with its command, an argument by its name."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from stockade import Client, JobError, Limits, Outcome, Result, events, limits, requests
from stockade.boxes import Box
from stockade.v1 import process_service_pb2, sandbox_service_pb2

ID = "ab" * 16
# As a program without types calls them.
client: Any = Client
command: Any = requests.command
feed: Any = requests.Feed


def failed(stderr: bytes, *args: str) -> Result:
    return Result(Outcome.EXITED, 1, stderr_bytes=stderr, args=args, process_id=ID)


def test_a_result_is_shown_in_short_with_its_output_and_its_id() -> None:
    result = Result(Outcome.EXITED, 0, stdout_bytes=b"42\n", process_id=ID)
    assert repr(result) == rf"<Result exited with code 0, stdout='42\n', id={ID}>"
    long = Result(Outcome.EXITED, 0, stdout_bytes=b"x" * 100_000, stderr_bytes=b"y" * 9999 + b"end")
    assert len(repr(long)) < 400
    assert "xxx'..." in repr(long)
    assert repr(long).endswith("yend'>")
    assert "stderr='boom'" in repr(failed(b"boom"))


def test_a_job_error_has_the_command_and_the_end_of_stderr() -> None:
    noise = b"".join(b"line %d\n" % i for i in range(1000))
    error = JobError(failed(noise + b"ValueError: no\n", "python3", "-c", "raise 1 2"))
    assert str(error).startswith("python3 -c 'raise 1 2': exited with code 1\nline 981\n")
    assert str(error).endswith("\nValueError: no")
    assert error.command == ("python3", "-c", "raise 1 2")
    assert error.stderr.splitlines()[-1] == "ValueError: no"
    assert len(JobError(failed(b"z" * 1_000_000)).stderr) <= 2000
    assert str(JobError(failed(b""))) == "exited with code 1"
    assert len(str(JobError(failed(b"", "x" * 100_000)))) < 300
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.result) == (str(error), error.result)


def test_a_result_knows_its_command_and_its_ids() -> None:
    collector = events.Collector()
    collector.args = ("true",)
    event = process_service_pb2.ProcessEvent
    collector.feed(event(started=event.Started(process_id=ID, sandbox_id="cd" * 16, pid=7)))
    collector.feed(event(exited=event.Exited()))
    result = collector.finish()
    assert (result.args, result.process_id, result.sandbox_id) == (("true",), ID, "cd" * 16)


def test_a_sandbox_is_shown_by_its_id_and_its_name() -> None:
    message = sandbox_service_pb2.Sandbox(
        id=ID, name="web", state=sandbox_service_pb2.SANDBOX_STATE_RUNNING
    )
    box = Box(Client("unix:/nowhere"), requests.sandbox_info(message))
    assert repr(box) == f"<Box {ID} 'web' running>"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: client(connect_timeout="soon"), "connect_timeout='soon': "),
        (lambda: client(retry_for=[]), r"retry_for=\[\]: "),
        (lambda: events.Collector(keep="much"), "keep='much': "),
        (lambda: limits.lifetime_ms("long"), "ttl='long': "),
        (lambda: Limits(timeout="x").to_message(), "timeout='x': "),
        (lambda: command(()), "args: "),
        (lambda: command(("echo", 1)), r"args\[1\]=1: expected text"),
        (lambda: command((["echo", "1"],)), r"args\[0\]=.*run\(\*args\)"),
        (lambda: command(("a",), stdin=1), "stdin=1: "),
        (lambda: feed(1), "stdin=1: "),
        (lambda: command(("a",), terminal=24), "terminal=24: "),
        (lambda: command(("a",), terminal=("a", 80)), "rows='a': "),
        (lambda: command(("a",), terminal=(24, -1)), "columns=-1: "),
    ],
)
def test_an_argument_that_is_wrong_is_named(call: Any, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{text}"):
        call()
