#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stockaded for operators: when it refuses to start, how it drains, and its messages."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

import sp
from api import HEALTH, PROCESS, SANDBOX, SYSTEM, Job, connect
from broker import NO_BPF, Broker, binary, skip
from slowness import LONG_DRAIN, run
from runner import check, deliver, run_cases, until
from sp import UNAVAILABLE

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def refuses(config, *words):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(config)
        f.flush()
        os.chmod(f.name, 0o644)
        r = run([binary("stockaded"), "--check-config", "--config", f.name], capture_output=True)
    said = r.stderr.decode()
    check(r.returncode not in (0, -11, -6), f"{config!r} is taken")
    for word in words:
        check(word in said, f"{config!r}: {word!r} is not in {said!r}")


def wrong_configurations_are_refused_with_key_and_line():
    refuses("colour: blue\n", "colour")
    refuses("pool: 1\npool: 2\n", "pool", "2")
    refuses("pool: many\n", "pool")
    refuses("limits_default: {memory: 5G}\n", "memory")
    refuses("limits_default: {memory_bytes: 1}\n", "memory_bytes")
    refuses("limits_max: {memory: 2T}\n", "memory")
    refuses("limits_max: {wall_ms: 60000}\n", "write timeout: 60000ms")
    refuses("templates: [{name: UPPER}]\n", "name")
    refuses("templates: [{name: a}, {name: a}]\n", "a")
    refuses("templates: [{name: a, limits_max: {pids: 999999}}]\n", "pids")
    refuses("templates: [{name: a, paths: [etc]}]\n", "1:31", "absolute path")
    refuses("templates: [{name: a, paths: [/opt/../etc]}]\n", "1:31")
    refuses("listen: [ftp://x]\n", "listen on")
    refuses("listen: ['tcp://0.0.0.0:80']\n", "listen on tcp://0.0.0.0:80", "loopback")
    refuses("listen: ['ws://127.0.0.1:80/']\n", "rpc.websocket")
    refuses("telemetry: {feed: 'tcp://0.0.0.0:80'}\n", "telemetry.feed", "loopback")
    refuses("ttl: {default: 2d, max: 1d}\n", "ttl")
    refuses("quotas: {sandboxes: 99999999}\n", "sandboxes")
    refuses("pool: [\n", ":2:1:")
    refuses("a: &x 1\nb: *x\n")
    refuses("pool: 1\n--- \npool: 2\n")


def what_is_checked_is_refused_in_the_words_of_the_start():
    for address, word in (("tcp://0.0.0.0:0", "loopback"), ("wss://127.0.0.1:0", "proxy"), ("ipc://relative", "absolute")):
        checked = run([binary("stockaded"), "--check-config", "--listen", address], capture_output=True)
        started = run([binary("stockaded"), "--listen", address], capture_output=True)
        check(checked.returncode != 0 and word in checked.stderr.decode(), f"{address}: {checked}")
        check((started.returncode, started.stderr) == (checked.returncode, checked.stderr), f"{started} {checked}")


def a_configuration_that_others_may_write_is_refused():
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        os.chmod(f.name, 0o666)
        r = run([binary("stockaded"), "--check-config", "--config", f.name], capture_output=True)
        check(r.returncode != 0 and b"writ" in r.stderr, r.stderr)
    r = run([binary("stockaded"), "--config", "/no/such/file"], capture_output=True)
    check(r.returncode != 0 and b"/no/such/file" in r.stderr, r.stderr)


def without_root_it_says_what_to_do():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        r = run(["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", binary("stockaded"),
                 "--listen", f"ipc://{folder}/s", "--state-dir", folder], capture_output=True)
    check(r.returncode != 0 and b"root" in r.stderr and b"sudo" in r.stderr, f"{r.returncode} {r.stderr!r}")


