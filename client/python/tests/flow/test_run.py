# SPDX-License-Identifier: Apache-2.0
"""One-shot jobs against a real broker."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

import stockade
from stockade import Client, Limits, Network, Outcome, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker import Broker

HUNDRED_MB = 100_000_000


def settles(client: Client, jobs: int = 0) -> None:
    """Wait until so many jobs run; a cancelled one takes a moment."""
    until = time.monotonic() + 60
    while client.info().processes != jobs and time.monotonic() < until:
        time.sleep(0.02)
    assert client.info().processes == jobs


# Refusals.


def test_a_limit_above_the_maximum_is_refused_with_its_name(client: Client) -> None:
    with pytest.raises(stockade.InvalidArgument) as raised:
        run("true", limits=Limits(memory="512G"), client=client)
    assert "memory_bytes" in str(raised.value)
    assert raised.value.reason
    assert raised.value.method == "/stockade.v1.ProcessService/Run"


def test_a_field_out_of_its_bounds_is_named(client: Client) -> None:
    with pytest.raises(stockade.InvalidArgument) as raised:
        run("true", env={"NO=NAME": "x"}, client=client)
    ((path, _),) = raised.value.fields
    assert path == "command.env[0].name"


def test_a_template_that_is_not_there_is_not_found(client: Client) -> None:
    with pytest.raises(stockade.NotFound, match="nothing-like-it"):
        run("true", template="nothing-like-it", client=client)


def test_a_network_that_is_wider_than_the_templates_is_refused(client: Client) -> None:
    with pytest.raises(stockade.FailedPrecondition, match=r"network\.outbound\[0\]"):
        run("true", network=Network.allowlist("10.0.0.0/8:80"), client=client)


def test_a_network_that_is_malformed_is_refused(client: Client) -> None:
    with pytest.raises(stockade.InvalidArgument, match="bits beyond the prefix"):
        run("true", network=Network.allowlist("10.0.0.1/8"), client=client)


def test_a_program_that_is_not_there_is_not_executed(client: Client) -> None:
    result = run("no-such-program", client=client)
    assert result.outcome is Outcome.NOT_EXECUTED
    assert result.exit_code == 127
    assert "no-such-program" in result.reason
    with pytest.raises(stockade.JobError, match=r'one string per argument: run\("echo", "hi"\)'):
        run("echo hi", client=client, check=True)


# How jobs end.


def test_output_exit_code_and_bill_come_back(client: Client) -> None:
    result = run("sh", "-c", "echo out; echo err >&2; exit 7", client=client)
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 7)
    assert result.outcome is Outcome.EXITED
    bill = result.bill
    assert bill.wall_time is not None
    assert 0 < bill.wall_time < 10
    assert bill.cpu_time is not None
    assert bill.output == 8


def test_a_signal_is_told(client: Client) -> None:
    result = run("sh", "-c", "kill -TERM $$", client=client)
    assert result.outcome is Outcome.SIGNALED
    assert (result.signal, result.exit_code) == (15, None)


def test_the_timeout_ends_a_job_and_is_named(client: Client) -> None:
    begin = time.monotonic()
    result = run("sh", "-c", "echo begun; sleep 60", timeout=0.5, client=client)
    assert result.timed_out
    assert result.outcome is Outcome.LIMIT
    assert result.stdout == "begun\n"
    assert time.monotonic() - begin < 50


def test_the_memory_limit_is_named_when_it_is_hit(client: Client) -> None:
    result = run(
        "python3", "-c", "x = b'x' * (1 << 30)", limits=Limits(memory="64M"), client=client
    )
    assert not result.ok
    assert result.limit_hit is not None
    assert result.limit_hit.name == "memory_bytes"
    assert result.limit_hit.value == 64 << 20


def test_output_beyond_its_limit_is_cut_and_counted(client: Client) -> None:
    result = run("head", "-c", "100000", "/dev/zero", limits=Limits(output="10K"), client=client)
    assert len(result.stdout_bytes) == 10 << 10
    assert result.output_missing == 100_000 - (10 << 10)
    assert result.bill.output_cut == result.output_missing == result.output_cut
    assert result.exit_code == 0
    assert not result.ok
    with pytest.raises(stockade.JobError, match="89760 bytes of output were cut"):
        result.check()


def test_who_streams_gets_all_output(client: Client) -> None:
    lines = 0

    def count(line: str) -> None:
        nonlocal lines
        lines += 1

    command = ("sh", "-c", f"yes stockade | head -c {9 * 4_000_000}")
    result = run(*command, on_stdout=count, keep="1K", check=True, client=client)
    assert (lines, len(result.stdout_bytes)) == (4_000_000, 1024)
    with pytest.raises(stockade.JobError, match="35998976 bytes of output were cut"):
        run(*command, keep="1K", check=True, client=client)
    assert run(*command, keep=0, check=True, client=client).stdout == ""


def test_check_raises_with_the_result(client: Client) -> None:
    with pytest.raises(stockade.JobError) as raised:
        run("false", check=True, client=client)
    assert raised.value.result.exit_code == 1


def test_environment_folder_and_stdin_reach_the_job(client: Client) -> None:
    result = run(
        "sh",
        "-c",
        'echo "$GREETING $PWD"; cat',
        env={"GREETING": "hello"},
        cwd="/tmp",
        stdin="typed",
        client=client,
    )
    assert result.stdout == "hello /tmp\ntyped"


def test_lines_are_handed_over_while_the_job_runs(client: Client) -> None:
    seen: list[tuple[str, float]] = []
    run(
        "sh",
        "-c",
        "echo one; sleep 0.5; echo two",
        on_stdout=lambda line: seen.append((line, time.monotonic())),
        client=client,
    )
    assert [line for line, _ in seen] == ["one", "two"]
    assert seen[1][1] - seen[0][1] > 0.3


def test_three_megabytes_of_stdin_come_back(client: Client) -> None:
    data = bytes(range(256)) * 12_000
    assert run("cat", stdin=data, client=client).stdout_bytes == data


def test_stdin_from_an_iterator_is_sent_while_output_is_read(client: Client) -> None:
    def lines() -> Iterator[bytes]:
        for i in range(5):
            yield b"%d\n" % i

    seen: list[str] = []
    assert run("cat", stdin=lines(), on_stdout=seen.append, client=client).ok
    assert seen == ["0", "1", "2", "3", "4"]


def test_a_job_that_does_not_read_its_stdin_is_no_error(client: Client) -> None:
    assert run("true", stdin=b"x" * 3_000_000, client=client).ok


def test_a_source_of_stdin_that_fails_ends_the_job(client: Client) -> None:
    def fails() -> Iterator[bytes]:
        yield b"begin"
        raise KeyError("source")

    with pytest.raises(KeyError, match="source"):
        run("cat", stdin=fails(), client=client)
    settles(client)


def test_a_terminal_is_one(client: Client) -> None:
    result = run("sh", "-c", "test -t 0 && stty size", terminal=(33, 99), client=client)
    assert result.stdout == "33 99\r\n"


# Streams.


def test_a_hundred_megabytes_arrive_whole(client: Client) -> None:
    digest, length, offsets = hashlib.sha256(), 0, 0
    with stockade.start(
        "sh", "-c", f"yes stockade | head -c {HUNDRED_MB}", keep="1K", client=client
    ) as process:
        for event in process:
            assert isinstance(event, stockade.Output)
            assert event.offset == length
            digest.update(event.data)
            length += len(event.data)
            offsets += 1
    line = b"stockade\n"
    expected = hashlib.sha256((line * (HUNDRED_MB // len(line) + 1))[:HUNDRED_MB])
    assert length == HUNDRED_MB
    assert digest.digest() == expected.digest()
    assert process.wait().ok


def test_a_reader_that_pauses_makes_the_job_wait_and_loses_nothing(client: Client) -> None:
    process = stockade.start("head", "-c", "20000000", "/dev/zero", client=client)
    time.sleep(1)
    result = process.wait()
    assert len(result.stdout_bytes) == 20_000_000
    assert result.output_missing == 0


def test_a_job_whose_stream_is_left_is_cancelled(client: Client) -> None:
    settles(client)
    process = stockade.start("sleep", "60", client=client)
    settles(client, 1)
    process.detach()
    settles(client)


def test_the_deadline_of_a_call_ends_the_job(client: Client) -> None:
    settles(client)
    with pytest.raises(stockade.DeadlineExceeded):
        run("sleep", "60", deadline=0.5, client=client)
    settles(client)


def test_a_client_that_goes_away_ends_its_job(broker: Broker, client: Client) -> None:
    with Client(broker.ipc) as other:
        process = stockade.start("sleep", "60", client=other)
        settles(client, 1)
    with pytest.raises(stockade.ConnectionLost):
        process.wait()
    settles(client)


@pytest.mark.parametrize("address", ["ipc", "tcp"])
def test_a_hundred_jobs_at_once_on_one_connection_get_their_own_answers(
    broker: Broker, address: str
) -> None:
    answers: dict[int, str] = {}

    def job(i: int) -> None:
        answers[i] = run("echo", str(i), client=client).stdout

    with Client(getattr(broker, address)) as client:
        threads = [threading.Thread(target=job, args=(i,)) for i in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {i: f"{i}\n" for i in range(100)}


def test_stubs_made_from_the_brokers_own_descriptors_work(client: Client) -> None:
    schema = client.schema()
    assert "stockade.v1.ProcessService" in schema.services()
    assert schema.service("stockade.v1.SystemService", client).Info().version
    health = schema.service("stockade.v1.HealthService", client)
    with health.Watch(timeout_=5) as stream:
        assert next(stream).status == 1
    with pytest.raises(stockade.InvalidArgument):
        health.Check(service="no such name!")
    with pytest.raises(AttributeError):
        schema.service("stockade.v1.SystemService", client).Nothing()
    assert client.serving()
