#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the broker counts: each number moves with what happens, equals what `info` says is lost, and is for root alone."""

import os
import re
import signal
import sys
import threading

import sp
from api import PROCESS, SYSTEM, connect, with_client
from broker import Broker
from slowness import SLOWNESS, scaled
from runner import check, run_cases, until

METRICS = "/stockade.v1.MetricsService/Get"
APPROVAL = "/stockade.v1.ApprovalService/"
COUNTER, GAUGE, HISTOGRAM = 1, 2, 3
DENIED_PERMISSION, INVALID = 7, 3
ANOMALY = "/stockade.v1.AnomalyService/"


class Numbers:
    """The answer of one call; numbers["name"], numbers["name", "label value", ...] (a sum over the other labels)."""

    def __init__(self, c, prefix=""):
        self.metrics = {m.name: m for m in c.unary(METRICS, {"prefix": prefix}).metrics}

    def __getitem__(self, key):
        name, *labels = (key,) if isinstance(key, str) else key
        return sum(s.value for s in self.metrics["stockade_" + name].samples if all(v in s.labels for v in labels))

    def count(self, name, *labels):
        """Observations of a histogram."""
        return sum(s.count for s in self.metrics["stockade_" + name].samples if all(v in s.labels for v in labels))


def moved(c, act, *keys):
    """How far the values of these keys move while act() runs."""
    before = Numbers(c)
    act()
    after = Numbers(c)
    return [after[key] - before[key] for key in keys]


# ---- refusals


def only_root_may_read_them(b, c):
    refused = b.stranger("metrics")
    check(refused.returncode == 77 and b"metrics.read" in refused.stderr and refused.stdout == b"", str(refused))
    check(b"stockade.v1" not in refused.stderr and refused.stderr.startswith(b"stockade metrics: uid:"), refused.stderr)
    with sp.as_user(54321):
        stranger = connect(b)
    failed = stranger.fails(METRICS, {})
    check(failed.code == DENIED_PERMISSION and failed.reason == "SCOPE_MISSING", str(failed))
    stranger.close()


def a_prefix_is_the_beginning_of_a_name_and_nothing_else(b, c):
    check(c.fails(METRICS, {"prefix": "stockade*"}).code == INVALID, "no pattern")
    check(not Numbers(c, "nothing_").metrics, "none begins with this")
    some = Numbers(c, "stockade_pool_").metrics
    check(len(some) > 5 and all(name.startswith("stockade_pool_") for name in some), str(list(some)))


# ---- what the table says


def every_metric_says_what_it_is(b, c):
    every = Numbers(c).metrics
    check(len(every) > 50, f"{len(every)} metrics")
    for m in every.values():
        check(re.fullmatch("stockade_[a-z0-9_]+", m.name) and m.help.endswith(".") and m.type in (COUNTER, GAUGE, HISTOGRAM), str(m))
        for s in m.samples:
            check(len(s.labels) == len(m.labels) and all(s.labels), str(m))
            check(m.type != HISTOGRAM or (len(s.buckets) == len(m.bounds) + 1 and sum(s.buckets) == s.count), str(m))
        check(list(m.bounds) == sorted(set(m.bounds)), str(m))
        check(len({tuple(s.labels) for s in m.samples}) == len(m.samples), f"a sample twice: {m}")
    version = every["stockade_build_info"].samples[0]
    check(version.value == 1 and version.labels[0] == c.unary(SYSTEM + "Info", {}).version, str(version))


