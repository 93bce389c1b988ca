#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a job finds inside: names, folders, programs, clocks, and a cgroup of its own."""

import glob
import os
import re
import shutil
import subprocess

from api import LIMIT, PROCESS, SANDBOX, SYSTEM, figures, main
from broker import Broker, hybrid, v2_root
from runner import check, until

CONFIG = "templates: [{name: default, hostname: workbench}]\n"


def said(c, line, limits=None):
    job = c.run(line, limits)
    check(job.result.outcome == 1 and job.result.exit_code == 0, f"{line!r}: {job.result.exit_code} {job.output!r}")
    return job.output.decode().strip()


def lines(path):
    with open(path, encoding="utf-8") as f:
        return len(f.read().split())


def nothing_of_the_host_can_be_read_or_written(b, c):
    for path in ("/etc/shadow", "/etc/sudoers", "/etc/ssh", "/root", b.state, b.folder, "/sys/kernel", "/sys/class", "/sys/fs/bpf",
                 "/proc/1/environ", "/proc/kcore", "/proc/kallsyms", "/dev/kmsg", "/dev/vda", "/dev/sda", "/var/log", "/run/systemd"):
        job = c.run(f"(cat {path} 2>&-; ls -A {path}/ 2>&-) | grep .")
        check(job.result.exit_code != 0, f"{path}: {job.output[:200]}")
    for path in ("/", "/usr", "/usr/bin", "/etc", "/lib", "/var", "/run", "/opt", "/srv", "/proc/sys/kernel", "/dev", "/sys"):
        job = c.run(f"touch {path}/x")
        check(job.result.exit_code != 0, f"{path} is writable")


def it_has_a_name_and_knows_no_other_host(b, c):
    check(said(c, "hostname; cat /etc/hostname; id -un; id -u; id -G; pwd; echo $HOME $USER").split()
          == ["workbench", "workbench", "agent", "1000", "1000", "/home/agent", "/home/agent", "agent"], "names")
    check(said(c, "getent hosts workbench localhost | wc -l") == "2", "its own names are resolved")
    check("nameserver 127.0.0.1" in said(c, "cat /etc/resolv.conf"), "resolv.conf names the relay")
    # Nobody answers there without a policy: refused at once, where a lost query would take the resolver 4 s.
    check(said(c, "timeout 3 getent hosts example.com; echo $?") == "2", "a lookup fails at once")
    check(said(c, "ls -d /proc/[0-9]* | wc -l") in ("1", "2", "3"), "it sees its own processes only")
    check(said(c, "ls /sys/class/net /sys 2>/dev/null | wc -l; cat /proc/net/dev | grep -c :").split()[-1] == "1", "lo alone")


def places_to_write_are_private_and_empty(b, c):
    for place in ("/tmp", "/var/tmp", "/home/agent", "/dev/shm"):
        check(said(c, f"ls -A {place} | wc -l; echo x > {place}/f; cat {place}/f").split() == ["0", "x"], place)


def descriptors_are_stdin_stdout_and_stderr(b, c):
    check(said(c, "exec python3 -c 'import os; print(sorted(os.listdir(\"/proc/self/fd\"))[:3], len(os.listdir(\"/proc/self/fd\")))'")
          == "['0', '1', '2'] 4", "three, and the one that lists them")
    job = c.finish(c.stream("Run", {"command": {"args": ["env"]}}))
    names = sorted(line.split(b"=")[0].decode() for line in job.output.splitlines())
    check(set(names) <= {"GOMAXPROCS", "HOME", "JAVA_TOOL_OPTIONS", "LANG", "LOGNAME", "OMP_NUM_THREADS", "PATH", "PWD", "SHELL", "USER", "TERM",
                         "TMPDIR"}, str(names))


