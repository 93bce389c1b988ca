#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bill: every figure exists or has a reason, has the right source and scope, and matches the job's use."""

import glob
import os
import resource
import time

from api import SANDBOX, SYSTEM, figures, main
from broker import Broker, hybrid
from runner import check

CGROUP, RUSAGE, BROKER = 1, 2, 3
JOB, OF_SANDBOX = 1, 2
# Whose a figure is where the kernel counts for each job, and on a host with v1 controllers.
EXPECTED = {
    "wall_us": (BROKER, JOB), "queue_us": (BROKER, JOB), "setup_us": (BROKER, JOB),
    "cpu_user_ns": (CGROUP, JOB), "cpu_system_ns": (CGROUP, JOB), "memory_peak_bytes": (CGROUP, JOB),
    "faults_minor": (CGROUP, JOB), "faults_major": (CGROUP, JOB), "pids_peak": (CGROUP, JOB),
    "io_read_bytes": (CGROUP, JOB), "io_write_bytes": (CGROUP, JOB), "io_read_ops": (CGROUP, JOB),
    "io_write_ops": (CGROUP, JOB),
    "switches_voluntary": (RUSAGE, JOB), "switches_involuntary": (RUSAGE, JOB),
    "throttled_ns": (CGROUP, OF_SANDBOX), "output_bytes": (BROKER, JOB), "output_cut_bytes": (BROKER, JOB),
}
ON_HYBRID = dict(EXPECTED, memory_peak_bytes=(CGROUP, OF_SANDBOX), pids_peak=(CGROUP, OF_SANDBOX),
                 faults_minor=(RUSAGE, JOB), faults_major=(RUSAGE, JOB), io_read_bytes=(CGROUP, OF_SANDBOX),
                 io_write_bytes=(CGROUP, OF_SANDBOX), io_read_ops=(CGROUP, OF_SANDBOX), io_write_ops=(CGROUP, OF_SANDBOX))
MAY_BE_UNKNOWN = {"io_read_bytes", "io_write_bytes", "io_read_ops", "io_write_ops"}  # no io controller, no block device


def value(bill, name):
    return getattr(bill, name).value


def every_figure_has_its_source_and_scope_or_says_why_not(b, c):
    bill = c.run("echo x").result.bill
    found, unknown = figures(bill), list(bill.unknown)
    io = next(f for f in c.unary(SYSTEM + "Info", {}).features if f.name == "cgroup-io").available
    for name, expected in (ON_HYBRID if hybrid() else EXPECTED).items():
        if name.startswith("io_") and not io:  # what its processes counted
            expected = (RUSAGE, JOB)
            check(name in found or name.endswith("_ops"), f"{name} is not known: {unknown}")
        if name in found:
            check(found[name][1:] == expected, f"{name}: source and scope are {found[name][1:]}, not {expected}")
        else:
            check(name in MAY_BE_UNKNOWN, f"{name} is not known: {unknown}")
            check(any(line.startswith(name + ":") for line in unknown), f"{name}: not said why: {unknown}")
    if not hybrid():
        info = c.unary(SYSTEM + "Info", {})
        check(info.cgroups == "v2", info.cgroups)


def times_are_those_that_passed(b, c):
    begun = time.monotonic()
    bill = c.run("sleep 0.5").result.bill
    took = (time.monotonic() - begun) * 1e6
    wall, queue, setup = (value(bill, n) for n in ("wall_us", "queue_us", "setup_us"))
    check(400000 <= wall <= took, f"wall {wall} us of {took}")
    check(wall + queue + setup <= took * 1.05, f"{wall} + {queue} + {setup} is more than {took}")
    check(setup > 0, "set-up is not free")


def cpu_time_is_reported_for_user_and_kernel_and_all_children(b, c):
    burn = "python3 -c 'import time\nwhile time.process_time() < 0.4: pass'"
    bill = c.run(f"{burn} & {burn} & wait", {"cpu_millis": 4000}).result.bill
    total = (value(bill, "cpu_user_ns") + value(bill, "cpu_system_ns")) / 1e9
    check(0.75 < total < 2.1 * value(bill, "wall_us") / 1e6, f"{total} s of 0.8 and what two starts cost")
    bill = c.run("exec head -c 2G /dev/zero > /dev/null").result.bill
    check(value(bill, "cpu_system_ns") > 20e6, "reading zeros is the kernel's work")


def memory_and_faults_follow_what_was_touched(b, c):
    little = c.run("exec python3 -c pass").result.bill
    much = c.run("exec python3 -c 'b = bytearray(64 << 20)'").result.bill
    more = value(much, "memory_peak_bytes") - value(little, "memory_peak_bytes")
    check(50 << 20 < more < 90 << 20, f"{more} bytes more")
    check(value(much, "faults_minor") > value(little, "faults_minor"), "more faults")