# What may go wrong, and what has to be seen: each has a number, of this type, and with these labels.
NAMED = {
    "queue length": ("pool_queue_length", GAUGE, ""), "queue age": ("pool_oldest_wait_seconds", GAUGE, ""), "wait for a sandbox": ("pool_wait_seconds", HISTOGRAM, ""),
    "pool hits": ("pool_hits_total", COUNTER, ""), "pool misses": ("pool_misses_total", COUNTER, ""), "set-up time": ("sandbox_birth_duration_seconds", HISTOGRAM, ""),
    "sandboxes by state": ("sandboxes", GAUGE, "state template"), "jobs by state": ("jobs", GAUGE, "state template"), "outcomes by reason": ("jobs_ended_total", COUNTER, "outcome template"),
    "limits hit": ("job_limits_hit_total", COUNTER, "limit"), "out of memory": ("job_oom_kills_total", COUNTER, ""), "throttled time": ("job_throttled_seconds_total", COUNTER, ""),
    "denials by kind": ("denials_total", COUNTER, "operation"), "bytes through the relay": ("relay_bytes_total", COUNTER, "direction"),
    "connections through the relay": ("relay_connections_total", COUNTER, "result"), "DNS answers": ("dns_answers_total", COUNTER, "result"),
    "ring events received": ("kernel_events_total", COUNTER, "class"), "ring events lost": ("kernel_lost_events_total", COUNTER, "class"),
    "map entries": ("bpf_map_entries", GAUGE, "map"), "map capacity": ("bpf_map_capacity", GAUGE, "map"), "findings": ("findings_total", COUNTER, "rule"),
    "findings withheld": ("findings_withheld_total", COUNTER, "rule"), "alerts": ("alerts_total", COUNTER, "rule"), "findings silenced": ("findings_silenced_total", COUNTER, "rule"),
    "calls": ("rpc_calls_total", COUNTER, "method code"), "time of calls": ("rpc_call_duration_seconds", HISTOGRAM, "method"), "connections": ("rpc_connections", GAUGE, ""),
    "bytes received": ("rpc_received_bytes_total", COUNTER, ""), "bytes sent": ("rpc_sent_bytes_total", COUNTER, ""),
    "errors of the spawner": ("spawner_failures_total", COUNTER, "operation"), "guests that failed": ("sandboxes_lost_total", COUNTER, ""),
    "descriptors": ("broker_open_descriptors", GAUGE, ""), "most descriptors": ("broker_max_descriptors", GAUGE, ""),
    "memory of each process": ("process_resident_memory_bytes", GAUGE, "process"), "the build": ("build_info", GAUGE, "version"),
}
BOUNDED = {"": 1, "method": 128, "code": 17, "reason": 4, "result": 4, "level": 4, "state": 9, "outcome": 8, "limit": 16, "status": 8, "template": 32, "operation": 48, "kind": 128,
           "class": 16, "sink": 8, "rule": 56, "response": 7, "verdict": 4, "tenant": 65, "direction": 2, "map": 4, "process": 4, "version": 1}


def what_may_go_wrong_has_a_number_and_no_label_is_unbounded(b, c):
    box = c.unary("/stockade.v1.SandboxService/Create", {"name": "only-once"}).sandbox
    every = Numbers(c).metrics
    for what, (name, kind, labels) in NAMED.items():
        m = every.get("stockade_" + name)
        check(m is not None and m.type == kind and set(m.labels) == set(labels.split()), f"{what}: {name}, {kind}, {labels!r}: {m.labels if m else None} {m.type if m else None}")
        check(kind != HISTOGRAM or len(m.bounds) >= 20, f"{what}: {len(m.bounds)} buckets: no p99 can be read")
    check(sorted(every["stockade_process_resident_memory_bytes"].samples[i].labels[0] for i in range(3)) == ["broker", "relay", "spawner"], "each process")
    for m in every.values():
        for i, label in enumerate(m.labels):
            values = {s.labels[i] for s in m.samples}
            check(label in BOUNDED and len(values) <= BOUNDED[label], f"{m.name}: {label}: {len(values)}")
            check(not values & {box.id, box.name}, f"{m.name} names a sandbox")
    c.unary("/stockade.v1.SandboxService/Delete", {"id": box.id})


# ---- what happens


