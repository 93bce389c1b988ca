#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Several tenants: a thousand requests or connections of one do not lock out another, and delay it only a little."""

import json
import os
import sys
import threading

import sp
from broker import Broker, rss_kib
from slowness import scaled
from runner import check, run_cases, time_passes, until

sp.load("proto/gen/descriptor_set.bin")
PROCESS = "/stockade.v1.ProcessService/"
RUN = PROCESS + "Run"
DENIED = 7
GREEDY, OTHER, THIRD, FOURTH = 65533, 65532, 65531, 65530


def client(b, uid):
    with sp.as_user(uid):
        return sp.Client(b.address, timeout=scaled(60))


def client_again(b, uid):
    """Once the broker has noticed that the connections of the case before are closed."""
    def one():
        try:
            return client(b, uid)
        except sp.Closed:
            return None

    return until(one, "there is room for a connection")


def connections(b, uid, most):
    """As many as it gets."""
    found = []
    for _ in range(most):
        try:
            found.append(client(b, uid))
        except (sp.Closed, OSError):
            break
    return found


def ended(c, id_):
    """The END of a stream."""
    while True:
        frame = c.recv(id_)
        if frame.kind == sp.END:
            return frame.status.code if frame.HasField("status") else 0


def the_last_connections_are_for_tenants_without_one_and_for_root(b):
    theirs = connections(b, GREEDY, 40)
    check(len(theirs) == 28, f"one tenant has {len(theirs)} of 32")
    check(len(connections(b, GREEDY, 1)) == 0, "and no more")
    first, second = connections(b, OTHER, 2), connections(b, THIRD, 2)
    check(len(first) == 1 and len(second) == 1, "tenants without one get one")
    check(len(connections(b, FOURTH, 1)) == 0, "until what is left is root's")
    check(b.cli("info").returncode == 0, "who can look what is wrong")
    for c in theirs + first + second:
        c.close()


def a_run_waits_for_one_of_each_other_tenant_and_takes_a_place_of_who_has_most(b):
    """The queue is full of another's, and each of the four sandboxes takes a while."""
    greedy, other = client_again(b, GREEDY), client_again(b, OTHER)
    command = {"args": ["/bin/sleep", "0.1"]}
    theirs = [greedy.begin(RUN, {"command": command}, credit=100) for _ in range(80)]
    greedy.unary("/stockade.v1.HealthService/Check", {})  # the broker has read all of them
    ran, refused = [], []

    def add(frame):
        if frame.kind == sp.END:
            (refused if frame.HasField("status") else ran).append(frame)

    def count():
        for frames in greedy.others.values():
            for frame in frames:
                add(frame)
        while len(ran) + len(refused) < len(theirs):
            add(greedy.recv_any()[1])

    counter = threading.Thread(target=count)
    counter.start()
    code = ended(other, other.begin(RUN, {"command": command}, credit=100))
    before = len(ran)
    counter.join(scaled(60))
    check(code == 0, f"its run is taken: {code}")
    check(before < 30, f"{before} of 50 that were queued before it had run")
    check(all(f.status.code == sp.EXHAUSTED for f in refused) and len(refused) >= 10, f"what was too much is refused: {len(refused)}")
    delays = [sp.Failed(f.status).details["RetryInfo"].retry_delay_ms for f in refused]
    check(all(100 <= ms <= 10000 for ms in delays), f"and says when to try again: {delays}")
    greedy.close()
    other.close()


def unread_output_is_charged_to_the_tenant(b):
    """30 jobs whose output is not read: they wait at their pipes. Another tenant has its own share; and no byte is
    lost, also of a job that begins then and is read first."""
    greedy, other = client_again(b, GREEDY), client_again(b, OTHER)
    box = greedy.unary("/stockade.v1.SandboxService/Create", {}).sandbox.id
    settled = rss_kib(b.process.pid)
    command = {"args": ["/usr/bin/head", "-c", "1500000", "/dev/zero"]}
    start = "/stockade.v1.ProcessService/Start"
    jobs = [greedy.begin(start, {"sandbox_id": box, "command": command}, credit=2) for _ in range(30)]
    for id_ in jobs:
        greedy.recv(id_)
    time_passes("the pipes fill up", 1)
    grown = rss_kib(b.process.pid) - settled
    print(f"grown by {grown} KiB", flush=True)
    check(grown < 30000, f"the broker has grown by {grown} KiB")
    code = ended(other, other.begin(RUN, {"command": {"args": ["/bin/true"]}}, credit=100))
    check(code == 0, f"another one's run: {code}")
    check(greedy.unary("/stockade.v1.SandboxService/Get", {"id": box}).sandbox.id == box, "its own calls are answered")
    late = greedy.begin(start, {"sandbox_id": box, "command": command}, credit=2)
    greedy.recv(late)
    for id_ in [late, *jobs]:  # the late one found nothing left of the share
        greedy.send(id_, sp.Frame(kind=sp.WINDOW, credit=100000))
        got = gaps = 0
        answer = sp.message("stockade.v1.StartResponse")
        while (frame := greedy.recv(id_)).kind != sp.END:
            event = answer.FromString(frame.payload).event
            got += len(event.output.data)
            gaps += event.gap.bytes
        check(got + gaps == 1500000, f"{got} bytes and gaps of {gaps}")


