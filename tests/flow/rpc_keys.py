#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A call with an idempotency key is executed once, whoever asks again and however its connection ends."""

import sys

import sp
from runner import check, run_cases, time_passes, until
from sp import Client, Server


def a_key_is_executed_once_and_answered_each_time():
    with Server() as s:
        key = {"idempotency-key": "k1"}
        a, b, tcp = Client(s.ipc), Client(s.ipc), Client(s.tcp)
        first = a.begin("Change", {"delay_ms": 300, "data": b"x"}, key)
        time_passes("the first call is executed", 0.1)
        second = b.begin("Change", {"delay_ms": 300, "data": b"x"}, key)
        check(a.end("Change", first).executed == 1 and b.end("Change", second).executed == 1, "joined")
        check(Client(s.ipc).unary("Change", {"delay_ms": 300, "data": b"x"}, key).executed == 1, "kept")
        f = a.fails("Change", {"delay_ms": 300, "data": b"y"}, key)
        check(f.code == sp.INVALID and f.reason == "IDEMPOTENCY_KEY_REUSED", f)
        check(a.fails("Change", {}, {"idempotency-key": ""}).code == sp.INVALID, "empty")
        check(a.fails("Change", {}, {"idempotency-key": "x" * 129}).code == sp.INVALID, "long")
        check(tcp.unary("Change", {"data": b"x"}, key).executed == 2, "another tenant's key is another")
        check(a.unary("Change", {}).executed == 3 and a.unary("Change", {}).executed == 4, "without a key: each time")


def a_keyed_call_outlives_its_connection():
    with Server() as s:
        key = {"idempotency-key": "k1"}
        a, b = Client(s.ipc), Client(s.ipc)
        a.begin("Change", {"delay_ms": 1000}, key)
        until(lambda: b.unary("Stats").open_calls == 2, "it runs")
        a.close()
        until(lambda: b.unary("Stats").connections == 1, "its connection has gone")
        check(b.unary("Change", {"delay_ms": 1000}, key).executed == 1, "joined after the first had gone")
        check(b.unary("Stats").handlers_disconnected == 0, "it was not cancelled")


def a_call_without_a_connection_ends_with_the_server():
    with Server() as s:
        a = Client(s.ipc)
        a.begin("Change", {"delay_ms": 60000}, {"idempotency-key": "k1"})
        a.unary("Echo", {})
        a.close()
        b = Client(s.ipc)
        until(lambda: b.unary("Stats").connections == 1, "the first has gone")
        check(b.unary("Stats").open_calls == 2, "it goes on")
        check(s.stop() == 0, "and is no leak")


def a_cancelled_keyed_call_may_be_executed_again():
    with Server() as s:
        key = {"idempotency-key": "k1"}
        a, b = Client(s.ipc), Client(s.ipc)
        watcher = Client(s.tcp)
        one = a.begin("Change", {"delay_ms": 1000}, key)
        until(lambda: watcher.unary("Stats").open_calls == 2, "the first is there")
        two = b.begin("Change", {"delay_ms": 1000}, key)
        until(lambda: watcher.unary("Stats").open_calls == 3, "the second is there")
        a.send(one, sp.Frame(kind=sp.CANCEL))
        check(a.recv(one).status.code == sp.CANCELLED, "the first gives up")
        check(b.end("Change", two).executed == 1, "the other still gets its answer")
        key = {"idempotency-key": "k2"}
        one = a.begin("Change", {"delay_ms": 60000}, key)
        a.send(one, sp.Frame(kind=sp.CANCEL))
        check(a.recv(one).status.code == sp.CANCELLED, "alone")
        check(a.unary("Change", {"delay_ms": 1}, {"idempotency-key": "k2"}).executed == 3, "again")


def a_stream_with_a_key_is_not_run_twice_and_says_where_it_is():
    with Server() as s:
        key = {"idempotency-key": "k1"}
        a, b = Client(s.ipc), Client(s.ipc)
        id_ = a.begin("Count", {"count": 3, "note": "abc123"}, key, credit=1)
        a.recv(id_)
        for _ in range(2):
            f = b.fails("Count", {"count": 3, "note": "abc123"}, key)
            check(f.code == sp.EXISTS and f.details["ErrorInfo"].metadata["process_id"] == "abc123", f)
            a.send(id_, sp.Frame(kind=sp.WINDOW, credit=10))
            time_passes("the stream ends", 0.1)
        check(b.unary("Stats").changes == 1, "once")
        f = b.fails("Count", {"fail": True}, {"idempotency-key": "k2"})
        check(f.code == sp.UNAVAILABLE and f.details["RetryInfo"].retry_delay_ms > 0, f)
        f = b.fails("Count", {"fail": True}, {"idempotency-key": "k2"})
        check(f.code == sp.UNAVAILABLE, "nothing had happened, so it may be tried again")


def keys_are_bounded_and_forgotten_in_time():
    with Server(idempotency_keys_max=3, idempotency_ms=2000) as s:
        c = Client(s.ipc)
        for i in range(3):
            c.unary("Change", {}, {"idempotency-key": f"k{i}"})
        f = c.fails("Change", {}, {"idempotency-key": "k4"})
        check(f.code == sp.EXHAUSTED and f.reason == "IDEMPOTENCY_KEYS", f)
        check(c.unary("Change", {}, {"idempotency-key": "k0"}).executed == 1, "those that are there answer")
        until(lambda: c.unary("Change", {}, {"idempotency-key": "k0"}).executed == 4, "and are forgotten")


def an_answer_that_is_not_kept_is_not_executed_for_again():
    with Server(idempotency_bytes_max=5000) as s:
        a, b = Client(s.ipc), Client(s.ipc)

        def change(n):
            return "Change", {"delay_ms": 100 * n, "data": b"x" * 1000}, {"idempotency-key": f"k{n}"}
        ids = [a.new_id() for _ in range(6)]  # in one write: when they begin there is room, however slow the machine
        a.socket.sendall(b"".join(a.pack(id_, a.call_frame(*change(n))) for n, id_ in enumerate(ids, 1)))
        for id_ in ids:
            check(a.end("Change", id_).data == b"x" * 1000, "all are answered")
        for n in range(1, 5):
            check(b.end("Change", b.begin(*change(n))).data == b"x" * 1000, "four answers are kept")
        for n in (5, 6):
            try:
                b.end("Change", b.begin(*change(n)))
                check(False, "more are not")
            except sp.Failed as f:
                check(f.code == sp.EXISTS and f.reason == "ALREADY_EXECUTED" and "has run" in f.message, f)
        f = a.fails("Change", {}, {"idempotency-key": "k7"})
        check(f.code == sp.EXHAUSTED and f.reason == "IDEMPOTENCY_KEYS", f)
        check(b.unary("Stats").changes == 6, "each was executed once")


sys.exit(run_cases([
    a_key_is_executed_once_and_answered_each_time,
    a_keyed_call_outlives_its_connection,
    a_call_without_a_connection_ends_with_the_server,
    a_cancelled_keyed_call_may_be_executed_again,
    a_stream_with_a_key_is_not_run_twice_and_says_where_it_is,
    keys_are_bounded_and_forgotten_in_time,
    an_answer_that_is_not_kept_is_not_executed_for_again,
]))