def a_run_moves_pool_sandboxes_jobs_and_calls(b, c):
    until(lambda: Numbers(c)["sandboxes", "READY"] == 2, "the pool is full")
    n = moved(c, lambda: c.run("echo hello; exit 3"), "pool_hits_total", "pool_misses_total", "jobs_started_total",
              ("jobs_ended_total", "EXITED"), "jobs_ended_total", "job_output_bytes_total",
              ("events_total", "JOB_STARTED"), ("events_total", "JOB_ENDED"),
              ("rpc_calls_total", PROCESS + "Run", "OK"), ("rpc_calls_total", METRICS, "OK"))
    check(n == [1, 0, 1, 1, 1, 6, 1, 1, 1, 1], str(n))
    now = Numbers(c)
    check(now["jobs"] == 0 and now["rpc_open_calls"] == 1 and now["rpc_connections"] >= 1, "this call alone is open")
    for name in ("job_duration_seconds", "pool_wait_seconds", "sandbox_birth_duration_seconds"):
        check(now.count(name) >= 1, name)
    check(now.count("rpc_call_duration_seconds", PROCESS + "Run") >= 1, "the time of the call")
    check(now.count("sandbox_birth_duration_seconds") == now["sandbox_births_total"] >= 2, "a time for each birth")
    check(now["start_time_seconds"] > 1.6e9, "since 1970")
    until(lambda: Numbers(c)["sandboxes", "DELETING"] == 0 and Numbers(c)["sandboxes", "READY"] == 2, "the pool is full again")
    check(sum(s.value for s in Numbers(c).metrics["stockade_sandboxes"].samples) == c.unary(SYSTEM + "Info", {}).sandboxes,
          "each sandbox has one state")
    check(Numbers(c)["pool_ready", "default"] == 2, "and the pool says so")


def jobs_are_counted_by_template_with_what_they_used(b, c):
    used = {}

    def work():
        burn = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
        used["bill"] = c.run(f"exec python3 -c '{burn}'", {"cpu_millis": 100}).result.bill  # a busy host gives it as much

    cpu, throttled, ended = moved(c, work, "job_cpu_seconds_total", "job_throttled_seconds_total",
                                  ("jobs_ended_total", "EXITED", "default"))
    bill = used["bill"]
    check(ended == 1, str(ended))
    check(abs(cpu - (bill.cpu_user_ns.value + bill.cpu_system_ns.value) / 1e9) < 1e-6 and cpu > 0.2, f"{cpu} {bill}")
    check(abs(throttled - bill.throttled_ns.value / 1e9) < 1e-6 and throttled > 0, f"{throttled} {bill}")
    eat = "exec python3 -c 'x = bytearray(300 << 20)'"
    kills = moved(c, lambda: c.run(eat, {"memory_bytes": 64 << 20}), "job_oom_kills_total")
    check(kills[0] >= 1, str(kills))


def refusals_are_counted_by_operation_and_tenant(b, c):
    knock = 'exec python3 -c "import socket; socket.socket().connect_ex((\'192.0.2.1\', 80))"'
    n = moved(c, lambda: c.run(knock), ("denials_total", "connect"), "denials_total", ("tenant_denials_total", "uid:0"))
    check(n == [1, 1, 1], str(n))


def a_tenant_beyond_the_configured_number_is_another_one(b, c):
    """metrics.tenants is 1, and root came first."""
    n = moved(c, lambda: c.run("exit 0"), ("tenant_jobs_ended_total", "uid:0", "EXITED"), ("tenant_jobs_ended_total", "other"))
    check(n == [1, 0], str(n))
    n = moved(c, lambda: check(b.stranger("run", "true").returncode == 0, "it runs"),
              ("tenant_jobs_ended_total", "uid:0"), ("tenant_jobs_ended_total", "other", "EXITED"))
    check(n == [0, 1], str(n))
    check({s.labels[0] for s in Numbers(c).metrics["stockade_tenant_cpu_seconds_total"].samples} == {"uid:0", "other"}, "two")


def processes_have_memory_and_descriptors(b, c):
    n = Numbers(c)
    pids = {name: pid for pid, name in b.processes().items()}
    for label, name in (("broker", "stockaded"), ("spawner", "stockade-spawne"), ("relay", "stockade-relay")):
        if name not in pids:
            continue
        with open(f"/proc/{pids[name]}/statm", encoding="ascii") as f:
            really = int(f.read().split()[1]) * 4096
        said = n["process_resident_memory_bytes", label]
        check(0.5 < said / really < 2, f"{label}: {said}, not {really}")
    counts = []

    def agree():
        """Only while the pool is not making a sandbox: each has descriptors of its own."""
        before = len(os.listdir(f"/proc/{pids['stockaded']}/fd"))
        said = Numbers(c)["broker_open_descriptors"]
        counts[:] = [before, said, len(os.listdir(f"/proc/{pids['stockaded']}/fd"))]
        return len(set(counts)) == 1

    until(agree, lambda: f"descriptors before, said, and after: {counts}")
    check(n["broker_max_descriptors"] > n["broker_open_descriptors"], "there is room")
    check(n["bpf_map_capacity", "sandboxes"] > n["bpf_map_entries", "sandboxes"] > 0, "entries of maps")


