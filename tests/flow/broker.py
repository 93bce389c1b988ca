# SPDX-License-Identifier: Apache-2.0
"""A private broker for a test: real binaries, its own socket, state and cgroup; and the state of the host.

    with Broker() as b:
        r = b.cli("run", "--", "/bin/true")      # subprocess.CompletedProcess
        before = b.host()                        # cgroups, mounts, namespaces, descriptors, processes of the host
        ...
        assert b.settles(before)

Binaries come from the build folder named by STOCKADE_BUILD, or from the system when STOCKADE_INSTALLED is set.
Needs root.
"""

import atexit
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from slowness import Popen, scaled
from runner import Skipped, time_passes, until

BUILD = os.environ.get("STOCKADE_BUILD", "")
LEAK_SIGNS = ("LeakSanitizer", "stockade-relay: leak:")  # proto/leak.h
NETWORKS_KEPT = 32  # netns_pool, 16, and 16 beyond it (server/spawner/netns.c)
NO_BPF = "bpf: {enabled: false}\n"  # for a configuration: to load the programs takes most of a start
INSTALLED = bool(os.environ.get("STOCKADE_INSTALLED"))


def binary(name):
    if INSTALLED:
        found = shutil.which(name) or f"/usr/sbin/{name}"
    else:
        folder = "client" if name == "stockade" else "server"
        found = os.path.join(BUILD, folder, name)
    if not os.path.exists(found):
        skip(f"{name} is not built ({found})")
    return found


def skip(why):
    """Ends the test as skipped: ctest knows exit code 77."""
    print(f"skipped: {why}", flush=True)
    sys.exit(77)


def maps_ids_in_memory():
    """Linux 6.3: a tmpfs can be id-mapped."""
    return tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 3)


def small_disk(folder, mib):
    """A prefix for the broker: `folder` is a small disk, of which only its processes know. In memory, or where the kernel
    cannot map the ids of that, ext4 in a file beside it."""
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
        raise Skipped("no mount namespace here")
    mount = f'mount -t tmpfs -o size={mib}m,mode=0755 none "$0"'
    if not maps_ids_in_memory():
        mount = (f'{{ [ -e "$0.disk" ] || {{ truncate -s {mib}M "$0.disk" && mkfs.ext4 -q -m 0 -O ^has_journal "$0.disk"; }}; }} && '
                 'mount -o loop "$0.disk" "$0"')
    return ["unshare", "-m", "sh", "-c", f'mkdir -p "$0" && {mount} && exec "$@"', folder]


def state_folder():
    """A folder in memory if the host has one with enough room: each start makes the files of a root, and ext4, where it
    looks for a free inode, tries those first that were deleted in the last minutes. Else, and in tests that are about the
    disk (STOCKADE_TEST_ON_DISK), or before Linux 6.3, which cannot map ids there: the host's folder of temporary files.
    tests/harness/folder.h has the same for C."""
    memory = "/dev/shm"
    if os.environ.get("STOCKADE_TEST_ON_DISK") or not maps_ids_in_memory() or not os.path.ismount(memory):
        return tempfile.gettempdir()
    st = os.statvfs(memory)
    fits = not st.f_flag & os.ST_NOEXEC and st.f_bavail * st.f_frsize >= 4 << 30
    return memory if fits else tempfile.gettempdir()


def v2_root():
    return "/sys/fs/cgroup" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "/sys/fs/cgroup/unified"


def hybrid():
    return v2_root().endswith("unified")


