#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every limit: what happens to a job that exceeds it, and what its result reports."""

import time

from api import EXITED, LIMIT, PROCESS, SANDBOX, SIGNALED, SYSTEM, main
from broker import Broker, hybrid, v2_root
from runner import check, until
from slowness import scaled

KILLED = 9


def hits(result):
    """name -> (value, over, count)"""
    found = [result.limit_hit, *result.limits_also_hit] if result.HasField("limit_hit") else []
    return {h.name: (h.value, h.over, h.count) for h in found}


def hits_but_quota(result):
    """A slow machine may make any job wait for its CPU quota."""
    return {k: v for k, v in hits(result).items() if k != "cpu_millis"}


def typed(name, value):
    """As a person types it in the configuration."""
    words = {"memory_bytes": "memory", "cpu_time_ms": "cpu_time", "wall_ms": "timeout", "file_size_bytes": "file_size"}
    sizes = next(((value >> n, unit) for n, unit in ((20, "M"), (10, "K"), (0, "")) if value % (1 << n) == 0))
    if name.endswith("_ms"):
        return f"{words[name]}: {value}ms"
    return f"{words.get(name, name)}: {sizes[0]}{sizes[1] if name.endswith('_bytes') else ''}"


def ended_by(job, name, value, signal=KILLED):
    r = job.result
    check(r.outcome == LIMIT and r.limit_hit.name == name, f"outcome {r.outcome}, {r.reason!r}, {hits(r)}: not {name}")
    check(r.limit_hit.value == value, f"{name}: its value is {value}, not {r.limit_hit.value}")
    check(r.signal == signal, f"{name}: signal {r.signal}")
    check(f"(limit {typed(name, value)})" in r.reason, r.reason)
    return r.limit_hit


def met(job, name, value):
    """The job continued, and the limit is reported."""
    r = job.result
    check(r.outcome == EXITED, f"{name}: outcome {r.outcome} {r.reason} {job.output[-300:]!r}")
    check(name in hits(r), f"{name} is not in {hits(r)}; {job.output[-300:]!r}")
    got, over, count = hits(r)[name]
    check(got == value, f"{name}: its value is {value}, not {got}")
    return over, count


def memory_ends_the_job(b, c):
    hit = ended_by(c.run("exec tail /dev/zero", {"memory_bytes": 32 << 20}), "memory_bytes", 32 << 20)
    check(hit.count and hit.over >= 1, str(hit))


def files_count_as_memory(b, c):
    job = c.run("head -c 100M /dev/zero > /tmp/f; echo went on", {"memory_bytes": 32 << 20, "disk_bytes": 200 << 20})
    check("memory_bytes" in hits(job.result), f"{hits(job.result)} {job.result.reason}")


def swap_is_not_a_way_out(b, c):
    job = c.run("exec tail /dev/zero", {"memory_bytes": 16 << 20})
    ended_by(job, "memory_bytes", 16 << 20)
    peak = job.result.bill.memory_peak_bytes.value
    check(peak < 17 << 20, f"peak {peak}: what is being killed may take some pages beyond, no more")


def cpu_quota_makes_the_job_wait(b, c):
    line = "python3 -c 'import time\nt = time.monotonic()\nwhile time.monotonic() - t < 1: pass'"
    # Less than what a busy machine leaves it; a slow one may then take more than a minute to start python.
    job = c.run(line, {"cpu_millis": 50, "wall_ms": 600000})
    over, count = met(job, "cpu_millis", 50)
    check(count and over >= 1, f"{over} periods")
    bill = job.result.bill
    cpu = bill.cpu_user_ns.value + bill.cpu_system_ns.value
    check(cpu < 0.2 * bill.wall_us.value * 1000, f"{cpu / 1e6} ms of CPU in {bill.wall_us.value / 1e3} ms")
    check(bill.throttled_ns.value > 0, f"throttled {bill.throttled_ns.value / 1e6} ms")


def cpu_time_ends_the_job_with_all_its_children(b, c):
    line = "for i in 1 2 3; do while :; do :; done & done; wait"
    job = c.run(line, {"cpu_time_ms": 300, "cpu_millis": 2000})
    hit = ended_by(job, "cpu_time_ms", 300)
    check(not hit.count and hit.over < 3000, str(hit))
    cpu = job.result.bill.cpu_user_ns.value + job.result.bill.cpu_system_ns.value
    check(cpu >= 295e6, f"{cpu / 1e6} ms in the bill")