def the_reader_reads_what_belongs_to_all_and_does_nothing(b, c):
    """metrics.reader is nobody."""
    with sp.as_user(65534):
        reader = connect(b)
    check(Numbers(reader)["jobs_ended_total"] > 0, "it reads metrics")
    call = reader.begin("/stockade.v1.TelemetryService/Subscribe", {"tenant": "*", "kept_only": True, "from_sequence": 1}, credit=1000)
    check(reader.recv(call).kind == sp.DATA, "it reads events of all tenants")
    for method, request in ((PROCESS + "Run", {"command": {"args": ["true"]}}), ("/stockade.v1.SandboxService/Create", {}),
                            (PROCESS + "List", {}), ("/stockade.v1.SandboxService/List", {}), (ANOMALY + "AcknowledgeFinding", {"sequence": 1}),
                            (ANOMALY + "CreateSilence", {"rule": "mining", "reason": "x", "ttl_ms": 1000}), (ANOMALY + "DeleteSilence", {"silence_id": "0"})):
        failed = reader.fails(method, request)
        check(failed.code == DENIED_PERMISSION and failed.reason == "SCOPE_MISSING", f"{method}: {failed}")
    secret = sp.message("stockade.v1.RunRequest")(command={"args": ["deploy"], "env": [{"name": "KEY", "value": "hunter2"}]})
    asked = c.unary(APPROVAL + "Create", {"method": "ProcessService/Run", "request": secret.SerializeToString()}).approval
    check(b"hunter2" in c.unary(APPROVAL + "Get", {"id": asked.id}).approval.request, "its own tenant reads the request")
    seen = reader.unary(APPROVAL + "Get", {"id": asked.id}).approval
    check((seen.subject, seen.request, seen.request_bytes) == ("deploy", b"", asked.request_bytes), f"the reader does not: {seen}")
    check(reader.fails(APPROVAL + "Deny", {"id": asked.id}).code == DENIED_PERMISSION, "nor does it answer")
    c.unary(APPROVAL + "Cancel", {"id": asked.id})
    reader.close()


def how_jobs_end_and_what_they_hit_is_counted(b, c):
    box = c.unary("/stockade.v1.SandboxService/Create", {}).sandbox.id
    n = moved(c, lambda: c.run("sleep 60", {"wall_ms": 100}), ("jobs_ended_total", "LIMIT"),
              ("job_limits_hit_total", "wall_ms"), ("events_total", "LIMIT_HIT"))
    check(n == [1, 1, 1], str(n))

    def missing():
        try:
            c.finish(c.stream("Start", {"sandbox_id": box, "command": {"args": ["/nowhere"]}}))
        except AssertionError:
            pass

    check(moved(c, missing, ("jobs_ended_total", "NOT_EXECUTED")) == [1], "a program that is not there")
    job = c.start(box, "sleep 60")
    check(Numbers(c)["jobs"] == 1 and Numbers(c)["rpc_open_streams"] == 1, "one runs")
    until(lambda: Numbers(c)["jobs", "RUNNING", "default"] == 1, "and is RUNNING")
    check([Numbers(c)["jobs", state] for state in ("STARTING", "DRAINING")] == [0, 0], "and nothing else")
    n = moved(c, lambda: (c.unary("/stockade.v1.SandboxService/Delete", {"id": box}), c.finish(job)),
              ("jobs_ended_total", "CANCELLED"), ("spawner_requests_total", "destroy"), "jobs")
    check(n == [1, 1, -1], str(n))
    out = moved(c, lambda: c.run("head -c 5000 /dev/zero", {"output_bytes": 1000}), "job_output_bytes_total",
                "job_output_cut_bytes_total")
    check(out[1] == 4000, str(out))