def whatever_it_inherits_it_works_and_ends():
    ignore = "import os, resource, signal, sys\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 20, -1))\n"
    ignore += "for s in set(range(1, 32)) - {9, 19}:\n    signal.signal(s, signal.SIG_IGN)\n"
    ignore += "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\nos.umask(0o777)\n"
    ignore += "os.execv(sys.argv[1], sys.argv[1:])"
    with Broker(prefix=[sys.executable, "-c", ignore]) as b:
        killed = b.cli("run", "--", "sh", "-c", "kill $$; sleep 9").returncode
        check(killed == 128 + signal.SIGTERM, "jobs have no part in it")
        left = b.cli("run", "--", "grep", "-E", "Sig(Ign|Blk)", "/proc/self/status").stdout
        check(left == b"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n", f"not even in one signal: {left}")
        check(b.cli("run", "--", "sh", "-c", "ulimit -s").stdout == b"8192\n", "nor in the limit of the stack")
        box = b.cli("create").stdout.decode().strip()
        check(b.cli("rm", box).returncode == 0, "its first process is waited for when a sandbox goes")
        check(b.stop() == 0, "and SIGTERM is heard")


def without_stdin_stdout_and_stderr_it_writes_its_log_nowhere():
    with Broker(prefix=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]) as b:
        check(b.cli("run", "--", "echo", "hi").stdout == b"hi\n", "jobs run")
        check({os.readlink(f"/proc/{b.process.pid}/fd/{fd}") for fd in range(3)} == {"/dev/null"}, "nothing of its own")


def a_second_one_on_the_same_cgroup_is_refused_and_harms_nothing():
    with Broker(name="-a") as first:
        job = first.popen("run", "--", "sh", "-c", "sleep 1; echo fine", stdout=subprocess.PIPE)
        second = Broker(name="-a")
        try:
            second.start(20)
            raise AssertionError("it started")
        except RuntimeError as why:
            check("stockade-test" in str(why) and "belongs to a running stockaded" in str(why), str(why))
        finally:
            second.stop()
        check(job.communicate(timeout=30)[0] == b"fine\n" and job.returncode == 0, "the first one's job goes on")
        check(first.cli("run", "--", "true").returncode == 0, "and so does the first one")


def two_of_them_live_side_by_side():
    with Broker(name="-a") as a, Broker(name="-b") as b:
        check(a.cli("run", "--", "echo", "a").stdout == b"a\n", "a")
        check(b.cli("run", "--", "echo", "b").stdout == b"b\n", "b")
        check(a.cli("create", "--name", "x").returncode == 0, "a makes x")
        check(b.cli("exec", "x", "--", "true").returncode != 0, "b knows no x")


def sigterm_lets_jobs_end_and_takes_no_new_ones():
    with Broker(config=f"drain: {LONG_DRAIN}s\n") as b:
        c = connect(b)
        watch = c.begin(HEALTH + "Watch", {}, credit=10)
        check(c.recv(watch).payload[1] == SERVING, "it serves")
        job = c.begin_run("echo begun; sleep 1000; echo done")
        c.until(job, lambda: b"begun" in job.output)
        until(lambda: "sleep" in b.processes().values(), "the job sleeps")
        b.process.send_signal(signal.SIGTERM)
        goaway = c.goaway()
        check(goaway.code in (0, UNAVAILABLE), f"{goaway}")
        check(c.recv(watch).payload[1] == NOT_SERVING, "Watch says that it does not any more")
        end = c.recv(watch)
        check(end.kind == sp.END and end.status.code == UNAVAILABLE, f"and ends, so that it holds nothing up: {end}")
        failed = c.fails(SANDBOX + "Create", {})
        check(failed.code == UNAVAILABLE and "RetryInfo" in failed.details, str(failed))
        os.kill(next(pid for pid, name in b.processes().items() if name == "sleep"), signal.SIGKILL)  # it is over
        c.until(job, lambda: job.result)
        check(job.output.startswith(b"begun\n") and job.output.endswith(b"done\n") and job.result.exit_code == 0, f"the job ended by itself: {job.output}")
        ended = time.monotonic()
        check(b.process.wait(20) == 0, "then it leaves with 0")
        check(time.monotonic() - ended < LONG_DRAIN / 2, "and does not wait for the end of the drain")
        b.process = None