def wall_time_ends_the_job_whatever_it_catches(b, c):
    job = c.run("trap '' TERM INT HUP QUIT; sleep 60", {"wall_ms": 300})
    hit = ended_by(job, "wall_ms", 300)
    check(not hit.count and hit.over < 20000, str(hit))
    check(300000 <= job.result.bill.wall_us.value < 30000000, str(job.result.bill.wall_us))


def wall_time_is_not_over_too_early(b, c):
    """The loop counts in whole milliseconds, and from when its turn began."""
    for _ in range(30):
        job = c.run("exec sleep 60", {"wall_ms": 40})
        ended_by(job, "wall_ms", 40)
        check(job.result.bill.wall_us.value >= 40000, str(job.result.bill.wall_us))


def processes_are_refused(b, c):
    over, count = met(c.run("for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; exit 0", {"pids": 4}), "pids", 4)
    check(count and over >= 1, f"{over}")


def exactly_as_many_processes_as_the_limit_says_are_possible(b, c):
    line = "sleep 60 & a=$!; sleep 60 & b=$!; sleep 60 & kill $a $b $!; wait; exit 0"
    job = c.run(line, {"pids": 4})
    check(job.result.outcome == EXITED and job.result.exit_code == 0 and "pids" not in hits(job.result), str(hits(job.result)))
    check(job.result.bill.pids_peak.value == 4, f"peak {job.result.bill.pids_peak.value}")