def bytes_and_failed_calls_are_counted(b, c):
    other = connect(b)
    before = Numbers(c)
    check(other.fails("/stockade.v1.SandboxService/Get", {"id": "f" * 32}).code == 5, "there is none")
    check(other.fails("/stockade.v1.SandboxService/None", b"").code == 12, "no such method")
    after = Numbers(c)
    get = "/stockade.v1.SandboxService/Get"
    check(after["rpc_calls_total", get, "NOT_FOUND"] - before["rpc_calls_total", get, "NOT_FOUND"] == 1, "by code")
    check(after["rpc_calls_total", "other", "UNIMPLEMENTED"] - before["rpc_calls_total", "other", "UNIMPLEMENTED"] == 1,
          "one of no method")
    check(after["rpc_received_bytes_total"] - before["rpc_received_bytes_total"] > 100, "bytes in")
    check(after["rpc_sent_bytes_total"] - before["rpc_sent_bytes_total"] > 10000, "bytes out: the first answer")
    other.close()
    key = {"idempotency-key": f"metrics-{os.getpid()}"}
    box = c.unary("/stockade.v1.SandboxService/Create", {}, metadata=key).sandbox.id
    n = moved(c, lambda: c.unary("/stockade.v1.SandboxService/Create", {}, metadata=key), "rpc_repeated_calls_total")
    check(n == [1], str(n))
    c.unary("/stockade.v1.SandboxService/Delete", {"id": box})


def a_flood_loses_events_by_class_and_the_record_says_the_same(b, c):
    before = Numbers(c)
    script = ("import socket, time; end = time.monotonic() + 1; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
              "while time.monotonic() < end:\n for i in range(200):\n  try: s.sendto(b'x', ('192.0.2.9', 9))\n  except OSError: pass")
    job = c.run(f'exec python3 -c "{script}"')
    lost = {x.event_class: x.events for x in job.result.record.completeness.lost}
    after = Numbers(c)
    classes = {s.labels[0] for s in after.metrics["stockade_kernel_lost_events_total"].samples}
    check(sum(lost.values()) > 0, "something was lost")
    for one in classes:
        n = after["kernel_lost_events_total", one] - before["kernel_lost_events_total", one]
        check(n == lost.get(one, 0), f"{one}: {n}, not {lost.get(one, 0)}")
    came = after["kernel_events_total", "denial"] - before["kernel_events_total", "denial"]
    check(came >= 200, f"those within the budget came: {came}")
    check(after["events_total", "DENIED"] - before["events_total", "DENIED"] == came, "and each became an event")
    check(after["events_total", "GAP"] > before["events_total", "GAP"], "as did the gap")
    check(after["kernel_malformed_events_total"] == 0, "each was understood")


def findings_are_counted_by_rule(b, c):
    rule = "sensitive-path"
    n = moved(c, lambda: c.run("cat /etc/shadow; sleep 0.3"), ("findings_total", rule), ("events_total", "FINDING"))
    check(n[0] >= 1 and n[1] >= n[0], str(n))


# ---- losses


def what_is_lost_is_the_same_in_english(b, c):
    def told(part):
        return [int(line[len(part):].split()[0]) for line in c.unary(SYSTEM + "Info", {}).degraded if line.startswith(part)]

    until(lambda: Numbers(c)["rpc_connections"] == 1, "those of the cases before are closed")
    check(told("rpc.connections: ") == [] and Numbers(c)["rpc_connections_refused_total"] == 0, "nothing was refused")
    kept = []
    refused = 0
    while refused < 3:
        try:
            kept.append(sp.Client(b.address, timeout=scaled(60)))
        except (sp.Closed, OSError):
            refused += 1
    n = Numbers(c)
    check(n["rpc_connections_refused_total"] == refused == n["rpc_connections_refused_total", "tenant-full"], "each refusal")
    check(told("rpc.connections: ") == [refused], "and info says the same number")
    check(n["rpc_connections"] == 1 + len(kept), "those that were accepted are open")
    for one in kept:
        one.close()
    until(lambda: Numbers(c)["rpc_connections"] == 1, "they are closed")
    losses = c.unary(SYSTEM + "Info", {}).degraded
    check(not any(line.startswith(("telemetry: ", "log: ", "anomaly: ")) for line in losses), str(losses))