def every_process():
    """Of the host: pid -> (pid of its parent, command)."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                text = f.read()
        except OSError:
            continue
        pid = int(text.split(" ", 1)[0])
        found[pid] = (int(text.rsplit(")", 1)[1].split()[1]), text[text.index("(") + 1:text.rindex(")")])
    return found


class Broker:
    def __init__(self, *flags, config=None, name="", env=None, prefix=()):
        if os.geteuid() != 0:
            skip("needs root")
        self.folder = tempfile.mkdtemp(prefix="stockade-test-", dir=state_folder())
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)  # also of one that never started
        os.chmod(self.folder, 0o755)
        self.cgroup = f"/stockade-test-{os.getpid()}{name}"
        self.address = f"ipc://{self.folder}/run/stockade.sock"
        self.state = f"{self.folder}/state"
        self.log_path = f"{self.folder}/log"
        self.flags = list(flags)
        self.prefix = list(prefix)
        self.env = dict(os.environ, **(env or {}))
        if config is not None:
            self.flags += ["--config", f"{self.folder}/stockaded.yaml"]
            with open(f"{self.folder}/stockaded.yaml", "w", encoding="utf-8") as f:
                f.write(config)
        self.process = None

    def start(self, wait_s=90.0):
        argv = self.prefix + [binary("stockaded"), "--listen", self.address, "--state-dir", self.state,
                              "--cgroup", self.cgroup] + self.flags
        with open(self.log_path, "ab") as log:
            self.process = Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        until(self.answers, lambda: f"stockaded answers:\n{self.log()}", wait_s)
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"stockaded exited {self.process.returncode}:\n{self.log()}")
        return os.path.exists(self.address[len("ipc://"):]) and self.cli("info", timeout=20).returncode == 0

    def write_config(self, config):
        """Atomically: a reading in progress finds the old file or the new one."""
        path = f"{self.folder}/stockaded.yaml"
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(config)
        if os.path.exists(path):
            shutil.copymode(path, path + ".new")
        os.rename(path + ".new", path)

    def without_bpf(self):
        """From the next start on: for cases that start the broker again and again, and do not depend on the programs."""
        with open(f"{self.folder}/stockaded.yaml", encoding="utf-8") as f:
            config = f.read()
        if NO_BPF not in config:
            self.write_config(NO_BPF + config)

    def reload(self, config=None, whole=True):
        """SIGHUP, with a new configuration or the existing one. Returns the log's line about it, or the first
        line."""
        if config is not None:
            self.write_config(config)
        before = len(self.log())
        self.process.send_signal(signal.SIGHUP)
        words = (" reloaded: ", " reload-refused: ")
        until(lambda: any(word in self.log()[before:] for word in words), lambda: f"the reload is reported: {self.log()[before:]}",
              60)
        if whole:
            self.cli("info")  # the other lines are written in the same turn of the loop; this is answered in a later one
        return self.log()[before:]

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self, wait_s=30.0):
        """Orderly end, in which jobs that still run get 5 s; returns the exit code."""
        if self.process is None:
            return None
        for hurry, seconds in ((signal.SIGTERM, 5), (signal.SIGTERM, wait_s), (signal.SIGKILL, None)):
            if self.process.poll() is None:
                self.process.send_signal(hurry)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(seconds)
        code, self.process = self.process.returncode, None
        self.check_leaks()
        return code

    def check_leaks(self):
        """The reports of AddressSanitizer builds at the end of broker, spawner, loader and relay; all write to one
        log."""
        found = [line for line in self.log().splitlines() if any(sign in line for sign in LEAK_SIGNS)]
        if found:
            raise AssertionError(f"memory was leaked: {found[0]}\n{self.log()[-6000:]}")

    def kill(self):
        """kill -9, as a crash would."""
        self.process.kill()
        self.process.wait()
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        code = self.stop()
        if kind is not None or code:
            print(f"--- log of stockaded\n{self.log()[-6000:]}", flush=True)
        for path in reversed(self.cgroups()):  # what a broker that was killed left for a next one
            until(lambda path=path: removed(path), f"cgroup {path} is empty", 10)
        shutil.rmtree(self.folder, ignore_errors=True)
        if kind is None and code:
            raise AssertionError(f"the broker ended with {code}, by itself or when it was told to")

    def command(self, *args):
        return [binary("stockade"), "--address", self.address, *args]

    def cli(self, *args, **kw):
        kw["timeout"] = scaled(kw.get("timeout", 120))
        kw.setdefault("capture_output", True)
        return subprocess.run(self.command(*args), check=False, **kw)

    def stranger(self, *args, **kw):
        """Runs a command as another account, which may connect; from a copy, since it may not reach the build folder."""
        os.chmod(self.address[len("ipc://"):], 0o666)
        copy = f"{self.folder}/stockade"
        if not os.path.exists(copy):
            shutil.copy(binary("stockade"), copy)
        kw.setdefault("capture_output", True)
        return subprocess.run([copy, "--address", self.address, *args], check=False, cwd="/", user=54321, group=54321,
                              extra_groups=[], timeout=scaled(120), **kw)

    def popen(self, *args, **kw):
        return Popen(self.command(*args), **kw)

    def json(self, *args, **kw):
        """Runs a command with -o json and gives (exit code, object); of events and findings, which are one a line, a list."""
        r = self.cli(*args[:1], "-o", "json", *args[1:], **kw)
        try:
            if args[0] in ("events", "anomalies") and "--rules" not in args:
                return r.returncode, [json.loads(line) for line in r.stdout.splitlines()]
            return r.returncode, json.loads(r.stdout)
        except ValueError as why:
            raise AssertionError(f"no JSON: {r.stdout[:500]!r} {r.stderr[:500]!r}") from why

    # What the host looks like, as far as a sandbox could change it.

    def cgroups(self):
        roots = [v2_root()] if not hybrid() else sorted(glob.glob("/sys/fs/cgroup/*"))
        return sorted(os.path.relpath(path, "/sys/fs/cgroup") for root in roots
                      for own in (self.cgroup, self.cgroup + "-relay") for path, _, _ in os.walk(root + own))

    def feature(self, name):
        """As `info` has it."""
        return next(f for f in self.json("info")[1]["features"] if f["name"] == name)

    def needs(self, feature):
        """Ends the test as skipped where the kernel lacks a feature that `info` names."""
        row = self.feature(feature)
        if not row["available"]:
            skip(f"no {feature}: {row['detail']}")

    def spawner(self):
        """Its pid. A process that it makes has its name too, until it executes another program."""
        return next(pid for pid, (parent, name) in every_process().items()
                    if parent == self.process.pid and name == "stockade-spawne")

    def processes(self):
        """Every process below the broker, including the broker and its spawner: pid -> command."""
        found = {}
        parents = every_process()
        for pid in parents:
            at = pid
            while at in parents and at != self.process.pid:
                at = parents[at][0]
            if at == self.process.pid:
                found[pid] = parents[pid][1]
        return found

    def host(self):
        processes = self.processes()
        namespaces = set()
        for path in [path for pid in processes for path in glob.glob(f"/proc/{pid}/ns/*")]:
            try:
                namespaces.add(os.readlink(path))
            except OSError:
                pass
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            mounts = len(f.readlines())
        return {
            "cgroups": len(self.cgroups()),
            "mounts": mounts,
            "namespaces": len(namespaces),
            "processes": len(processes),
            "fds": {name: sum(descriptors_if_there(pid) for pid, n in processes.items() if n == name)
                    for name in ("stockaded", "stockade-spawne")},
            "rss_kib": {name: sum(rss_kib(pid) for pid, n in processes.items() if n == name)
                        for name in ("stockaded", "stockade-spawne")},
        }

    def rests(self, wait_s=60.0):
        """The state of the host when the pools are full and nothing changes any more."""
        end, last = time.monotonic() + scaled(wait_s), None
        while time.monotonic() < end:
            code, info = self.json("info")
            now = self.host()
            full = code == 0 and info["sandboxes_own"] == 0 and all(t["pool_ready"] == t["pool_size"] for t in info["templates"])
            calm = last and all(now[k] == last[k] for k in now if k != "rss_kib")
            if full and calm:
                return now
            last = now if full else None
            time_passes("two looks that agree", 0.5)
        raise AssertionError(f"it does not come to rest: {last}, {info}")

    def settles(self, before, wait_s=20.0, memory_kib=8192):
        """True when the host is in the state `before`, with memory within memory_kib; otherwise the differences."""
        def wrong():
            nonlocal after
            after = self.host()
            return [k for k in before if k != "rss_kib" and after[k] != before[k]] + [
                f"rss_kib of {n}" for n in before["rss_kib"]
                if after["rss_kib"][n] > before["rss_kib"][n] + memory_kib and not (sanitized() and "spawn" in n)]

        after = None
        with contextlib.suppress(AssertionError):
            until(lambda: not wrong(), "the host looks as before", wait_s)
        if not (differs := wrong()):
            return True
        print(f"differs: {differs}\nbefore {before}\nafter  {after}", flush=True)
        return False


def removed(cgroup):
    """False while a process is in it: the sandboxes of a killed broker end within 1 s."""
    try:
        os.rmdir(os.path.join("/sys/fs/cgroup", cgroup))
    except FileNotFoundError:  # a spawner was still at it
        return True
    except OSError:
        return False
    return True


def sanitized():
    """AddressSanitizer keeps what was freed: 256 MiB of it in the spawner, whose environment is empty, so that the
    options of the tests, which make it less, do not reach it."""
    with open(binary("stockaded"), "rb") as f:
        return b"__asan_init" in f.read()


def descriptors(pid):
    """Open descriptors, but for user namespaces: the spawner keeps one for each range of ids that was ever in use. It keeps
    a bounded number of network namespaces for the next sandboxes, too: of these only what is beyond counts."""
    n = networks = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            networks += target.startswith("net:")
            n += not target.startswith(("user:", "net:"))
    return n + max(0, networks - NETWORKS_KEPT)


def descriptors_if_there(pid):
    """Of a process that may have ended since it was listed, such as one that the spawner makes for a moment."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return descriptors(pid)
    return 0


def rss_kib(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
