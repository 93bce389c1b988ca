#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The guarantees of a call: one END, exact credits, deadlines, cancellation, limits, drain, keepalive. rpc_keys.py
tests idempotency keys."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time

import sp
from slowness import run
from runner import check, run_cases, time_passes, until
from sp import Client, Server


def frames_until_end(c, id_):
    frames = []
    while not frames or frames[-1].kind != sp.END:
        frames.append(c.recv(id_))
    return frames


# ---- refusals


def an_unknown_method_is_12():
    with Server() as s:
        for address in (s.ipc, s.tcp):
            c = Client(address)
            f = c.fails("/stockade.test.EchoService/Nothing", b"")
            check(f.code == sp.UNIMPLEMENTED and f.reason == "METHOD_UNKNOWN", f)
            check(c.fails("/", b"").code == sp.UNIMPLEMENTED, "an empty method")


def malformed_requests_are_3_and_the_connection_lives():
    with Server() as s:
        c = Client(s.ipc)
        f = c.fails("Echo", b"\x0a\xff")
        check(f.code == sp.INVALID and "data" in f.message, f)
        id_ = c.new_id()
        c.send(id_, b"\x12\x02\xff\xff")  # no frame at all
        frame = c.recv(id_)
        check(frame.kind == sp.END and frame.status.code == sp.INVALID, "a broken frame")
        f = c.fails("Count", {"note": "UPPER"})
        check(f.code == sp.INVALID and f.details["BadRequest"].field_violations[0].field == "note", f)
        check(f.reason == "FIELD_INVALID", f)
        f = c.fails("Count", {"bytes": 65001})
        check(f.reason == "ABOVE_MAXIMUM" and f.details["ErrorInfo"].metadata["subject"] == "bytes", f"range: {f}")
        check(f.details["BadRequest"].field_violations[0].field == "bytes", f)
        check(c.unary("Echo", {"data": b"x"}).data == b"x", "it lives")


def a_credential_that_is_not_understood_is_16():
    with Server() as s:
        for address in (s.ipc, s.tcp):
            c = Client(address)
            f = c.fails("Echo", {}, {"authorization": "Bearer x"})
            check(f.code == 16 and f.reason == "CREDENTIAL_UNKNOWN", f)
            check(c.unary("Echo", {"data": b"x"}).data == b"x", "without one it is served")


def metadata_is_bounded():
    with Server() as s:
        c = Client(s.ipc)
        f = c.fails("Echo", {}, {"Upper": "x"})
        check(f.code == sp.INVALID and "metadata[0]" in f.message, f)
        f = c.fails("Echo", {}, {f"k{i}": "x" for i in range(33)})
        check(f.code == sp.INVALID and "33 keys" in f.message, f)
        f = c.fails("Echo", {}, {"a": "x" * 4096, "b": "x" * 4096})
        check(f.code == sp.INVALID and "8194 bytes" in f.message, f)
        c.unary("Echo", {}, {"a": "x" * 4096, "b": "x" * 4094})


def an_id_without_its_top_bit_ends_the_connection():
    with Server() as s:
        c = Client(s.ipc)
        c.send(1, c.call_frame("Echo", {}))
        check(c.goaway().reason == "ID_INVALID", "goaway")
        check(c.is_closed(), "closed")


def data_from_a_client_is_refused():
    with Server() as s:
        c = Client(s.ipc)
        id_ = c.begin("Change", {"delay_ms": 60000})
        c.send(id_, sp.Frame(kind=sp.DATA, payload=b"x"))
        frame = c.recv(id_)
        check(frame.kind == sp.END and frame.status.code == sp.INVALID, frame)
        check(c.unary("Stats").handlers_cancelled == 1, "the handler was told")


def another_call_under_an_open_id_ends_that_call_once():
    with Server() as s:
        c = Client(s.ipc)
        id_ = c.begin("Change", {"delay_ms": 60000})
        c.send(id_, c.call_frame("Echo", {"data": b"x"}))
        frame = c.recv(id_)
        check(frame.status.code == sp.INVALID and sp.Failed(frame.status).reason == "ID_IN_USE", frame)
        stats = c.unary("Stats")
        check(stats.open_calls == 1 and stats.handlers_cancelled == 1 and not c.others.get(id_), stats)


