#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The size that a job sees: programs that look in the usual places see the sandbox's processors and memory."""

import json
import os

from api import SANDBOX, main
from broker import Broker
from runner import check

PYTHON = ("import json, os; lines = dict(l.split(':', 1) for l in open('/proc/meminfo')); "
          "print(json.dumps({'cpus': os.cpu_count(), 'kib': int(lines['MemTotal'].split()[0]), "
          "'stat': sum(l.startswith('cpu') for l in open('/proc/stat')) - 1, "
          "'cpuinfo': sum(l.startswith('processor') for l in open('/proc/cpuinfo')), "
          "'max': int(open('/sys/fs/cgroup/memory.max').read()), 'quota': open('/sys/fs/cgroup/cpu.max').read(), "
          "'load': open('/proc/loadavg').read().split()[:3], "
          "'threads': [os.environ[n] for n in ('OMP_NUM_THREADS', 'GOMAXPROCS')]}))")
NODE = ("const os = require('os'); console.log(JSON.stringify([os.totalmem(), os.cpus().length, "
        "require('v8').getHeapStatistics().heap_size_limit]))")
JAVA = "java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '$2 == \"MaxHeapSize\" || $2 == \"ActiveProcessorCount\" { print $4 }'"
HOST = os.cpu_count()


def job(b, box, *command):
    r = b.cli("exec", box, "--", *command)
    check(r.returncode == 0, f"{command}: {r.stdout.decode()} {r.stderr.decode()}")
    return r.stdout.decode()


def has(b, box, program):
    return b.cli("exec", box, "--", "sh", "-c", f"command -v {program}").returncode == 0


def sees(b, box, memory, cpus, quota):
    seen = json.loads(job(b, box, "/usr/bin/python3", "-c", PYTHON))
    cpus = min(cpus, HOST)
    expected = {"cpus": cpus, "kib": memory >> 10, "stat": cpus, "cpuinfo": cpus, "max": memory, "quota": f"{quota} 100000\n",
                "load": ["0.00", "0.00", "0.00"], "threads": [str(cpus)] * 2}
    check(seen == expected, f"{seen}, not {expected}")
    check(job(b, box, "nproc") == f"{cpus}\n", "nproc")
    check(job(b, box, "getconf", "_NPROCESSORS_ONLN") == f"{cpus}\n", "sysconf")
    check(job(b, box, "sh", "-c", "free -b | awk 'NR == 2 { print $2 }'") == f"{memory}\n", "free")


def files_say_what_the_sandbox_has(b, c):
    for memory, millis in ((192, 1000), (320, 2000), (64, 500)):
        limits = {"memory_bytes": memory << 20, "cpu_millis": millis}
        box = c.unary(SANDBOX + "Create", {"limits": limits}).sandbox.id
        sees(b, box, memory << 20, max(1, millis // 1000), millis * 100)
        c.unary(SANDBOX + "Delete", {"id": box})


def a_one_shot_sees_what_was_asked_for(b, _):
    r = b.cli("run", "--memory", "96M", "--cpus", "1", "--", "sh", "-c", "grep MemTotal /proc/meminfo; nproc")
    check(r.stdout.split() == [b"MemTotal:", b"98304", b"kB", b"1"], f"{r.stdout} {r.stderr}")


def node_and_java_size_themselves_by_it(b, _):
    check(b.cli("create", "--name", "heaps", "--memory", "512M", "--cpus", "1").returncode == 0, "create")
    if has(b, "heaps", "node"):
        total, cpus, heap = json.loads(job(b, "heaps", "node", "-e", NODE))
        check(total == 512 << 20 and cpus == 1 and heap <= 512 << 20, f"node: {total} {cpus} {heap}")
    if has(b, "heaps", "java"):
        cpus, heap = (int(n) for n in job(b, "heaps", "sh", "-c", JAVA).split())
        check(cpus == 1 and heap <= 256 << 20, f"java: {cpus} {heap}")
    b.cli("rm", "heaps")


def the_disk_is_as_large_as_was_asked_for(b, _):
    """The files that show a sandbox its size do not use its disk."""
    fill = "dd if=/dev/zero of=/tmp/x bs=4k count=100 2>/dev/null; stat -c %s /tmp/x; rm /tmp/x; cd /tmp; " \
           "for i in $(seq 100); do (: >$i) 2>/dev/null && n=$i; done; echo $n"
    r = b.cli("run", "--disk", "64K", "--inodes", "64", "--", "sh", "-c", fill)
    size, files = (int(n) for n in r.stdout.split())
    check(size >= 64 << 10 and 64 - 20 <= files <= 64 + 16, f"{size} bytes, {files} files")


TESTS = [files_say_what_the_sandbox_has, a_one_shot_sees_what_was_asked_for,
         node_and_java_size_themselves_by_it, the_disk_is_as_large_as_was_asked_for]

if __name__ == "__main__":
    main(Broker(), TESTS)