def everyday_programs_work(b, c):
    check(said(c, "bash -c 'x=(a b); echo ${x[1]}'") == "b", "bash")
    check(said(c, "python3 -c 'import ssl, sqlite3, json, subprocess, threading; t = threading.Thread(target=print, args=(1,)); t.start()'")
          == "1", "python3")
    if shutil.which("git"):
        line = "cd && git init -q r && cd r && echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm m && git log --oneline | wc -l"
        check(said(c, line).splitlines()[-1] == "1", "git")
    if os.path.exists("/usr/bin/node"):
        check(said(c, "node -e 'const fs=require(\"fs\"); fs.writeFileSync(\"/tmp/a\",\"x\"); console.log(fs.readFileSync(\"/tmp/a\",\"utf8\"), 6*7)'")
              == "x 42", "node")


def cgroups_of(b, box):
    """The sandbox's folder in v2, that of each controller, and the processes of its guest."""
    v2 = glob.glob(f"{v2_root()}{b.cgroup}/**/*{box}*", recursive=True)[0]
    apart = f"{v2}/guest/cgroup.procs"
    with open(apart if os.path.exists(apart) else f"{v2}/cgroup.procs", encoding="utf-8") as f:
        guest = f.read().split()
    if not hybrid():
        return v2, dict.fromkeys(("memory", "pids", "cpu"), v2), guest
    with open(f"/proc/{guest[0]}/cgroup", encoding="utf-8") as f:
        paths = {name: path for _, names, path in (line.strip().split(":", 2) for line in f) for name in names.split(",")}
    return v2, {n: f"/sys/fs/cgroup/{n}{paths[n]}" for n in ("memory", "pids", "cpu")}, guest


def each_job_has_a_cgroup_of_its_own_and_the_sandbox_its_limits(b, c):
    box = c.unary(SANDBOX + "Create", {"limits": {"memory_bytes": 64 << 20, "pids": 20, "cpu_millis": 500}}).sandbox.id
    jobs = [c.start(box, "sleep 60 & sleep 60") for _ in range(2)]
    v2, where, guest = cgroups_of(b, box)
    for n in (1, 2):
        until(lambda procs=f"{v2}/job-{n}/cgroup.procs": lines(procs) >= 2, f"job-{n} holds its own processes")
    check(len(guest) == 1, "the guest is alone")
    if hybrid():
        files = {"memory/memory.limit_in_bytes": str(60 << 20), "memory/memory.kmem.tcp.limit_in_bytes": str(4 << 20), "cpu/cpu.cfs_quota_us": "50000"}
    else:
        files = {"memory/memory.max": str(64 << 20), "cpu/cpu.max": "50000 100000", "memory/memory.swap.max": "0"}
        for n in (1, 2):
            check(os.path.exists(f"{v2}/job-{n}/memory.peak") and os.path.exists(f"{v2}/job-{n}/pids.peak"), "figures")
    for name, value in files.items():
        folder, file = name.split("/")
        with open(f"{where[folder]}/{file}", encoding="utf-8") as f:
            check(f.read().strip() == value, f"{name} is {value}")
    with open(f"{where['pids']}/pids.max", encoding="utf-8") as f:
        check(20 <= int(f.read()) <= 22, "pids.max is the jobs' and the guest's")
    c.unary(SANDBOX + "Delete", {"id": box})
    for job in jobs:
        c.finish(job)
    until(lambda: not os.path.exists(v2), "its cgroup has gone")