def the_same_method_with_another_request_under_an_open_id_ends_that_call():
    with Server() as s:
        c = Client(s.ipc)
        id_ = c.begin("Change", {"delay_ms": 60000})
        c.send(id_, c.call_frame("Change", {"delay_ms": 60000}))
        c.send(id_, c.call_frame("Change", {"delay_ms": 60001}))
        frame = c.recv(id_)
        check(frame.status.code == sp.INVALID and sp.Failed(frame.status).reason == "ID_IN_USE", frame)


def the_same_request_sent_again_is_executed_once():
    with Server() as s:
        c = Client(s.ipc)
        f = c.call_frame("Change", {"delay_ms": 200})
        c.socket.sendall(c.pack(0x80000123, f) * 3)  # at once
        check(c.end("Change", 0x80000123).executed == 1, "once")
        check(c.unary("Stats").changes == 1 and not c.others, "one END")


def unknown_kinds_and_late_frames_are_ignored():
    with Server() as s:
        c = Client(s.ipc)
        for kind in (0, 3, 7, 8, 9, 99, 2**31 - 1):
            c.send(c.new_id(), sp.Frame(kind=kind))
        for kind in (sp.DATA, sp.CANCEL, sp.WINDOW):
            c.send(c.new_id(), sp.Frame(kind=kind, credit=5))
        check(c.unary("Echo", {"data": b"x"}).data == b"x" and not c.others, "nothing came")


def call_1025_on_a_connection_is_refused():
    with Server() as s:
        c = Client(s.ipc)
        ids = [c.begin("Change", {"delay_ms": 60000}) for _ in range(1024)]
        f = c.fails("Echo", {})
        check(f.code == sp.EXHAUSTED and f.reason == "CALLS_PER_CONNECTION", f)
        check("QuotaFailure" in f.details, f.details)
        c.send(ids[0], sp.Frame(kind=sp.CANCEL))
        check(c.recv(ids[0]).status.code == sp.CANCELLED, "cancelled")
        c.unary("Echo", {})


def stream_129_on_a_connection_is_refused():
    with Server() as s:
        c = Client(s.ipc)
        for _ in range(128):
            c.begin("Count", {"count": 10}, credit=1)
        f = c.fails("Count", {"count": 1})
        check(f.code == sp.EXHAUSTED and f.reason == "STREAMS_PER_CONNECTION", f)
        check(c.unary("Stats").open_streams == 128, "128 are open")


def calls_of_one_user_are_bounded_over_all_connections():
    with Server(calls_per_uid_max=10) as s:
        a, b, other = Client(s.ipc), Client(s.ipc), Client(s.tcp)
        for i in range(10):
            (a, b)[i % 2].begin("Change", {"delay_ms": 60000})
        until(lambda: other.unary("Stats").open_calls == 11, "all are open")
        for c in (a, b):
            f = c.fails("Echo", {})
            check(f.code == sp.EXHAUSTED and f.reason == "CALLS_PER_UID", f)
        other.unary("Echo", {})
        a.close()
        until(lambda: other.unary("Stats").open_calls == 6, "the calls of a closed connection are given back")
        b.unary("Echo", {})


def connections_of_one_user_are_bounded():
    with Server(connections_per_uid_max=5) as s:
        kept = [Client(s.ipc) for _ in range(5)]
        c = Client(s.ipc, hello=False)
        check(c.is_closed(), "the sixth is closed")
        watcher = Client(s.tcp)
        kept[0].close()
        until(lambda: watcher.unary("Stats").connections == 5, "it has gone")
        check(Client(s.ipc).unary("Stats").rejected == 1, "and one may come for each that goes")