def the_host_keeps_a_quarter_of_its_processes(b, c):
    """A few hundred sandboxes at their limit have as many processes as the host can have."""
    def number(path):
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    root = "/sys/fs/cgroup/pids" if hybrid() else v2_root()
    path = f"{root}{b.cgroup}/pids.max"
    host = min(int(number("/proc/sys/kernel/pid_max")), int(number("/proc/sys/kernel/threads-max")))
    most = number(path)
    check(most == str(host // 4 * 3), f"{most} of {host}")
    with open(path, "w", encoding="ascii") as f:
        f.write("40")
    job = c.run("for i in $(seq 100); do sleep 5 & done; wait", {"wall_ms": 10000})
    with open(path, "w", encoding="ascii") as f:
        f.write(most)
    check(b"annot fork" in job.output or b"Resource temporarily unavailable" in job.output, job.output[-300:])
    check(c.run("echo fine").output == b"fine\n", "another job")


def open_files_of_the_host_are_not_used_up(b, c):
    """All sandboxes together could, and then the broker, which is not root, can accept no connection."""
    with open("/proc/sys/fs/file-max", encoding="ascii") as f:
        check(int(f.read()) == 2**63 - 1, "fs.file-max is a limit")


def calls_are_watched(c):
    have = {f.name for f in c.unary(SYSTEM + "Info", {}).features if f.available}
    return {"bpf-watch", "bpf-syscalls"} <= have


def open_files_are_refused(b, c):
    line = "python3 -c 'import os\nn = 0\ntry:\n  while True: os.dup(0); n += 1\nexcept OSError as e: print(n, e.errno)'"
    job = c.run(line, {"files": 20})
    check(job.output == b"17 24\n", job.output)
    if calls_are_watched(c):
        over, count = met(job, "files", 20)
        check(count and over == 1, f"refused once: {over} {count}")
        check("files" not in hits(c.run("ulimit -n 10; " + line, {"files": 20}).result), "a limit of its own")
        r = b.cli("run", "--files", "20", "--", "sh", "-c", line)
        check(b"stockade run: it reached the limit files of 20 (--files raises it)" in r.stderr, r.stderr)
    check(c.run("ulimit -Hn; ulimit -n 21", {"files": 20}).result.exit_code != 0, "it is the hard limit")


def a_file_that_grows_too_large_ends_the_job(b, c):
    job = c.run("exec head -c 1M /dev/zero > /tmp/f", {"file_size_bytes": 65536})
    hit = ended_by(job, "file_size_bytes", 65536, signal=25)
    check(hit.count and hit.over == 1, str(hit))
    job = c.run("exec truncate -s 1T /tmp/f", {"file_size_bytes": 65536})
    ended_by(job, "file_size_bytes", 65536, signal=25)


def a_file_that_grows_too_large_is_reported_if_the_job_continues(b, c):
    if not any(f.name == "bpf-watch" and f.available for f in c.unary(SYSTEM + "Info", {}).features):
        return
    line = ("python3 -c 'f = open(\"/tmp/f\", \"wb\", 0)\ntry:\n  while f.write(bytes(65536)): pass\n"
            "except OSError as e: print(e.errno)'")
    job = c.run(line, {"file_size_bytes": 100000})
    over, count = met(job, "file_size_bytes", 100000)
    check(job.output == b"27\n" and count and over == 1, f"{over} {job.output}")
    job = c.run("head -c 1M /dev/zero > /tmp/f; echo went on", {"file_size_bytes": 65536})
    check(met(job, "file_size_bytes", 65536) == (1, True) and b"went on" in job.output, f"of a child: {job.output}")
    r = c.run("ulimit -f 1; head -c 1M /dev/zero > /tmp/f", {"file_size_bytes": 65536}).result
    check(r.exit_code == 153 and "file_size_bytes" not in hits(r), f"a limit of its own: {r.reason} {hits(r)}")
    r = c.run("kill -XFSZ $$", {"file_size_bytes": 65536}).result
    check(r.outcome == SIGNALED and r.signal == 25 and "file_size_bytes" not in hits(r), f"feigned: {r.reason} {hits(r)}")


def the_removal_of_many_folders_delays_no_other_job(b, c):
    box = c.unary(SANDBOX + "Create", {"limits": {"inodes": 100000, "memory_bytes": 1 << 30}}).sandbox.id
    made = b.cli("exec", box, "python3", "-c", "import os\nfor i in range(50000): os.mkdir('d'); os.chdir('d')")
    check(made.returncode == 0, made.stderr)
    removes = b.popen("rm", box)
    while removes.poll() is None:
        began = time.monotonic()
        check(c.run("true").result.exit_code == 0, "a job beside it")
        check(time.monotonic() - began < scaled(5), f"it took {time.monotonic() - began:.1f} s")
    check(removes.returncode == 0, removes.returncode)


def a_full_disk_is_reported(b, c):
    job = c.run("exec 2>&1; head -c 2M /dev/zero > /tmp/a; head -c 2M /dev/zero > /home/agent/b; echo; stat -c %s /tmp/a ~/b",
                {"disk_bytes": 3 << 20})
    met(job, "disk_bytes", 3 << 20)
    check(b"No space left" in job.output, job.output)
    wrote = sum(int(n) for n in job.output.split()[-2:])
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        shown = len(f.read())  # room for what all processors would take, of which the sandbox is shown a part
    check((3 << 20) - 65536 <= wrote <= (3 << 20) + shown, f"{wrote} bytes fit")


def a_lack_of_inodes_is_reported(b, c):
    job = c.run("exec 2>&1; cd /tmp; for i in $(seq 200); do true > $i || break; done; ls | wc -l; exit 0", {"inodes": 100})
    met(job, "inodes", 100)
    made = int(job.output.split()[-1])
    check(60 <= made <= 100, f"{made} files")


def a_disk_that_was_full_before_is_not_a_limit_of_the_next_job(b, c):
    box = c.unary(SANDBOX + "Create", {"limits": {"disk_bytes": 1 << 20, "inodes": 100}}).sandbox.id
    fill = "head -c 2M /dev/zero > /tmp/f; cd /tmp; for i in $(seq 200); do true > $i || break; done; exit 0"
    filled = hits(c.finish(c.start(box, fill)).result)
    check("disk_bytes" in filled and "inodes" in filled, str(filled))
    job = c.finish(c.start(box, "exit 1"))
    check(not hits_but_quota(job.result), f"it wrote nothing: {hits(job.result)}")
    emptied = c.finish(c.start(box, "rm -f /tmp/*"))
    check(not hits_but_quota(emptied.result), f"it made room: {hits(emptied.result)}")
    met(c.finish(c.start(box, "head -c 2M /dev/zero > /tmp/f; exit 0")), "disk_bytes", 1 << 20)


def shared_memory_and_temporary_files_count_too(b, c):
    for place in ("/dev/shm", "/var/tmp", "/home/agent", "/tmp"):
        job = c.run(f"head -c 4M /dev/zero > {place}/f; stat -c %s {place}/f; df -k {place} | tail -1", {"disk_bytes": 1 << 20})
        check(b"No space left" in job.output, f"{place}: {job.output}")


def output_is_cut_and_counted(b, c):
    job = c.run("head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2", {"output_bytes": 5000})
    over, count = met(job, "output_bytes", 5000)
    check(over == 195000 and not count, f"{over}")
    check(len(job.output) == 5000, f"{len(job.output)} bytes came")
    check(len(job.gaps) == 1 and job.gaps[0].limit and job.gaps[0].offset == 5000, f"marked once: {job.gaps}")
    bill = job.result.bill
    check(bill.output_bytes.value == 200000 and bill.output_cut_bytes.value == 195000, str(bill.output_cut_bytes))


def what_stays_within_its_limits_hits_none(b, c):
    job = c.run("echo fine")
    check(not hits_but_quota(job.result), str(hits(job.result)))
    check(job.result.outcome == EXITED and job.result.exit_code == 0, str(job.result.outcome))


def a_limit_that_one_job_hit_is_not_reported_for_the_next(b, c):
    box = c.unary(SANDBOX + "Create", {"limits": {"pids": 4}}).sandbox.id
    met(c.finish(c.start(box, "for i in 1 2 3 4 5 6 7; do sleep 60 & done; exit 0")), "pids", 4)
    job = c.finish(c.start(box, "true"))
    check(not hits_but_quota(job.result), str(hits(job.result)))
    job = c.finish(c.start(box, "sleep 60", {"wall_ms": 200}))
    ended_by(job, "wall_ms", 200)
    c.unary(SANDBOX + "Delete", {"id": box})


def a_process_too_many_is_a_limit_and_no_failure(b, c):
    box = c.unary(SANDBOX + "Create", {"limits": {"pids": 3}}).sandbox.id
    full = c.start(box, "sleep 60 & sleep 60 & echo up; wait")
    c.until(full, lambda: full.output == b"up\n")
    job = c.finish(c.stream("Start", {"sandbox_id": box, "command": c.shell("true")}))
    check(ended_by(job, "pids", 3, signal=0).count, str(hits(job.result)))
    c.unary(PROCESS + "Signal", {"process_id": full.id, "signal": KILLED})
    c.finish(full)
    check(c.finish(c.start(box, "true")).result.outcome == EXITED, "there is room again")
    c.unary(SANDBOX + "Delete", {"id": box})


def a_job_cannot_feign_that_its_cpu_time_was_over(b, c):
    r = c.run("kill -XCPU $$", {"cpu_time_ms": 60000}).result
    check(r.outcome == SIGNALED and r.signal == 24 and "cpu_time_ms" not in hits(r), f"{r.outcome} {r.reason} {hits(r)}")


TESTS = [memory_ends_the_job, files_count_as_memory, swap_is_not_a_way_out, cpu_quota_makes_the_job_wait,
         cpu_time_ends_the_job_with_all_its_children, wall_time_ends_the_job_whatever_it_catches, wall_time_is_not_over_too_early, processes_are_refused,
         exactly_as_many_processes_as_the_limit_says_are_possible, the_host_keeps_a_quarter_of_its_processes, open_files_of_the_host_are_not_used_up,
         open_files_are_refused,
         a_file_that_grows_too_large_ends_the_job, a_file_that_grows_too_large_is_reported_if_the_job_continues,
         the_removal_of_many_folders_delays_no_other_job, a_full_disk_is_reported, a_lack_of_inodes_is_reported, a_disk_that_was_full_before_is_not_a_limit_of_the_next_job,
         shared_memory_and_temporary_files_count_too, output_is_cut_and_counted, what_stays_within_its_limits_hits_none,
         a_limit_that_one_job_hit_is_not_reported_for_the_next, a_process_too_many_is_a_limit_and_no_failure,
         a_job_cannot_feign_that_its_cpu_time_was_over]

if __name__ == "__main__":
    main(Broker(), TESTS)