def quotas(c, **request):
    info = c.unary("/stockade.v1.SystemService/Info", request)
    return {q.name: (q.used, q.limit) for q in info.quotas}, info.weight


def what_a_tenant_holds_is_bounded_and_listed(b):
    """Memory: 1.5G for the third tenant, in sandboxes of 512M or less."""
    third = client_again(b, THIRD)
    create = "/stockade.v1.SandboxService/Create"
    f = third.fails(create, {"limits": {"memory_bytes": 2 << 30}})
    check(f.code == sp.EXHAUSTED and f.reason == "QUOTA_MEMORY" and "has 0 of memory" in f.message and "2G more" in f.message, f)
    about = f.details["ErrorInfo"].metadata
    check(about["rule"] == "quotas.memory_per_caller" and about["allowed"] == "memory_bytes: at most 1536M, used 0", dict(about))
    boxes = [third.unary(create, {"limits": {"memory_bytes": 512 << 20, "cpu_millis": 500}}).sandbox.id for _ in range(3)]
    f = third.fails(create, {"limits": {"memory_bytes": 8 << 20}})
    check(f.reason == "QUOTA_MEMORY", f)
    used, weight = quotas(third)
    check(used["sandboxes"] == (3, 1000) and used["memory_bytes"] == (1536 << 20, 1536 << 20) and used["cpu_millis"][0] == 1500, used)
    check(used["disk_bytes"] == (3 * 256 << 20, 0) and weight == 4, f"no limit of disk: {used}, {weight}")
    for box in boxes:
        third.unary("/stockade.v1.SandboxService/Delete", {"id": box})
    check(quotas(third)[0]["memory_bytes"][0] == 0, "and given back")
    f = third.fails("/stockade.v1.SystemService/Info", {"tenant": "uid:1"})
    check(f.code == DENIED, "others' are not shown")
    third.close()
    root = sp.Client(b.address)
    check(quotas(root, tenant=f"uid:{THIRD}")[1] == 4, "but to operators")
    shown = BROKER.json("info", "--tenant", f"uid:{THIRD}")[1]
    check((shown["tenant"], shown["weight"]) == (f"uid:{THIRD}", 4), shown)
    check(any(q["name"] == "memory_bytes" for q in shown["quotas"]), shown)
    root.close()
    check(b"memory_bytes" in b.cli("info").stdout and json.loads(b.cli("info", "-o", "json").stdout)["weight"] == 1, "info")


def jobs_of_a_minute_are_bounded_also_in_a_batch(b):
    def run(c):
        return ended(c, c.begin(RUN, {"command": {"args": ["/bin/true"]}}, credit=100))

    c = client_again(b, FOURTH)
    for _ in range(3):
        check(run(c) == 0, "three may run")
    id_ = c.begin(RUN, {"command": {"args": ["/bin/true"]}}, credit=100)
    f = sp.Failed(c.recv(id_).status)
    check(f.code == sp.EXHAUSTED and f.reason == "QUOTA_JOBS_PER_MINUTE", f)
    check(10000 < f.details["RetryInfo"].retry_delay_ms <= 20001, f.details["RetryInfo"])
    c.close()
    c = client_again(b, FOURTH)
    check(run(c) == sp.EXHAUSTED, "also over another connection")
    check(quotas(c)[0]["jobs_per_minute"] == (3, 3), quotas(c))
    stream = c.begin(PROCESS + "RunBatch", {"key": "k", "parallel": 2}, credit=1000)
    c.recv(stream)
    jobs = [{"command": {"args": ["/bin/true"]}} for _ in range(4)]
    c.unary(PROCESS + "AddToBatch", {"key": "k", "jobs": jobs, "last": True})
    time_passes("its jobs could begin", 0.3)
    check(quotas(c)[0]["jobs_per_minute"][0] == 3 and not c.others.get(stream), "the jobs of a batch wait")
    said = b.reload(CONFIG.replace("jobs_per_minute: 3", "jobs_per_minute: 0"))
    check("quotas.tenants" in said, said)
    event, ran = sp.message("stockade.v1.RunBatchResponse"), 0
    while ran < 4:
        ran += event.FromString(c.recv(stream).payload).HasField("finished")
    check(run(c) == 0, "and go on when there is no limit any more")
    c.close()


CONFIG = f"""socket: {{mode: 0666}}
pool: 1
quotas:
  sandboxes: 4
  queue: 50
  tenants:
    "uid:{THIRD}": {{weight: 4, memory: 1536M, disk: 0}}
    "uid:{FOURTH}": {{jobs_per_minute: 3}}
rpc: {{connections: 32, bytes_per_uid: 8M}}
"""

with Broker(config=CONFIG) as BROKER:
    CODE = run_cases([
        the_last_connections_are_for_tenants_without_one_and_for_root,
        unread_output_is_charged_to_the_tenant,
        what_a_tenant_holds_is_bounded_and_listed,
        jobs_of_a_minute_are_bounded_also_in_a_batch,
        a_run_waits_for_one_of_each_other_tenant_and_takes_a_place_of_who_has_most,
    ], call=lambda case: case(BROKER))
sys.exit(CODE)