def bytes_of_one_user_are_bounded():
    with Server(bytes_per_uid_max=3 << 20) as s:
        c = Client(s.ipc)
        f = c.fails("Echo", {"data": b"x" * 1600000})
        check(f.code == sp.EXHAUSTED and f.reason == "BYTES_PER_UID", f)
        a = [Client(s.ipc) for _ in range(4)]
        closed = 0
        for one in a:  # halves of large frames
            try:
                one.socket.sendall(one.pack(0x80000001, b"x" * 3000000)[:900000])
            except (BrokenPipeError, ConnectionResetError):
                closed += 1
        watcher = Client(s.tcp)
        until(lambda: watcher.unary("Stats").connections < 6, "large halves are bounded")
        for one in a:
            one.close()
        until(lambda: watcher.unary("Stats").connections == 2, "they have gone")
        check(c.unary("Echo", {"data": b"x" * 100000}).data, "the bytes are given back")


def a_seventh_of_a_second_is_a_deadline():
    with Server() as s:
        c = Client(s.ipc)
        began = time.monotonic()
        f = c.fails("Change", {"delay_ms": 60000}, timeout_us=142857)
        took = time.monotonic() - began
        check(f.code == sp.DEADLINE and 0.14 < took < 30, f"{f} {took}")
        f = c.fails("Change", {"delay_ms": 10000}, timeout_us=1)
        check(f.code == sp.DEADLINE, f)
        check(c.unary("Stats").handlers_deadline == 2, "the handler was told")
        c.unary("Change", {"delay_ms": 1}, timeout_us=2**64 - 1)


def too_many_pings_end_the_connection():
    with Server() as s:
        c = Client(s.ipc)
        c.send(0x80000001, sp.Frame(kind=sp.PING, payload=b"12345678"))
        pong = c.recv(0x80000001)
        check(pong.kind == sp.PONG and pong.payload == b"12345678", "pong")
        c.send(0x80000001, sp.Frame(kind=sp.PING))
        f = c.goaway()
        check(f.reason == "TOO_MANY_PINGS" and "too_many_pings" in f.message, f)
        check(c.is_closed(), "closed")
        c = Client(s.ipc)
        c.send(0x80000001, sp.Frame(kind=sp.PING, payload=b"123456789"))
        check(c.goaway().reason == "PING_TOO_LARGE", "goaway")


def an_idle_connection_is_closed_and_one_with_a_call_is_not():
    with Server(keepalive_idle_ms=400) as s:
        idle, busy = Client(s.ipc), Client(s.ipc)
        id_ = busy.begin("Change", {"delay_ms": 1500})
        check(idle.is_closed(), "idle")
        check(busy.end("Change", id_).executed == 1, "busy")


# ---- addresses


def a_tcp_peer_that_says_nothing_is_asked_for_within_a_minute():
    with Server() as s:
        c = Client(s.tcp)
        ours, theirs = (f":{a[1]:04X}" for a in (c.socket.getsockname(), c.socket.getpeername()))

        def will_ask():
            with open("/proc/net/tcp", encoding="ascii") as f:
                lines = [line.split() for line in f]
            timers = [line[5] for line in lines if line[1].endswith(theirs) and line[2].endswith(ours)]
            kind, ticks = timers[0].split(":")  # proc_net_tcp.txt of the kernel: 02 is keepalive
            return kind == "02" and int(ticks, 16) <= 60 * os.sysconf("SC_CLK_TCK")

        until(will_ask, "the server's timer is set", 10)


def fails_to_listen(*args):
    p = run([os.path.join(sp.BUILD, "tests/echo/echo-server"), *args], capture_output=True, text=True)
    check(p.returncode == 1, p)
    return p.stderr


def unsafe_addresses_are_refused_with_the_reason():
    check("only loopback" in fails_to_listen("tcp://0.0.0.0:0"), "0.0.0.0")
    check("only loopback" in fails_to_listen("tcp://[::]:0"), "::")
    check("only loopback" in fails_to_listen("tcp://:0"), "empty host")
    check("only loopback" in fails_to_listen("tcp://127.0.0.1.example.org:0"), "a name")
    check("rpc.websocket" in fails_to_listen("ws://127.0.0.1:0/"), "ws")
    check("proxy" in fails_to_listen("wss://127.0.0.1:0"), "wss")
    check("needs a certificate" in fails_to_listen("tls+tcp://127.0.0.1:0"), "tls")
    check("proxy" in fails_to_listen("wss://127.0.0.1:0/"), "wss")
    check("begins with" in fails_to_listen("inproc://x"), "inproc")
    check("absolute path" in fails_to_listen("ipc://relative"), "relative")
    check("absolute path" in fails_to_listen("ipc:///" + "x" * 108), "too long")