def the_drain_has_an_end_and_a_second_signal_does_not_wait():
    for seconds, signals in ((1, 1), (LONG_DRAIN, 2)):
        b = Broker(config=f"drain: {seconds}s\n").start()
        c = connect(b)
        job = c.begin_run("trap '' TERM; echo begun; sleep 1000")
        c.until(job, lambda: b"begun" in job.output)
        begun = time.monotonic()
        for _ in range(signals):
            deliver(b.process, signal.SIGTERM)
        code = b.process.wait(30)
        took = time.monotonic() - begun
        check(code == 0 and took < LONG_DRAIN / 2, f"{signals} signals: ended with {code} after {took:.1f} s")
        check(not b.cgroups(), f"nothing is left: {b.cgroups()}")
        b.process = None


def health_watch_stays_open_for_what_it_does_not_know():
    with Broker() as b:
        c = connect(b)
        watch = c.begin(HEALTH + "Watch", {"service": "no.such.Service"}, credit=10)
        check(c.recv(watch).payload[1] == SERVICE_UNKNOWN, "unknown, as gRPC has it")
        check(c.fails(HEALTH + "Check", {"service": "no.such.Service"}).code == 5, "Check says NOT_FOUND")
        check(c.unary(HEALTH + "Check", {"service": "stockade.v1.ProcessService"}).status == SERVING, "serving")
        failed = c.fails("/stockade.v1.ProcessService/NoSuchMethod", b"")
        check(failed.code == 12 and "NoSuchMethod" in failed.message, str(failed))


def info_tells_the_host_the_templates_and_what_is_weaker():
    config = "templates: [{name: default}, {name: tiny, pool: 3, limits: {memory: 32M}}]\n"
    with Broker(config=config) as b:
        c = connect(b)
        info = c.unary(SYSTEM + "Info", {})
        check(info.version and info.kernel == os.uname().release and info.cgroups in ("v2", "hybrid"), str(info)[:300])
        check(list(info.tiers) == ["process"] and list(info.listeners) == [b.address], str(info.listeners))
        check({t.name for t in info.templates} == {"default", "tiny"}, str(info.templates))
        tiny = next(t for t in info.templates if t.name == "tiny")
        check(tiny.pool_size == 3 and tiny.limits.memory_bytes == 32 << 20 and tiny.limits_max.memory_bytes, str(tiny))
        check(len(info.features) > 8 and all(f.name and f.detail for f in info.features), "features say what was found")
        net = next(f for f in info.features if f.name == "bpf-net")
        check(net.available != any(line.startswith("bpf-net") for line in info.degraded), "what is not enforced is told")
        check(info.nng_version, "the library's version")
        until(lambda: all(t.pool_ready == t.pool_size for t in c.unary(SYSTEM + "Info", {}).templates), "pools fill up")


