#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A tenant that calls all the time gets its share of the broker while another is active, and all of it when it is alone. No call
is refused and no byte is lost."""

import mmap
import os
import struct
import sys
import time

import sp
from broker import Broker
from slowness import scaled
from runner import check, run_cases, time_passes, until

sp.load("proto/gen/descriptor_set.bin")
HEALTH = "/stockade.v1.HealthService/Check"
RUN = "/stockade.v1.ProcessService/Run"
GREEDY, OTHER = 65533, 65532
CONNECTIONS, AT_ONCE = 4, 50
JOBS = 24


def client(b, uid):
    with sp.as_user(uid):
        return sp.Client(b.address, timeout=scaled(60))


class Greedy:
    """A process that calls on several connections all the time, some calls with junk, and checks that each is answered."""

    def __init__(self, b):
        self.shared = mmap.mmap(-1, 16)  # calls so far; whether it should end
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self.call_all_the_time([client(b, GREEDY) for _ in range(CONNECTIONS)])
                code = 0
            finally:
                os._exit(code)

    def call_all_the_time(self, clients):
        n = 0
        while not self.shared[8]:
            sent = []
            for c in clients:
                ids = [c.new_id() for _ in range(AT_ONCE)]
                call = c.call_frame(HEALTH, {}).SerializeToString()
                c.socket.sendall(b"".join(c.pack(i, b"junk" if i % 7 == 0 else call) for i in ids))
                sent.append((c, ids))
            for c, ids in sent:
                for i in ids:
                    frame = c.recv(i)
                    check(frame.kind == sp.END, f"an END for {i}")
                    check(frame.status.code == (sp.INVALID if i % 7 == 0 else sp.OK), frame.status)
            n += CONNECTIONS * AT_ONCE
            self.shared[:8] = struct.pack("Q", n)

    def calls(self):
        return struct.unpack("Q", self.shared[:8])[0]

    def rate(self, seconds, meanwhile=lambda: time.sleep(0.1)):
        before, begun = self.calls(), time.monotonic()
        while time.monotonic() - begun < seconds:
            meanwhile()
        return (self.calls() - before) / (time.monotonic() - begun)

    def end(self):
        self.shared[8] = 1
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def metric(b, *words):
    """The sum of the lines that have all words."""
    lines = b.cli("metrics", "--prometheus").stdout.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if not line.startswith("#") and all(word in line for word in words))


def held_seconds(b):
    return metric(b, "stockade_tenant_rpc_held_seconds_total{", f"uid:{GREEDY}")


def ready(b):
    return metric(b, "stockade_pool_ready")


def a_flood_of_calls_slows_down_beside_another_tenant_and_only_then(b):
    idle, other = client(b, GREEDY), client(b, OTHER)
    greedy = Greedy(b)
    took = []

    def other_calls():
        begun = time.monotonic()
        other.unary(HEALTH, {})
        took.append(time.monotonic() - begun)
        time.sleep(0.05)

    until(lambda: greedy.calls() > 0, "it calls")
    alone = greedy.rate(1.0)
    greedy.rate(0.3, other_calls)  # what it may use at once
    beside = greedy.rate(1.5, other_calls)
    check(beside < alone / 3, f"{alone:.0f} calls per second alone, {beside:.0f} beside another tenant")
    check(max(took) < scaled(1), f"the other one waits {max(took):.3f} s at most")
    check(b.cli("info").returncode == 0, "root is answered")
    check(held_seconds(b) > 0.5, "the metrics say how long it waited")
    idle.unary(HEALTH, {})  # its turn comes, too
    time_passes("the other one counts as silent", 0.7)
    again = greedy.rate(1.0)
    check(again > beside * 2, f"{again:.0f} calls per second alone again, {beside:.0f} before")
    check(greedy.end() == 0, "each call was answered")
    idle.close()
    other.close()


class Churner(Greedy):
    """The same with a connection for each 50 calls. In between it has none."""

    def __init__(self, b):
        self.b = b
        super().__init__(b)

    def call_all_the_time(self, clients):
        for c in clients:
            c.close()
        n = 0
        while not self.shared[8]:
            c = client(self.b, GREEDY)
            ids = [c.new_id() for _ in range(AT_ONCE)]
            call = c.call_frame(HEALTH, {}).SerializeToString()
            c.socket.sendall(b"".join(c.pack(i, call) for i in ids))
            for i in ids:
                check(c.recv(i).status.code == sp.OK, "it is answered")
            c.close()
            n += AT_ONCE
            self.shared[:8] = struct.pack("Q", n)


def a_connection_for_each_call_is_no_way_around_the_share(b):
    other = client(b, OTHER)
    other.unary(HEALTH, {})
    before = held_seconds(b)
    churner = Churner(b)

    def held():
        other.unary(HEALTH, {})
        return held_seconds(b) - before > 0.5

    until(held, "it waits for its turn, as one with lasting connections does")
    check(metric(b, "stockade_tenant_rpc_held_seconds_total{", f"uid:{OTHER}") == 0, "and the other one does not")
    check(churner.end() == 0, "each call was answered")
    other.close()


def output_of_a_tenant_that_waits_is_complete(b):
    """Its calls have used up the share, so the stream of output waits in turn with them."""
    size = 3000000
    reader, other, greedy = client(b, GREEDY), client(b, OTHER), Greedy(b)
    id_ = reader.begin(RUN, {"command": {"args": ["/usr/bin/head", "-c", str(size), "/dev/zero"]}}, credit=100000)
    event, got = sp.message("stockade.v1.RunResponse"), 0
    while True:
        other.unary(HEALTH, {})
        frame = reader.recv(id_)
        if frame.kind == sp.END:
            break
        message = event.FromString(frame.payload).event
        check(not message.HasField("gap"), "no gap")
        got += len(message.output.data)
    check(frame.status.code == sp.OK and got == size, f"{got} of {size} bytes, {frame.status}")
    check(greedy.end() == 0, "each call was answered")
    reader.close()
    other.close()


def one_that_leaves_while_it_waits_is_forgotten(b):
    other = client(b, OTHER)
    for _ in range(3):
        c = [client(b, GREEDY) for _ in range(8)]
        for each in c:
            call = each.call_frame(HEALTH, {}).SerializeToString()
            each.socket.sendall(b"".join(each.pack(each.new_id(), call) for _ in range(500)))
        other.unary(HEALTH, {})
        for each in c:
            each.close()
        other.unary(HEALTH, {})
    last = client(b, GREEDY)
    last.unary(HEALTH, {})
    last.close()
    other.close()


class Other:
    """A process that runs `true` all the time."""

    def __init__(self, b):
        self.shared = mmap.mmap(-1, 16)  # runs so far; whether it should end
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                c = client(b, OTHER)
                while not self.shared[8]:
                    ended(c, c.begin(RUN, {"command": {"args": ["/bin/true"]}}, credit=100))
                    self.shared[0] = min(self.shared[0] + 1, 255)
                    time.sleep(0.02)
                code = 0
            finally:
                os._exit(code)

    def end(self):
        self.shared[8] = 1
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def ended(c, id_):
    while True:
        frame = c.recv(id_)
        if frame.kind == sp.END:
            check(frame.status.code == sp.OK, frame.status)
            return


def sandboxes_of_a_tenant_begin_one_after_the_other_beside_another_tenant(b):
    """Its share of the processors is none, so it may begin one in 30 ms; all are ready. Each job lasts longer, so they run at once."""
    event, began, over = sp.message("stockade.v1.RunResponse"), [], 0
    until(lambda: ready(b) >= JOBS, "the sandboxes are ready", 60)
    other, c = Other(b), client(b, GREEDY)
    until(lambda: other.shared[0] > 0, "the other one runs")
    for _ in range(JOBS):
        c.begin(RUN, {"command": {"args": ["/bin/sleep", "1"]}}, credit=100)
    while over < JOBS:
        _, frame = c.recv_any()
        over += frame.kind == sp.END
        check(frame.kind != sp.END or frame.status.code == sp.OK, frame.status)
        if frame.kind == sp.DATA and event.FromString(frame.payload).event.HasField("started"):
            began.append(time.monotonic())
    spread = began[-1] - began[0]
    check(len(began) == JOBS and spread > (JOBS - 1) * 0.03 * 0.9, f"{len(began)} jobs began within {spread:.3f} s")
    check(other.end() == 0, "each run of the other one ended well")
    c.close()


CONFIG = f"""socket: {{mode: 0666}}
pool: {JOBS}
metrics: {{tenants: 4}}
quotas:
  tenants:
    "uid:{OTHER}": {{weight: 100}}
"""

with Broker(config=CONFIG) as BROKER:
    CODE = run_cases([
        a_flood_of_calls_slows_down_beside_another_tenant_and_only_then,
        a_connection_for_each_call_is_no_way_around_the_share,
        output_of_a_tenant_that_waits_is_complete,
        one_that_leaves_while_it_waits_is_forgotten,
        sandboxes_of_a_tenant_begin_one_after_the_other_beside_another_tenant,
    ], call=lambda case: case(BROKER))
sys.exit(CODE)