def a_live_socket_and_a_plain_file_are_not_replaced_and_a_stale_one_is():
    with Server() as s:
        check("another process listens" in fails_to_listen(s.ipc), "live")
        Client(s.ipc).unary("Echo", {})
        plain = f"{s.folder.name}/plain"
        with open(plain, "w") as f:
            f.write("kept")
        check("not a socket" in fails_to_listen(f"ipc://{plain}"), "a plain file")
        with open(plain) as f:
            check(f.read() == "kept", "the file is still there")
        path = s.ipc[6:]
        mode = os.stat(path).st_mode
        check(stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o660, oct(mode))
        s.process.kill()
        s.process.wait()
        check(os.path.exists(path), "a stale socket")
        p = subprocess.Popen([os.path.join(sp.BUILD, "tests/echo/echo-server"), s.ipc], stdout=subprocess.PIPE)
        while p.stdout.readline() != b"ready\n":
            check(p.poll() is None, "it starts")
        Client(s.ipc).unary("Echo", {})
        p.send_signal(signal.SIGINT)
        check(p.wait(20) == 0 and not os.path.exists(path), "and takes its socket away")
        s.process.returncode = 0


# ---- what works


def unary_calls_are_answered_out_of_order_beside_a_stream():
    with Server() as s:
        for address in (s.ipc, s.tcp):
            c = Client(address)
            stream = c.begin("Count", {"count": 3}, credit=1)
            slow = c.begin("Change", {"delay_ms": 300, "data": b"slow"})
            fast = c.begin("Change", {"delay_ms": 1, "data": b"fast"})
            check(c.end("Change", fast).data == b"fast", "fast")
            check(not c.others.get(slow), "slow is not there yet")
            check(c.end("Change", slow).data == b"slow", "slow")
            c.send(stream, sp.Frame(kind=sp.WINDOW, credit=10))
            check([f.kind for f in frames_until_end(c, stream)] == [sp.DATA] * 3 + [sp.END], "stream")


def credits_are_exact():
    with Server() as s:
        c = Client(s.ipc)
        id_ = c.begin("Count", {"count": 100})
        first = [c.recv(id_) for _ in range(32)]
        time_passes("more would come, if there were any", 0.2)
        c.unary("Echo", {})
        check(not c.others.get(id_), "default credit is 32")
        c.send(id_, sp.Frame(kind=sp.WINDOW, credit=1))
        first.append(c.recv(id_))
        time_passes("more would come, if there were any", 0.1)
        c.unary("Echo", {})
        check(not c.others.get(id_), "one more")
        c.send(id_, sp.Frame(kind=sp.WINDOW, credit=2**32 - 1))
        frames = first + frames_until_end(c, id_)
        check(len(frames) == 101 and all(f.kind == sp.DATA for f in frames[:-1]), "all of them, then END")
        numbers = [sp.message("stockade.test.CountResponse").FromString(f.payload).number for f in frames[:-1]]
        check(numbers == list(range(100)), "in order")


def a_stream_that_ends_without_credit_ends():
    with Server() as s:
        c = Client(s.ipc)
        id_ = c.begin("Count", {"count": 5}, credit=5)
        check(len(frames_until_end(c, id_)) == 6, "END needs no credit")


def cancel_is_answered_by_one_end_and_the_handler_is_called():
    with Server() as s:
        c = Client(s.ipc)
        id_ = c.begin("Count", {"count": 10}, credit=1)
        c.recv(id_)
        for _ in range(3):
            c.send(id_, sp.Frame(kind=sp.CANCEL))
        frame = c.recv(id_)
        check(frame.kind == sp.END and frame.status.code == sp.CANCELLED, frame)
        stats = c.unary("Stats")
        check(stats.handlers_cancelled == 1 and stats.open_calls == 1 and not c.others.get(id_), stats)