def a_greeting_of_another_protocol_is_counted(b, c):
    def strange():
        with sp.connect(b.address) as s:
            s.sendall(b"GET / HTTP/1.1\r\n")
            s.recv(1)

    def safely():
        try:
            strange()
        except ConnectionResetError:
            pass

    check(moved(c, safely, "rpc_handshake_failures_total") == [1], "one handshake failed")


def the_queue_has_a_length_and_a_wait(b, c):
    other = connect(b)
    number = 12 if SLOWNESS == 1 else 5  # who waits 2 s for one of the 4 sandboxes is refused
    jobs = [other.begin_run("sleep 0.3") for _ in range(number)]
    until(lambda: Numbers(c)["pool_queue_length"] > 0, "some wait")
    for job in jobs:
        other.finish(job)
    n = Numbers(c)
    check(n["pool_queue_length"] == 0 and n["pool_misses_total"] > 0, "none waits any more")
    wait = n.metrics["stockade_pool_wait_seconds"].samples[0]
    check(wait.sum > 0.1 and wait.count >= number, str(wait))
    other.close()


def a_relay_that_ends_is_counted(b, c):
    pids = [pid for pid, name in b.processes().items() if name == "stockade-relay"]
    if not pids:
        return
    before = Numbers(c)
    os.kill(pids[0], 9)
    until(lambda: Numbers(c)["relay_starts_total"] == before["relay_starts_total"] + 1, "another one was started")
    check(Numbers(c)["relay_ends_total"] == before["relay_ends_total"] + 1, "its end")


def a_reload_and_a_refused_one_are_counted(b, c):
    keys = "config_reloads_total", "config_reloads_refused_total"
    check(moved(c, lambda: b.reload(CONFIG + "log: {level: info}\n"), *keys) == [1, 0], "one was applied")
    check(moved(c, lambda: b.reload("pool: many\n"), *keys) == [0, 1], "one was refused")
    b.write_config(CONFIG)


def a_spawner_that_hangs_is_counted_and_no_health_is_reported(b, c):
    check(Numbers(c)["serving"] == 1, "it serves")
    before = Numbers(c)
    spawner = b.spawner()
    os.kill(spawner, signal.SIGSTOP)
    try:
        until(lambda: Numbers(c)["serving"] == 0, "it does not serve")
        check(Numbers(c)["spawner_hangs_total"] == before["spawner_hangs_total"] + 1, "the spawner hangs")
    finally:
        os.kill(spawner, signal.SIGCONT)
    until(lambda: Numbers(c)["serving"] == 1, "it serves again")
    check(Numbers(c)["spawner_hangs_total"] == before["spawner_hangs_total"] + 1, "once")


# ---- the command


def the_command_shows_what_the_method_says(b, c):
    code, listed = b.json("metrics", "jobs")
    check(code == 0 and all(m["name"].startswith("stockade_jobs") for m in listed), str(listed)[:300])
    ended = {s["labels"]["outcome"]: s["value"] for m in listed if m["name"] == "stockade_jobs_ended_total"
             for s in m["samples"]}
    check(ended["EXITED"] == Numbers(c)["jobs_ended_total", "EXITED"] and isinstance(ended["EXITED"], int), str(ended))
    text = b.cli("metrics", "stockade_jobs").stdout.decode()
    check(re.search(r"^stockade_jobs_ended_total +outcome=EXITED template=default +[1-9]", text, re.M), text)
    check("REFUSED" not in text and "REFUSED" in b.cli("metrics", "jobs", "--all").stdout.decode(), "0 is shown on request")
    text = b.cli("metrics", "job_duration").stdout.decode()
    check(re.search(r"^stockade_job_duration_seconds +[0-9]+, p50 <= .*s, p99 <= .*s$", text, re.M), text)
    check(b.cli("metrics", "a", "b").returncode == 2, "one prefix")
    for form in ((), ("--prometheus",), ("-o", "json")):
        r = b.cli("metrics", *form, "nosuch")
        check(r.returncode == 1 and b'no metric begins with "nosuch"\n  hint: \'stockade metrics --all\'' in r.stderr, r.stderr)
    check(b.cli("metrics", "--all").returncode == 0, "as the hint says")


