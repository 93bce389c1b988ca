# SPDX-License-Identifier: Apache-2.0
"""What is said: a result in a line, a failed job with its command, an argument by its name."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import stockade
from stockade import (
    Client,
    JobError,
    Limits,
    Outcome,
    Result,
    Sandbox,
    Volume,
    events,
    limits,
    live,
    requests,
)
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


nowhere = Client("unix:/nowhere", retry_for=0)
box: Any = Sandbox(
    nowhere, requests.sandbox_info(sandbox_service_pb2.Sandbox(id=ID, template="default"))
)
files: Any = box.files
LONE = "\ud800"
volume: Any = Volume
batch: Any = stockade.batch
job: Any = stockade.BatchJob


def taken(jobs: Any, **options: Any) -> Any:
    return next(batch(jobs, client=nowhere, **options))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: box.run_code(5), "code=5: expected text"),
        (lambda: box.run_code(None), "code=None: expected text"),
        (lambda: box.run_code(b"1"), "code=b'1': expected text"),
        (lambda: box.run_code(f"x = '{LONE}'"), r"code: '\\ud800' at 5"),
        (lambda: box.run_code("1", context=""), "context='': must not be empty"),
        (lambda: box.run_code("1", context=5), "context=5: expected a Context"),
        (lambda: box.run_code("1", context=ID, language="bash"), "language='bash': "),
        (lambda: box.run_code("1", timeout=-1), "timeout=-1: "),
        (lambda: box.create_context(cwd=5), "cwd=5: "),
        (lambda: box.create_context(env={"A": LONE}), r"env\['A'\]: "),
        (lambda: files.write("x", 5), "contents=5: expected text, bytes, "),
        (lambda: files.write("x", f"a{LONE}"), "contents: "),
        (lambda: files.write(LONE, "a"), "path="),
        (lambda: files.write(5, "a"), "path=5: "),
        (lambda: files.write("x", "a", mode="644"), "mode='644': expected a whole number"),
        (lambda: files.write("x", "a", mode=2**40), "mode=1099511627776: "),
        (lambda: files.write("x", "a", parents="no"), "parents='no': expected True or False"),
        (lambda: files.write("x", "a", if_version=5), "if_version=5: expected text"),
        (lambda: files.set_mode("x", None), "mode=None: "),
        (lambda: files.read("x", offset=-1), "offset=-1: "),
        (lambda: files.read("x", max_bytes="much"), "max_bytes='much': "),
        (lambda: list(files.list(".", glob="")), "glob: must not be empty"),
        (lambda: files.move("x", None), "to=None: "),
        (lambda: files.upload_archive("x", "a.tar"), r"archive='a\.tar': .*open\(path, 'rb'\)"),
        (lambda: files.upload_folder(".", "x", bytes_max="10 feet"), "bytes_max='10 feet': "),
        (lambda: box.snapshot(""), "name='': must not be empty"),
        (lambda: box.snapshot("a", copy="no"), "copy='no': "),
        (lambda: box.restore(None), "name=None: "),
        (lambda: box.fork(snapshot=""), "snapshot='': "),
        (lambda: box.fork(2**40), "count=1099511627776: "),
        (lambda: box.make_template("t", workdir=5), "workdir=5: "),
        (lambda: box.transaction(stop="no"), "stop='no': "),
        (lambda: Sandbox.create(template="", client=nowhere), "template='': "),
        (lambda: Sandbox.create(name=LONE, client=nowhere), r"name: '\\ud800' at 0"),
        (lambda: Sandbox.connect(box, client=nowhere), "id_or_name=<Sandbox "),
        (lambda: volume.create("v", size=0, client=nowhere), "size=0: must be more than 0"),
        (lambda: volume.create("v", size=2**80, client=nowhere), "size="),
        (lambda: volume.create("v", inodes="5", client=nowhere), "inodes='5': "),
        (lambda: nowhere.load_template("/a.tar"), "archive='/a.tar': "),
        (lambda: taken(5), "jobs=5: "),
        (lambda: job(args="true").to_message(), "args='true': "),
        (lambda: taken([["true"]], key=""), "key='': "),
        (lambda: taken([["true"]], window=-1), "window=-1: "),
        (lambda: job(args=["x"], key=LONE).to_message(), "key: "),
        (lambda: job(args=["x"], stdin=LONE).to_message(), "stdin: "),
        (lambda: command(("a", LONE)), r"args\[1\]: "),
        (lambda: client(token="a\nb"), "token: "),
        (lambda: client(token=5), "token=5: "),
    ],
)
def test_what_is_no_such_argument_is_refused_before_anything_is_sent(call: Any, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{text}"):
        call()


def test_a_call_that_is_not_awaited_is_no_argument() -> None:
    async def checkpoint() -> None: ...

    with pytest.raises(TypeError, match=r"^checkpoint=<coroutine .*: .*; an await is missing$"):
        live.name_of(checkpoint())  # type: ignore[arg-type]