def a_connection_that_goes_cancels_its_calls():
    with Server() as s:
        a, b = Client(s.ipc), Client(s.ipc)
        a.begin("Count", {"count": 10}, credit=1)
        a.begin("Change", {"delay_ms": 60000})
        until(lambda: b.unary("Stats").open_calls == 3, "they run")
        a.close()
        until(lambda: b.unary("Stats").handlers_disconnected == 2, "both handlers are told")


def four_mebibytes_less_a_little_go_and_come():
    with Server() as s:
        for address in (s.ipc, s.tcp):
            c = Client(address)
            data = os.urandom(3_900_000)
            check(c.unary("Echo", {"data": data}).data == data, address)
            f = c.fails("Echo", {"data": b"x" * 4_000_001})
            check(f.code == sp.INVALID, f)


def a_frame_that_comes_byte_by_byte_is_one_frame():
    with Server() as s:
        c = Client(s.ipc, hello=False)
        for byte in sp.REQ_HELLO + c.pack(0x80000005, c.call_frame("Echo", {"data": b"slow"})):
            c.socket.sendall(bytes([byte]))
            time_passes("a byte is a packet of its own", 0.001)
        check(sp.read_exactly(c.socket, 8) == sp.REP_HELLO, "hello")
        check(c.end("Echo", 0x80000005).data == b"slow", "echo")


def a_thousand_requests_in_one_write_are_all_answered():
    with Server() as s:
        for address in (s.ipc, s.tcp):
            c = Client(address)
            ids = [c.new_id() for _ in range(1000)]
            c.socket.sendall(b"".join(c.pack(i, c.call_frame("Echo", {"data": str(i).encode()})) for i in ids))
            for i in reversed(ids):
                check(c.end("Echo", i).data == str(i).encode(), i)


def health_and_reflection_answer():
    with Server() as s:
        c = Client(s.ipc)
        check(c.unary("/stockade.v1.HealthService/Check", {}).status == 1, "serving")
        check(c.unary("/stockade.v1.HealthService/Check", {"service": "stockade.v1.HealthService"}).status == 1, "one")
        f = c.fails("/stockade.v1.HealthService/Check", {"service": "stockade.v1.Health"})
        check(f.code == 5, f)
        data = c.unary("/stockade.v1.ReflectionService/GetFileDescriptorSet", {}).file_descriptor_set
        files = sp.descriptor_pb2.FileDescriptorSet.FromString(data).file
        check("stockade/v1/wire.proto" in [f.name for f in files], "the schema")


# ---- drain


def drain_answers_what_is_open_and_refuses_what_is_new():
    with Server() as s:
        c = Client(s.ipc)
        watch = c.begin("/stockade.v1.HealthService/Watch", {})
        c.recv(watch)
        id_ = c.begin("Change", {"delay_ms": 300})
        stream = c.begin("Count", {"count": 2}, credit=1)  # open until it is given credit
        c.recv(stream)
        os.kill(s.pid, signal.SIGTERM)
        f = c.goaway()
        check(f.code == sp.UNAVAILABLE and f.reason == "DRAINING", f)
        f = c.fails("Echo", {})
        check(f.code == sp.UNAVAILABLE and f.reason == "DRAINING", f)
        frame = c.recv(watch)
        check(frame.kind == sp.DATA and frame.payload == b"\x08\x02", "watchers learn NOT_SERVING")
        late = Client(s.ipc)
        check(late.unary("Stats").open_calls >= 2 and c.unary("Stats"), "what begins nothing is answered, also to who comes late")
        f = late.fails("Echo", {})
        check(f.code == sp.UNAVAILABLE and f.reason == "DRAINING", f)
        watch_late = late.begin("/stockade.v1.HealthService/Watch", {})
        check(late.recv(watch_late).payload == b"\x08\x02" and late.recv(watch_late).kind == sp.END, "and holds nothing up")
        check(c.end("Change", id_).executed >= 1, "what was open is answered")
        c.send(stream, sp.Frame(kind=sp.WINDOW, credit=1))
        check([f.kind for f in frames_until_end(c, stream)] == [sp.DATA, sp.END], "streams too")
        frame = c.recv(watch)
        check(frame.kind == sp.END and frame.status.code == sp.UNAVAILABLE, "and their calls end")
        check(c.is_closed(), "then it is over")
        check(s.process.wait(30) == 0, "and the server ends")