def prometheus_reads_its_text(b, c):
    """Its grammar, and that each histogram adds up; with prometheus's own parser where there is one."""
    text = b.cli("metrics", "--prometheus").stdout.decode()
    kinds, last = {}, {}
    for line in text.splitlines():
        if m := re.fullmatch(r"# TYPE ([a-z0-9_]+) (counter|gauge|histogram)", line):
            check(m[1] not in kinds, line)
            kinds[m[1]] = m[2]
            continue
        if line.startswith("# HELP "):
            continue
        m = re.fullmatch(r'([a-z0-9_]+)(\{(?:[a-z]+="[^"\\]*",?)+\})? (-?[0-9.]+(?:e[+-]?[0-9]+)?)', line)
        check(m, line)
        name, labels, value = m[1], m[2] or "", float(m[3])
        family = name if name in kinds else re.sub("_(bucket|sum|count)$", "", name)
        check(kinds[family] == "histogram" or family == name, line)
        if name.endswith("_bucket"):
            series = (family, re.sub(r',?le="[^"]*"', "", labels))
            check(value >= last.get(series, 0), line)
            last[series] = value
        if family != name and name.endswith("_count"):
            check(value == last[family, labels or "{}"] if (family, labels or "{}") in last else value == last[family, labels], line)
    check(set(kinds) == set(Numbers(c).metrics) and "histogram" in kinds.values(), "every metric")
    try:
        from prometheus_client.parser import text_string_to_metric_families as parse
    except ImportError:
        return
    check(len(list(parse(text))) == len(kinds), "prometheus_client reads them")


def many_readers_and_much_work_at_once_agree_in_the_end(b, c):
    """Four connections run jobs and read; afterwards the sums are exact."""
    before = Numbers(c)

    def work():
        mine = connect(b)
        for _ in range(5):
            mine.run("exit 0")
            Numbers(mine)
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(scaled(120))
    after = Numbers(c)
    for key, wanted in ((("jobs_ended_total", "EXITED"), 20), ("jobs_started_total", 20),
                        (("rpc_calls_total", PROCESS + "Run", "OK"), 20), (("rpc_calls_total", METRICS, "OK"), 21)):
        check(after[key] - before[key] == wanted, f"{key}: {after[key] - before[key]}, not {wanted}")
    check(after["pool_hits_total"] + after["pool_misses_total"] - before["pool_hits_total"] - before["pool_misses_total"] == 20,
          "each had a hit or a miss")


CONFIG = "socket: {mode: 0666}\nmetrics: {tenants: 1, reader: nobody}\npool: 2\nquotas: {sandboxes: 4}\nrpc: {connections_per_uid: 12}\n"
with Broker(config=CONFIG) as BROKER:
    CODE = run_cases([
        only_root_may_read_them, a_prefix_is_the_beginning_of_a_name_and_nothing_else, every_metric_says_what_it_is, what_may_go_wrong_has_a_number_and_no_label_is_unbounded,
        what_is_lost_is_the_same_in_english, a_run_moves_pool_sandboxes_jobs_and_calls,
        jobs_are_counted_by_template_with_what_they_used, refusals_are_counted_by_operation_and_tenant,
        a_tenant_beyond_the_configured_number_is_another_one, processes_have_memory_and_descriptors,
        the_reader_reads_what_belongs_to_all_and_does_nothing,
        how_jobs_end_and_what_they_hit_is_counted, bytes_and_failed_calls_are_counted,
        a_flood_loses_events_by_class_and_the_record_says_the_same, findings_are_counted_by_rule,
        a_reload_and_a_refused_one_are_counted, a_spawner_that_hangs_is_counted_and_no_health_is_reported,
        a_greeting_of_another_protocol_is_counted, the_queue_has_a_length_and_a_wait, a_relay_that_ends_is_counted,
        the_command_shows_what_the_method_says, prometheus_reads_its_text,
        many_readers_and_much_work_at_once_agree_in_the_end,
    ], call=with_client(BROKER))
sys.exit(CODE)