def strangers_leave_lines(b):
    """A peer that sends garbage, a wrong header, or too many PINGs is logged; a thousand of them do not fill the
    log."""
    with sp.connect(b.address) as s:
        s.sendall(b"GET / HTTP/1.1\r\n")
        until(lambda: "handshake" in b.log() and "SP REQ" in b.log(), "garbage instead of a greeting")
    c = sp.Client(b.address)
    c.socket.sendall(b"\x01" + b"\xff" * 8)
    until(lambda: "not an SP message" in b.log(), "a header that lies")
    c = sp.Client(b.address)
    for _ in range(2):
        c.send(0x80000001, sp.Frame(kind=sp.PING))
    until(lambda: "uid:0" in b.log() and "too_many_pings" in b.log(), "too many PINGs")
    lines = b.log().count("\n")
    for _ in range(50):
        with sp.connect(b.address) as s:
            s.sendall(b"GET / HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionResetError):
                s.recv(1)
    check(b.log().count("\n") - lines <= 20, "not a line for each")


def info_tells_what_was_lost():
    with Broker(config=NO_BPF + "rpc: {connections_per_uid: 3}\n") as b:
        strangers_leave_lines(b)
        c = connect(b)

        def told():
            return [line for line in c.unary(SYSTEM + "Info", {}).degraded if line.startswith("rpc.connections: ")]
        check(told() == [], "nothing was refused")
        kept = [sp.Client(b.address) for _ in range(2)]
        check(sp.Client(b.address, hello=False).is_closed(), "the fourth is refused")
        check(told() == ["rpc.connections: 1 connections were refused because there were too many"], str(told()))
        kept.pop().close()  # for the command
        until(lambda: b"1 connections were refused" in b.cli("info").stdout, "`stockade info` says so, too")


def more_requests_than_the_queue_takes_are_refused_at_once():
    config = f"{NO_BPF}pool: 0\nquotas: {{queue: 5}}\n"
    with Broker(config=config) as b:
        c = connect(b)
        ids = [c.new_id() for _ in range(60)]
        call = c.call_frame(PROCESS + "Run", {"command": {"args": ["true"]}}, credit=1000)
        c.socket.sendall(b"".join(c.pack(id_, call) for id_ in ids))  # at once
        jobs = [Job("Run", id_) for id_ in ids]
        refused = done = 0
        for job in jobs:
            try:
                c.finish(job)
                done += 1
            except sp.Failed as failed:
                check(failed.code == 8 and failed.reason == "QUEUE_FULL", str(failed))
                refused += 1
        check(done >= 5 and refused > 0, f"{done} ran, {refused} were refused")


def a_tenant_with_many_sandboxes_leaves_ready_ones_to_the_others():
    with Broker(config=NO_BPF + "pool: 4\nsocket: {mode: \"0666\"}\n") as b:
        c, d = connect(b), connect(b)

        def ready():
            return d.unary(SYSTEM + "Info", {}).templates[0].pool_ready

        for _ in range(5):
            c.unary(SANDBOX + "Create", {})
        until(lambda: ready() == 4, "the pool is full")
        create = c.call_frame(SANDBOX + "Create", {})
        c.socket.sendall(b"".join(c.pack(c.new_id(), create) for _ in range(12)))  # at once; they wait for new ones
        seen = [ready() for _ in range(50)]
        check(min(seen) >= 1, f"one stays ready: {seen}")
        check(b.stranger("run", "--", "true").returncode == 0, "another account gets it")
        until(lambda: d.unary(SYSTEM + "Info", {}).sandboxes_own == 17, "and each request is served")


def the_last_ready_ones_are_given_away_when_no_more_can_be_made():
    with Broker(config=NO_BPF + "pool: 4\nquotas: {sandboxes: 8, sandboxes_per_caller: 8}\n") as b:
        c = connect(b)
        check(len({c.unary(SANDBOX + "Create", {}).sandbox.id for _ in range(8)}) == 8, "all that there may be")


def no_more_sandboxes_than_there_may_be_are_made():
    # ids of its own: other brokers of the tests may hold ranges of the usual ones
    with Broker(config=NO_BPF + "pool: 0\nquotas: {sandboxes: 3, sandboxes_per_caller: 3}\nids: {base: 2130706432, slots: 5}\n") as b:
        c = connect(b)
        ids = [c.unary(SANDBOX + "Create", {}).sandbox.id for _ in range(3)]
        failed = c.fails(SANDBOX + "Create", {})
        check(failed.code == 8 and "3" in failed.message, str(failed))
        for id_ in ids:
            c.unary(SANDBOX + "Delete", {"id": id_})
        check(c.unary(SANDBOX + "Create", {}).sandbox.id, "there is room again")


TESTS = [wrong_configurations_are_refused_with_key_and_line,
         what_is_checked_is_refused_in_the_words_of_the_start, a_configuration_that_others_may_write_is_refused,
         without_root_it_says_what_to_do, without_stdin_stdout_and_stderr_it_writes_its_log_nowhere,
         whatever_it_inherits_it_works_and_ends,
         a_second_one_on_the_same_cgroup_is_refused_and_harms_nothing,
         two_of_them_live_side_by_side, sigterm_lets_jobs_end_and_takes_no_new_ones,
         the_drain_has_an_end_and_a_second_signal_does_not_wait, health_watch_stays_open_for_what_it_does_not_know,
         info_tells_the_host_the_templates_and_what_is_weaker, info_tells_what_was_lost,
         more_requests_than_the_queue_takes_are_refused_at_once,
         a_tenant_with_many_sandboxes_leaves_ready_ones_to_the_others,
         the_last_ready_ones_are_given_away_when_no_more_can_be_made,
         no_more_sandboxes_than_there_may_be_are_made]


def main():
    if os.geteuid() != 0:
        skip("needs root")
    sys.exit(run_cases(TESTS))


if __name__ == "__main__":
    main()