def an_idle_sandbox_gives_up_the_cgroup_that_waits_for_its_first_job(b, c):
    container = f"{v2_root()}{b.cgroup}"

    def prepared():
        return {os.path.basename(os.path.dirname(path)) for path in glob.glob(f"{container}/**/job-1", recursive=True)}

    until(lambda: len(prepared()) == c.unary(SYSTEM + "Info", {}).templates[0].pool_size, "the pool's have one")
    before = prepared()
    box = c.unary(SANDBOX + "Create", {"limits": {"memory_bytes": 64 << 20}}).sandbox.id
    check(box in before, "it comes from the pool")
    until(lambda: box not in prepared(), "it is given up")
    check(before - {box} <= prepared(), "the pool's keep theirs")
    job = c.finish(c.start(box, "cat /proc/self/cgroup; exec python3 -c 'b = bytearray(32 << 20); import os\nwhile os.times().user < 0.1: pass'"))  # a few ticks
    check(job.result.exit_code == 0 and b"/job-1\n" in job.output, f"{job.result.exit_code} {job.output!r}")
    figure = figures(job.result.bill)
    check(figure["memory_peak_bytes"][0] > 32 << 20 and figure["cpu_user_ns"][0] > 0, str(figure))
    job = c.finish(c.start(box, "exec python3 -c 'b = bytearray(80 << 20)'"))
    check(job.result.outcome == LIMIT, f"80 MiB of 64: {job.result}")
    c.unary(SANDBOX + "Delete", {"id": box})


def namespaces_and_ids_are_no_ones_but_its_own(b, c):
    """Every namespace differs from the broker's, and from another sandbox's but for time, which all share."""
    kinds = ("mnt", "pid", "net", "ipc", "uts", "cgroup", "time", "user")
    line = "for n in " + " ".join(kinds) + "; do readlink /proc/self/ns/$n; done; cat /proc/self/uid_map"
    one, two = said(c, line).split("\n"), said(c, line).split("\n")
    for i, kind in enumerate(kinds):
        check(one[i] != os.readlink(f"/proc/{b.process.pid}/ns/{kind}"), f"{kind} is not the broker's")
        check(kind == "time" or one[i] != two[i], f"{kind} is not another sandbox's")
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    job = c.start(box, "sleep 60")
    v2 = glob.glob(f"{v2_root()}{b.cgroup}/**/*{box}*", recursive=True)[0]
    with open(f"{v2}/job-1/cgroup.procs", encoding="utf-8") as f:
        pid = f.read().split()[0]
    status = {}
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        for text in f:
            key, value = text.split(":", 1)
            status[key] = value.split()
    uids = set(status["Uid"])
    check(len(uids) == 1 and int(uids.pop()) >= 0x70000000, f"uids {status['Uid']} are no account's")
    check(status["Groups"] == [] and status["NoNewPrivs"] == ["1"] and status["Seccomp"] == ["2"], "locked")
    check(all(set(status[k][0]) == {"0"} for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), "no capability")
    with open(f"/proc/{pid}/oom_score_adj", encoding="utf-8") as f:
        check(int(f.read()) == 1000, "it dies before the host's own processes")
    with open("/proc/self/status", encoding="utf-8") as f:
        capable = int(re.search(r"^CapEff:\s*(\w+)", f.read(), re.M).group(1), 16) >> 24 & 1
    lower = subprocess.run(["setpriv", "--bounding-set=-sys_resource", "tee", f"/proc/{pid}/oom_score_adj"], input=b"949",
                           capture_output=True, check=False)
    check(not capable or b"Permission denied" in lower.stderr,  # the minimum is what root wrote with CAP_SYS_RESOURCE
          f"950 is the minimum: {lower.stderr!r}")
    c.unary(SANDBOX + "Delete", {"id": box})
    c.finish(job)


def its_clock_began_with_the_broker(b, c):
    with open("/proc/uptime", encoding="utf-8") as f:
        host = float(f.read().split()[0])
    job = float(said(c, "cut -d' ' -f1 /proc/uptime"))
    check(job < min(host, 600), f"up {job} s where the host is up {host} s")


TESTS = [nothing_of_the_host_can_be_read_or_written, it_has_a_name_and_knows_no_other_host,
         places_to_write_are_private_and_empty, descriptors_are_stdin_stdout_and_stderr, everyday_programs_work,
         each_job_has_a_cgroup_of_its_own_and_the_sandbox_its_limits,
         an_idle_sandbox_gives_up_the_cgroup_that_waits_for_its_first_job, namespaces_and_ids_are_no_ones_but_its_own,
         its_clock_began_with_the_broker]

if __name__ == "__main__":
    main(Broker(config=CONFIG), TESTS)