def drain_is_over_after_its_grace():
    with Server(grace_ms=300) as s:
        c = Client(s.ipc)
        c.begin("Change", {"delay_ms": 60000})
        c.unary("Echo", {})
        began = time.monotonic()
        os.kill(s.pid, signal.SIGTERM)
        check(s.process.wait(40) == 0 and 0.2 < time.monotonic() - began < 40, "grace")


def the_caller_over_ipc_is_known_by_uid():
    with Server(connections_per_uid_max=2) as s:
        os.chmod(s.folder.name, 0o755)
        os.chmod(s.ipc[6:], 0o666)
        kept = [Client(s.ipc), Client(s.ipc)]
        key = {"idempotency-key": "k"}
        check(kept[0].unary("Change", {}, key).executed == 1, "root's key")
        check(Client(s.ipc, hello=False).is_closed(), "root has two")
        if os.getuid() != 0:
            return
        done = []

        def as_nobody():
            pid = os.fork()
            if pid == 0:
                os.setgid(65534)
                os.setuid(65534)
                try:
                    executed = Client(s.ipc).unary("Change", {}, key).executed
                    os._exit(0 if executed == 2 else 1)  # the key is another's
                finally:
                    os._exit(1)
            done.append(os.waitpid(pid, 0)[1])

        t = threading.Thread(target=as_nobody)
        t.start()
        t.join()
        check(done == [0], "nobody has two of its own")
        check(kept[1].unary("Change", {}, key).executed == 1, "root's is root's")


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])  # utime, stime: proc(5)


def an_idle_server_uses_no_cpu():
    with Server() as s:
        c = Client(s.ipc)
        for _ in range(2000):  # quick enough for its end to look instead of sleep
            c.unary("Echo", {"data": b"x"})
        before = cpu_ticks(s.pid)
        time_passes("a second without calls", 1)
        check(cpu_ticks(s.pid) - before <= os.sysconf("SC_CLK_TCK") // 20, "it sleeps when the calls have ended")
        c.unary("Echo", {"data": b"x"})


sys.exit(run_cases([
    an_unknown_method_is_12,
    malformed_requests_are_3_and_the_connection_lives,
    a_credential_that_is_not_understood_is_16,
    metadata_is_bounded,
    an_id_without_its_top_bit_ends_the_connection,
    data_from_a_client_is_refused,
    another_call_under_an_open_id_ends_that_call_once,
    the_same_method_with_another_request_under_an_open_id_ends_that_call,
    the_same_request_sent_again_is_executed_once,
    unknown_kinds_and_late_frames_are_ignored,
    call_1025_on_a_connection_is_refused,
    stream_129_on_a_connection_is_refused,
    calls_of_one_user_are_bounded_over_all_connections,
    connections_of_one_user_are_bounded,
    bytes_of_one_user_are_bounded,
    a_seventh_of_a_second_is_a_deadline,
    too_many_pings_end_the_connection,
    an_idle_connection_is_closed_and_one_with_a_call_is_not,
    a_tcp_peer_that_says_nothing_is_asked_for_within_a_minute,
    unsafe_addresses_are_refused_with_the_reason,
    a_live_socket_and_a_plain_file_are_not_replaced_and_a_stale_one_is,
    unary_calls_are_answered_out_of_order_beside_a_stream,
    credits_are_exact,
    a_stream_that_ends_without_credit_ends,
    cancel_is_answered_by_one_end_and_the_handler_is_called,
    a_connection_that_goes_cancels_its_calls,
    four_mebibytes_less_a_little_go_and_come,
    a_frame_that_comes_byte_by_byte_is_one_frame,
    a_thousand_requests_in_one_write_are_all_answered,
    health_and_reflection_answer,
    drain_answers_what_is_open_and_refuses_what_is_new,
    drain_is_over_after_its_grace,
    the_caller_over_ipc_is_known_by_uid,
    an_idle_server_uses_no_cpu,
]))
