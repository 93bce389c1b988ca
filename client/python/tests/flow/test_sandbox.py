# SPDX-License-Identifier: Apache-2.0
"""Sandboxes and their processes against a real broker: attach, broken connections, restart."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import stockade
from proxy import CutAt, Proxy, Withhold
from stockade import Client, Limits, Outcome, Sandbox, methods, wire
from stockade.v1 import process_service_pb2, sandbox_service_pb2

if TYPE_CHECKING:
    from pathlib import Path

    from broker import Broker

COUNT = "i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); sleep 0.05; done"
COUNTED = "".join(f"line {i}\n" for i in range(20))


def listed_by(frame: int) -> sandbox_service_pb2.SandboxServiceListRequest:
    return sandbox_service_pb2.SandboxServiceListRequest(metadata={"cut": str(frame)})


def forward(_number: int, _to_broker: bool, data: bytes) -> bytes:
    return data


# Refusals.


def test_a_sandbox_that_is_not_there_is_not_found(client: Client) -> None:
    with pytest.raises(stockade.NotFound):
        Sandbox.connect("00" * 16, client=client)


def test_a_name_that_is_taken_is_refused(client: Client) -> None:
    with (
        Sandbox.create(name="taken", client=client),
        pytest.raises(stockade.AlreadyExists, match="taken"),
    ):
        Sandbox.create(name="taken", client=client)


def test_input_for_a_closed_stdin_is_refused(sandbox: Sandbox) -> None:
    with (
        sandbox.start("sleep", "60") as process,
        pytest.raises(stockade.FailedPrecondition, match=r"(?i)stdin"),
    ):
        process.send_stdin("x")


def test_the_size_of_no_terminal_cannot_be_changed(sandbox: Sandbox) -> None:
    with sandbox.start("sleep", "60") as process, pytest.raises(stockade.FailedPrecondition):
        process.resize(10, 10)


def test_a_paused_sandbox_takes_no_job_until_it_goes_on(sandbox: Sandbox) -> None:
    assert sandbox.pause().state == "paused"
    with pytest.raises(stockade.FailedPrecondition, match="paused"):
        sandbox.run("true")
    assert sandbox.resume().state == "running"
    assert sandbox.run("true").ok


def test_a_template_is_made_of_files(sandbox: Sandbox, client: Client) -> None:
    sandbox.run("sh", "-c", "echo a >A")
    with pytest.raises(stockade.NotFound):
        sandbox.make_template("made", snapshot="none")
    made = sandbox.make_template("made", env={"B": "b"}, workdir="/home")
    try:
        assert (made.name, made.of_host, made.env) == ("made", False, {"B": "b"})
        with pytest.raises(stockade.AlreadyExists):
            sandbox.make_template("made")
        made = sandbox.make_template("made", env={"B": "b"}, workdir="/home", replace=True)
        said = stockade.run("sh", "-c", "cat ~/A; echo $B; pwd", template="made", client=client)
        assert said.stdout == "a\nb\n/home\n"
        assert [t.name for t in client.templates()][-1] == "made"
        archive = b"".join(client.push_template("made"))
        loaded = client.load_template(archive, name="loaded")
        assert (loaded.name, loaded.digest) == ("loaded", made.digest)
        assert loaded.loaded_by
        with pytest.raises(stockade.AlreadyExists):
            client.load_template(archive, name="loaded")
        loaded = client.load_template(archive, name="loaded", replace=True)
        assert loaded.digest == made.digest
        changed = archive.replace(b"stockade layer 1", b"stockade layer 2")
        with pytest.raises(stockade.InvalidArgument):
            client.load_template(changed, name="x")
        client.delete_template("loaded")
    finally:
        client.delete_template("made")
    with pytest.raises(stockade.NotFound):
        client.delete_template("made")


def test_files_roll_back_to_a_snapshot(sandbox: Sandbox) -> None:
    sandbox.run("sh", "-c", "echo a > A", check=True)
    before = sandbox.snapshot("before")
    assert (before.name, before.current, before.sandbox_id) == ("before", True, sandbox.id)
    assert before.size > 0
    assert any("memory" in part for part in before.not_included)
    with pytest.raises(stockade.AlreadyExists):
        sandbox.snapshot("before")
    with sandbox.start("sh", "-c", "echo b > A; echo x; sleep 60") as process:
        next(iter(process))
        with pytest.raises(stockade.FailedPrecondition, match="stop them"):
            sandbox.restore("before")
        second = sandbox.snapshot(stop=True)
        assert process.wait().outcome is stockade.Outcome.CANCELLED
    assert [s.name for s in sandbox.snapshots()] == ["before", second.name]
    sandbox.restore("before")
    assert sandbox.run("cat", "A").stdout == "a\n"
    sandbox.restore(second.name)
    assert sandbox.run("cat", "A").stdout == "b\n"
    sandbox.delete_snapshot("before")
    with pytest.raises(stockade.NotFound):
        sandbox.restore("before")


def test_a_simulated_job_says_what_it_would_do_and_leaves_nothing(
    sandbox: Sandbox, client: Client
) -> None:
    sandbox.run("sh", "-c", "echo a > A", check=True)
    done = sandbox.run("sh", "-c", "rm A; echo n > N; exit 3", simulate=True)
    assert (done.exit_code, sandbox.run("ls").stdout) == (3, "A\n")
    found = done.simulation
    assert found is not None
    assert [(c.kind, c.path) for c in found.changes] == [
        ("removed", "/home/agent/A"),
        ("added", "/home/agent/N"),
    ]
    assert (found.executed, found.more, found.unknown, found.sent) == (True, False, "", ())
    cell = sandbox.run_code("open('g', 'w').write('y')", simulate=True)
    assert cell.simulation is not None
    assert [c.path for c in cell.simulation.changes] == ["/home/agent/g"]
    alone = stockade.run("touch", "x", simulate={"example.com:80": b"hi"}, client=client)
    assert alone.simulation is not None
    assert [c.path for c in alone.simulation.changes] == ["/home/agent/x"]
    assert sandbox.run("true").simulation is None
    with pytest.raises(TypeError, match="simulate"):
        sandbox.run("true", simulate="yes")  # type: ignore[arg-type]
    with pytest.raises(stockade.FailedPrecondition):
        sandbox.run_code("1", context=sandbox.create_context(), simulate=True)


def test_a_transaction_brings_all_its_changes_or_none(sandbox: Sandbox) -> None:
    def sh(box: Sandbox, line: str) -> str:
        return box.run("sh", "-c", line, check=True).stdout

    sh(sandbox, "echo a > A")
    two = sandbox.transaction(ttl=60)
    with sandbox.transaction() as one:
        sh(one.sandbox, "echo b > A; echo n > N")
        sh(two.sandbox, "echo c > A")
        changes = [(c.kind, c.path) for c in one.changes()]
        assert changes == [("changed", "/home/agent/A"), ("added", "/home/agent/N")]
        assert sh(sandbox, "cat A; ls") == "a\nA\n"
    assert one.info.state == "committed"
    assert sh(sandbox, "cat A N") == "b\nn\n"
    with pytest.raises(stockade.Aborted) as refused:
        two.commit()
    assert refused.value.reason == "TRANSACTION_CONFLICT"
    assert two.refresh().conflicts == ("/home/agent/A",)
    with pytest.raises(ZeroDivisionError), two:
        raise ZeroDivisionError
    assert two.refresh().state == "discarded"
    with pytest.raises(stockade.FailedPrecondition):
        one.discard()
    done = sandbox.run("rm", "N", transaction="on-success").transaction
    assert done is not None
    assert (done.info.state, done.more, done.unknown) == ("committed", False, "")
    assert [(c.kind, c.path) for c in done.changes] == [("removed", "/home/agent/N")]
    failed = sandbox.run("sh", "-c", "rm A; exit 3", transaction="on-success").transaction
    assert failed is not None
    assert failed.info.state == "discarded"
    states = [t.state for t in sandbox.transactions()]
    assert states == ["discarded", "committed", "committed", "discarded"]
    with pytest.raises(ValueError, match="transaction"):
        sandbox.run("true", transaction="maybe")  # type: ignore[arg-type]


def test_what_differs_between_states_is_listed_and_shown(sandbox: Sandbox) -> None:
    sandbox.run("sh", "-c", "echo a > A; echo gone > G; printf '\\000' > B", check=True)
    sandbox.snapshot("one")
    sandbox.run("sh", "-c", "echo b > A; rm G; printf '\\001\\000' > B; ln -s A L", check=True)
    changes = {c.path: c for c in sandbox.diff("one")}
    home = "/home/agent/"
    assert {p: c.kind for p, c in changes.items()} == {
        home + "A": "changed",
        home + "B": "changed",
        home + "G": "removed",
        home + "L": "added",
    }
    changed, link = changes[home + "A"], changes[home + "L"].after
    assert changed.before is not None
    assert changed.after is not None
    assert (changed.before.size, changed.after.mode, changed.contents) == (2, 0o644, True)
    assert link is not None
    assert (link.type, link.target, changes[home + "G"].after) == ("link", "A", None)
    text = sandbox.patch(home + "A", "one")
    assert text == b"--- a/home/agent/A\n+++ b/home/agent/A\n@@ -1,1 +1,1 @@\n-a\n+b\n"
    assert sandbox.patch(home + "B", "one") is None
    sandbox.snapshot("two")
    assert [c.path for c in sandbox.diff("two", "one", path=home + "G")] == [home + "G"]
    assert sandbox.get_snapshot("two").current
    with pytest.raises(stockade.NotFound):
        sandbox.get_snapshot("three")
    with pytest.raises(stockade.NotFound):
        list(sandbox.diff("three"))


def test_forks_begin_with_the_files_and_go_on_apart(sandbox: Sandbox) -> None:
    sandbox.run("sh", "-c", "echo a > A", check=True)
    forks = sandbox.fork(2)
    for i, one in enumerate(forks):
        with one:
            assert one.run("sh", "-c", f"cat A; echo {i} > A; cat A").stdout == f"a\n{i}\n"
    assert sandbox.run("cat", "A").stdout == "a\n"
    with pytest.raises(stockade.NotFound):
        sandbox.fork(snapshot="none")
    with pytest.raises(stockade.InvalidArgument, match="count"):
        sandbox.fork(101)
    for count, error in ((0, ValueError), ("2", TypeError)):
        with pytest.raises(error, match="count"):
            sandbox.fork(count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="copy_max"):
        sandbox.fork(copy=True, copy_max="much")


def test_a_limit_of_the_sandbox_is_refused_for_a_job(sandbox: Sandbox) -> None:
    with pytest.raises(stockade.InvalidArgument, match="memory_bytes"):
        sandbox.run("true", limits=Limits(memory="64M"))


# Sandboxes.


def test_files_stay_from_one_run_to_the_next_and_are_gone_with_the_sandbox(client: Client) -> None:
    with Sandbox.create(client=client) as sandbox:
        assert sandbox.run("sh", "-c", "echo kept > file").ok
        assert sandbox.run("cat", "file").stdout == "kept\n"
    with pytest.raises(stockade.NotFound):
        sandbox.run("true")
    sandbox.delete()


def test_a_sandbox_is_found_by_name_and_label_and_can_be_changed(client: Client) -> None:
    with Sandbox.create(
        name="box", metadata={"who": "test", "x": "1"}, ttl=60, client=client
    ) as sandbox:
        assert Sandbox.connect("box", client=client).id == sandbox.id
        assert [s.id for s in Sandbox.list(metadata={"who": "test"}, client=client)] == [sandbox.id]
        assert not list(Sandbox.list(metadata={"who": "nobody"}, client=client))
        left = sandbox.info.expires - sandbox.info.created
        assert 59 < left.total_seconds() < 61
        info = sandbox.update(ttl=600, metadata={"x": ""})
        assert info.metadata == {"who": "test"}
        assert (info.expires - info.created).total_seconds() > 500
        assert sandbox.refresh() == info
        assert info.limits.memory


def test_what_stays_has_no_timeout_of_its_own(client: Client) -> None:
    limits = Limits(timeout="300ms", cpu_time=60, memory="64MB")
    with Sandbox.create(ttl="5m", limits=limits, client=client) as sandbox:
        assert sandbox.info.limits.timeout == 0.3
        assert sandbox.start("sleep", "60").wait(timeout="30s").timed_out
    with Sandbox.create(client=client) as sandbox:
        assert sandbox.run("sleep", "60", timeout="300ms").timed_out
        assert sandbox.start("sh", "-c", "ulimit -t").wait().stdout == "unlimited\n"
        assert sandbox.run("sh", "-c", "ulimit -t").stdout == "61\n"


def test_more_sandboxes_than_a_page_are_all_listed(client: Client) -> None:
    made = [Sandbox.create(metadata={"page": "1"}, client=client) for _ in range(5)]
    request = sandbox_service_pb2.SandboxServiceListRequest(page_size=2, metadata={"page": "1"})
    first = client.call(methods.LIST, request)
    assert len(first.sandboxes) == 2
    assert first.next_page_token
    assert len(list(Sandbox.list(metadata={"page": "1"}, client=client))) == 5
    for sandbox in made:
        sandbox.delete()


# Processes.


def test_a_background_process_is_listed_signalled_and_waited_for(sandbox: Sandbox) -> None:
    process = sandbox.start("sh", "-c", "trap 'echo got it; exit 5' TERM; echo up; sleep 60 & wait")
    assert next(process) == stockade.Output("stdout", b"up\n", 0)
    (listed,) = sandbox.processes()
    assert (listed.id, listed.pid, listed.result) == (process.id, process.pid, None)
    with pytest.raises(TimeoutError):
        process.wait(timeout=0.1)
    process.signal(signal.SIGTERM)
    result = process.wait(timeout=60)
    assert (result.exit_code, result.stdout) == (5, "up\ngot it\n")


def test_kill_ends_the_whole_process_group_and_may_come_twice(sandbox: Sandbox) -> None:
    process = sandbox.start("sh", "-c", "sleep 60 & sleep 60")
    process.kill()
    result = process.wait(timeout=60)
    assert result.signal == signal.SIGKILL
    process.kill()


def test_a_shell_on_a_terminal_can_be_talked_to(sandbox: Sandbox) -> None:
    with sandbox.start("sh", terminal=(24, 80)) as shell:
        shell.resize(50, 132)
        shell.send_stdin("stty size; exit 4\n")
        result = shell.wait(timeout=60)
    assert "50 132" in result.stdout
    assert result.exit_code == 4


def test_stdin_stays_open_until_it_is_closed(sandbox: Sandbox) -> None:
    process = sandbox.start("sort", stdin=b"b\n", stdin_open=True)
    process.send_stdin("c\n")
    process.send_stdin(b"a\n")
    process.close_stdin()
    assert process.wait(timeout=60).stdout == "a\nb\nc\n"


def test_a_process_ends_with_its_with_block(sandbox: Sandbox) -> None:
    with sandbox.start("sleep", "60") as process:
        pass
    ended = sandbox.attach(process.id).wait(timeout=60)
    assert ended.signal == signal.SIGKILL


def test_a_run_that_is_interrupted_before_its_first_word_is_ended(
    broker: Broker, client: Client, tmp_path: Path
) -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def once_it_is_on_its_way() -> None:
        withhold.seen.wait(60)
        os.kill(os.getpid(), signal.SIGALRM)

    withhold = Withhold(b"/Start", 1.0)
    with (
        Proxy(tmp_path, broker.ipc, withhold) as proxy,
        Client(proxy.address) as other,
        Sandbox.create(client=client) as made,
    ):
        sandbox = Sandbox.connect(made.id, client=other)
        before = signal.signal(signal.SIGALRM, interrupt)
        threading.Thread(target=once_it_is_on_its_way).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                sandbox.run("sleep", "60")
        finally:
            signal.signal(signal.SIGALRM, before)
        (process,) = made.processes()
        assert made.attach(process.id).wait(timeout=60).signal == signal.SIGKILL


def test_a_deleted_sandbox_cancels_its_processes(client: Client) -> None:
    with Sandbox.create(client=client) as sandbox:
        process = sandbox.start("sleep", "60")
    assert process.wait(timeout=60).outcome is Outcome.CANCELLED


# Broken connections.


def test_another_client_attaches_to_a_process_and_reads_from_the_middle(
    broker: Broker, client: Client
) -> None:
    local = Sandbox.create(client=client)
    with Client(broker.ipc) as first:
        process = Sandbox.connect(local.id, client=first).start("sh", "-c", COUNT)
        assert next(process) == stockade.Output("stdout", b"line 0\n", 0)
    with local:
        again = Sandbox.connect(local.id, client=client).attach(process.id, offset=7)
        result = again.wait(timeout=60)
        assert result.stdout == COUNTED[7:]
        assert again.pid == process.pid


def test_output_goes_on_where_a_connection_broke_without_loss_or_repetition(
    broker: Broker, tmp_path: Path
) -> None:
    with (
        Proxy(tmp_path, broker.ipc, forward) as proxy,
        Client(proxy.address) as client,
        Sandbox.create(client=client) as sandbox,
    ):
        process = sandbox.start("sh", "-c", COUNT)
        for i, _ in enumerate(process):
            if i % 5 == 0:  # with the first piece, however many there are
                proxy.cut()
        result = process.wait()
        assert result.stdout == COUNTED
        assert result.output_missing == 0
        assert proxy.connections >= 2


def test_a_start_whose_answer_is_lost_runs_once(broker: Broker, tmp_path: Path) -> None:
    def lose_the_answer(number: int, to_broker: bool, data: bytes) -> bytes | None:
        seen = b"/Start" in data and to_broker
        if seen and number == 1:
            dropped.append(number)
        return None if number == 1 and dropped and not to_broker else data

    dropped: list[int] = []
    with (
        Proxy(tmp_path, broker.ipc, lose_the_answer) as proxy,
        Client(proxy.address) as client,
        Client(broker.ipc) as direct,
        Sandbox.create(client=direct) as made,
    ):
        sandbox = Sandbox.connect(made.id, client=client)
        process = sandbox.start("sh", "-c", "echo x >> count; echo done; sleep 0.2")
        assert process.wait(timeout=60).stdout == "done\n"
        assert dropped
        assert made.run("cat", "count").stdout == "x\n"


def test_a_create_whose_answer_is_lost_makes_one_sandbox(broker: Broker, tmp_path: Path) -> None:
    def lose_the_answer(number: int, to_broker: bool, data: bytes) -> bytes | None:
        if b"/Create" in data and to_broker:
            lost.append(number)
        return None if number in lost[:3] and not to_broker else data

    lost: list[int] = []
    with (
        Proxy(tmp_path, broker.ipc, lose_the_answer) as proxy,
        Client(proxy.address) as client,
        Sandbox.create(metadata={"once": "1"}, client=client) as sandbox,
    ):
        listed = Sandbox.list(metadata={"once": "1"}, client=client)
        assert [info.id for info in listed] == [sandbox.id]
        assert len(lost) == 4


def test_wherever_a_connection_breaks_nothing_is_executed_twice(
    broker: Broker, client: Client, tmp_path: Path
) -> None:
    for frame in range(100):
        cut = CutAt(frame)
        folder = tmp_path / str(frame)
        folder.mkdir()
        with Proxy(folder, broker.ipc, cut) as proxy, Client(proxy.address) as other:
            with Sandbox.create(metadata={"cut": str(frame)}, client=other) as sandbox:
                assert sandbox.run("sh", "-c", "echo x >> count; echo y").stdout == "y\n"
                with contextlib.suppress(stockade.ConnectionLost):
                    assert stockade.run("echo", "z", client=other).stdout == "z\n"
                assert client.call(methods.LIST, listed_by(frame)).sandboxes[0].id == sandbox.id
                direct = Sandbox.connect(sandbox.id, client=client)
                assert direct.run("cat", "count").stdout == "x\n"
            assert not client.call(methods.LIST, listed_by(frame)).sandboxes
        assert sum(b"ProcessService/Run" in sent for sent in cut.sent) <= 1
        if not cut.done:
            assert frame > 12  # a call and an end each, the events of two jobs
            return
    pytest.fail("the frames did not come to an end")


def test_a_reply_that_was_damaged_on_the_way_closes_the_connection(
    broker: Broker, tmp_path: Path
) -> None:
    def damage(number: int, to_broker: bool, data: bytes) -> bytes:
        bad = number == 1 and not to_broker and data != wire.HELLO_REP
        return b"\1" + b"\xff" * 40 if bad else data

    with Proxy(tmp_path, broker.ipc, damage) as proxy, Client(proxy.address) as client:
        with pytest.raises(stockade.ProtocolError):
            client.info()
        assert client.info().version


def test_half_frames_and_oversize_frames_of_one_client_do_not_disturb_another(
    broker: Broker, client: Client
) -> None:
    path = broker.ipc[len("ipc://") :]
    sockets = []
    for tail in (b"\1", b"\1" + struct.pack(">Q", 100) + b"half", b"\1" + b"\xff" * 8, b"\0" * 9):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        sock.sendall(wire.HELLO_REQ + tail)
        sockets.append(sock)
    assert stockade.run("echo", "fine", client=client).stdout == "fine\n"
    for sock in sockets[2:]:
        sock.settimeout(5)
        got = b"".join(iter(lambda s=sock: s.recv(4096), b""))  # type: ignore[misc]
        assert got.startswith(wire.HELLO_REP)
    for sock in sockets:
        sock.close()


def test_a_request_larger_than_a_frame_is_refused_and_the_connection_lives(client: Client) -> None:
    command = process_service_pb2.Command(args=["true"], stdin=b"x" * wire.FRAME_BYTES_MAX)
    with pytest.raises(stockade.InvalidArgument, match="larger than"):
        client.stream(methods.RUN, process_service_pb2.RunRequest(command=command))
    client.info()


# The program that calls ends.

# A session, whose program says what it made and is then in the middle of a cell.
SESSION = """
import sys
from stockade import Client, Sandbox
client = Client(sys.argv[1])
sandbox = Sandbox.create(ttl=120, client=client)
sandbox.files.write("notes", "kept")
context = sandbox.create_context()
context.run("x = 41")
process = sandbox.start("sh", "-c", sys.argv[2])
print(sandbox.id, context.id, process.id, flush=True)
code = "y = 1; print('begun'); import time; time.sleep(60)"
context.run(code, on_stdout=lambda text: print(text, flush=True))
"""


def test_a_session_survives_the_death_of_its_program(broker: Broker, client: Client) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SESSION, broker.ipc, COUNT], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        sandbox_id, context_id, process_id = program.stdout.readline().split()
        assert program.stdout.readline() == "begun\n"
        program.kill()
    sandbox = Sandbox.connect(sandbox_id, client=client)
    assert sandbox.files.read("notes") == b"kept"
    context = next(c for c in sandbox.contexts() if c.id == context_id)
    assert context.run("x + y").text == "42"  # of the cell that was cut off, too
    process = sandbox.attach(process_id)
    assert process.wait().stdout == COUNTED  # from its first line, and to its last
    sandbox.delete()


# Restart.


def test_after_a_restart_the_client_works_on_and_an_open_job_is_not_run_again(
    own_broker: Broker,
) -> None:
    with Client(own_broker.ipc) as client:
        sandbox = Sandbox.create(client=client)
        process = sandbox.start("sleep", "60")
        one_shot = stockade.start("sleep", "60", client=client)
        own_broker.kill()
        own_broker.start()
        for open_job in (one_shot, process):
            with pytest.raises(stockade.ConnectionLost) as raised:
                open_job.wait()
            assert raised.value.maybe_executed
        assert client.info().processes == 0
        assert stockade.run("echo", "again", client=client).stdout == "again\n"
        with pytest.raises(stockade.NotFound):
            sandbox.run("true")


def test_a_call_waits_for_a_broker_that_comes_back(own_broker: Broker, tmp_path: Path) -> None:
    with Client(own_broker.ipc) as client:
        client.info()
        own_broker.kill()
        started = time.monotonic()
        with pytest.raises(stockade.Unavailable):
            Client(own_broker.ipc).info()
        assert time.monotonic() - started < 8  # it does not try again for 10 s
        own_broker.start()
        assert client.info().uptime_ms < 30_000


def test_a_draining_broker_lets_a_job_end_and_takes_no_new_one(own_broker: Broker) -> None:
    with Client(own_broker.ipc, retry_for=0) as client:
        job = stockade.start("sh", "-c", "sleep 1; echo end", client=client)
        process = own_broker._process
        assert process is not None
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(stockade.Unavailable):
            stockade.run("true", client=client)
        assert job.wait().stdout == "end\n"
        process.wait(20)
        own_broker._process = None