def processes_switches_and_output_are_counted(b, c):
    bill = c.run("sleep 60 & a=$!; sleep 60 & b=$!; sleep 60 & kill $a $b $!; wait").result.bill
    check(value(bill, "pids_peak") == 4, f"{value(bill, 'pids_peak')} processes of 4")
    bill = c.run("exec python3 -c 'import time\nfor _ in range(50): time.sleep(0.001)'").result.bill
    check(value(bill, "switches_voluntary") >= 50, f"{value(bill, 'switches_voluntary')} switches")
    bill = c.run("echo 12345; echo 678 >&2").result.bill
    check(value(bill, "output_bytes") == 10 and value(bill, "output_cut_bytes") == 0, str(bill.output_bytes))


def what_is_read_from_a_disk_is_counted(b, c):
    """A figure of 0 would be wrong; unknown is correct."""
    size, paths = 16 << 20, glob.glob("/usr/lib/*/*.so*") + glob.glob("/usr/lib/*/*.a") + glob.glob("/usr/bin/*")
    for path in sorted((p for p in paths if os.path.isfile(p) and not os.path.islink(p)), key=os.path.getsize)[-1:-20:-1]:
        with open(path, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
            f.read(size)
            cold = (resource.getrusage(resource.RUSAGE_SELF).ru_inblock - before) * 512
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if cold >= size // 2:
            break
    else:
        print("skipped: no file here is read from a disk")
        return
    bill = c.run(f"head -c {size} {path} > /dev/null").result.bill
    if "io_read_bytes" in figures(bill):
        check(value(bill, "io_read_bytes") >= size // 2, f"{value(bill, 'io_read_bytes')} bytes of {path}")
    else:
        check(any(line.startswith("io_read_bytes:") for line in bill.unknown), f"not said why: {bill.unknown}")


def a_queue_shows_in_the_bill(b, c):
    """More at once than the pool has: some wait for others to end, and their bills contain the waiting time."""
    jobs = [c.begin_run("sleep 0.1") for _ in range(40)]
    queues = [c.finish(job).result.bill.queue_us.value for job in jobs]
    check(max(queues) > 2 * max(min(queues), 100), f"{min(queues)} to {max(queues)} us")


def two_jobs_at_once_have_bills_of_their_own(b, c):
    box = c.unary(SANDBOX + "Create", {"limits": {"cpu_millis": 4000}}).sandbox.id
    idle = c.start(box, "exec sleep 0.8")
    busy = c.start(box, "exec python3 -c 'import time\nb = bytearray(48 << 20)\nwhile time.process_time() < 0.3: pass'")
    busy, idle = c.finish(busy).result.bill, c.finish(idle).result.bill
    cpu = [value(x, "cpu_user_ns") + value(x, "cpu_system_ns") for x in (busy, idle)]
    check(cpu[0] > 250e6 and cpu[0] > 2 * cpu[1], f"{cpu} ns of CPU time")
    again = c.finish(c.start(box, "true")).result.bill
    check(value(again, "cpu_user_ns") + value(again, "cpu_system_ns") < cpu[0] / 2, "the next one begins at nothing")
    if hybrid():
        check(again.memory_peak_bytes.scope == OF_SANDBOX, "on a hybrid host the peak is the sandbox's, and says so")
    else:
        check(value(busy, "memory_peak_bytes") > 48 << 20 > value(idle, "memory_peak_bytes"), "memory is each job's own")
        check(value(idle, "pids_peak") == 1, f"{value(idle, 'pids_peak')} processes")
    c.unary(SANDBOX + "Delete", {"id": box})


def a_job_that_never_ran_has_a_bill_too(b, c):
    result = c.finish(c.stream("Run", {"command": {"args": ["/no/such/program"]}})).result
    check(result.outcome == 6 and result.exit_code == 127, str(result.outcome))
    check(value(result.bill, "wall_us") == 0 and result.bill.queue_us.source == BROKER, str(result.bill.wall_us))


TESTS = [every_figure_has_its_source_and_scope_or_says_why_not, times_are_those_that_passed,
         cpu_time_is_reported_for_user_and_kernel_and_all_children, memory_and_faults_follow_what_was_touched,
         processes_switches_and_output_are_counted, what_is_read_from_a_disk_is_counted, a_queue_shows_in_the_bill,
         two_jobs_at_once_have_bills_of_their_own, a_job_that_never_ran_has_a_bill_too]

if __name__ == "__main__":
    main(Broker(), TESTS)
