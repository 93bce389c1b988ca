#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tripwires work against attackers who know them: floods of harmless events, and other ways to do the same."""

import json
import os

import sp
from api import SANDBOX, connect, main
from broker import Broker, skip
from slowness import SLOWNESS
from runner import check, until

CONFIG = """
pool: 2
anomalies: {sensitive_paths: [own/secret], not_sensitive_paths: [.docker]}
templates:
  - name: default
  - {name: killing, anomalies: {rules: {dangerous-syscall: {response: kill}}}}
  - {name: forks, anomalies: {rules: {fork-rate: {threshold: 200}}}}  # how fast it forks is the machine's
"""
CALL = "import ctypes, os, socket, time\ncall = ctypes.CDLL(None).syscall\n"


def findings(b, box):
    code, all_ = b.json("anomalies", "--sandbox", box)
    check(code == 0, f"anomalies: {code}")
    return all_


def found(b, box):
    return {f["rule"] for f in findings(b, box)}


def create(b, *args):
    r = b.cli("create", *args)
    check(r.returncode == 0, r.stderr)
    return r.stdout.decode().strip()


def python(b, box, code):
    r = b.cli("exec", "-n", box, "--", "/usr/bin/python3", "-c", CALL + code)
    check(r.returncode == 0, r.stderr)


def the_kernels_part_is_there(b, c):
    if "bpf-watch: no" in b.log() or "bpf-syscalls: no" in b.log():
        b.stop()
        skip("the programs for telemetry cannot be loaded here")


def harmless_calls_do_not_hide_a_dangerous_one(b, c):
    r = b.cli("run", "--template", "killing", "-n", "-o", "json", "--", "/usr/bin/python3", "-c",
              CALL + "for i in range(3000): call(250, 1, 0)\ncall(101, 16, 1, 0, 0)\ntime.sleep(30)")  # keyctl, ptrace
    result = json.loads(r.stdout)
    check(result["outcome"] == "CANCELLED" and "dangerous-syscall" in result["reason"], result)


def denials_of_one_address_do_not_hide_another(b, c):
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    flood = ("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
             "for i in range(60000):\n    try: s.sendto(b'x', ('192.0.2.9', 9))\n    except OSError: pass\n"
             "for i in range(20):\n    try: s.sendto(b'x', ('192.0.2.10', 443))\n    except OSError: pass\n")
    job = c.finish(c.start(box, f'exec python3 -c "{CALL}{flood}"'))
    r = job.result.record
    check({d.destination for d in r.denials} == {"192.0.2.9:9", "192.0.2.10:443"}, str(r.denials))
    check(r.denials_total == 60020, f"the rest is counted: {r.denials_total}")
    b.cli("rm", box)


WAYS = {  # by what is behind the last slash of the file that it leads to
    "id_ed25519": "os.symlink('.ssh', 'l'); open('l/id_ed25519')",
    "config": "os.chdir('.ssh'); open('config')",
    "dirfd": "os.open('dirfd', 0, dir_fd=os.open('.ssh', os.O_PATH))",
    "path": "os.open('.ssh/../.ssh/./path', os.O_PATH)",
    "netrc": "open('/' + './' * 150 + os.getcwd() + '/.netrc')",
    "environ": "open('/proc/thread-self/environ').read()",
    "secret": "os.rename('x', 'own/secret')",
}


def no_way_to_a_sensitive_file_is_silent(b, c):
    box = create(b)
    python(b, box, "os.mkdir('.ssh'); os.mkdir('own')\n"
                   "for f in ('.ssh/id_ed25519', '.ssh/config', '.ssh/dirfd', '.ssh/path', '.netrc', 'x'): open(f, 'w').close()")
    before = len(findings(b, box))
    for way in WAYS.values():
        python(b, box, way + "\ntime.sleep(0.05)")
    until(lambda: all(any(name in f["text"] for f in findings(b, box)[before:] if f["rule"] in ("sensitive-path", "credential-use"))
                      for name in WAYS), f"each is found: {findings(b, box)[before:]}")
    b.cli("rm", box)


def programs_of_the_host_may_work_as_they_do(b, c):
    """ps opens every environment and df examines every mount; ldd asks the 32-bit loader. What shows environments is found."""
    box = create(b)
    r = b.cli("exec", "-n", box, "--", "/bin/sh", "-c", "ps aux; ps -ef; ps -o pid,etime; df -h; cp /bin/true t; ldd t; sleep 0.3")
    check(r.returncode == 0, r.stderr)
    check(not found(b, box) - {"rate-shift"}, f"nothing is found: {findings(b, box)}")
    r = b.cli("exec", "-n", box, "--", "/bin/sh", "-c", "ps aux e >&2; sleep 0.1")
    until(lambda: "sensitive-path" in found(b, box), f"ps e: {r.stderr} {findings(b, box)}")
    b.cli("rm", box)


def a_look_at_a_sensitive_file_is_noted(b, c):
    box = create(b)
    python(b, box, "open('.env', 'w').close()")
    python(b, box, "os.path.exists('.env'); time.sleep(0.05)")  # of another job: what a job made itself is no secret to it
    until(lambda: "sensitive-look" in found(b, box), f"noted: {findings(b, box)}")
    check(all(f["response"] == "log" for f in findings(b, box) if f["rule"] == "sensitive-look"), "and no more")
    b.cli("rm", box)


def an_exec_shows_its_arguments_and_a_finding_whose_it_is(b, c):
    r = c.unary(SANDBOX + "Create", {"name": "told", "metadata": {"team": "red"}}).sandbox
    b.cli("exec", "-n", r.id, "--", "/bin/sh", "-c", "cd /usr; exec /bin/cat /etc/shadow 'a b' '\x01'")
    call = connect(b, 20)
    sub = call.begin("/stockade.v1.TelemetryService/Subscribe", {"sandbox_ids": [r.id], "from_sequence": 1, "kept_only": True},
                     credit=10000)
    events = []
    until(lambda: "sensitive-path" in found(b, r.id), "found")
    while (frame := call.recv(sub)).kind != sp.END:
        events += sp.message("stockade.v1.SubscribeResponse").FromString(frame.payload).events
    check(all(e.sandbox_name == "told" and dict(e.metadata) == {"team": "red"} for e in events), str(events))
    x = next(e for e in events if e.HasField("execution") and "/etc/shadow" in e.execution.arguments and e.comm == "cat")
    check(x.execution.arguments == '/bin/cat /etc/shadow "a b" "\\u0001"' and not x.execution.arguments_cut, x.execution.arguments)
    check(x.execution.cwd == "/usr" and x.execution.parent_pid > 0 and x.execution.uid == 1000, str(x.execution))
    f = next(e for e in events if e.HasField("finding"))
    check(f.comm == "cat" and f.pid == x.pid and f.finding.pid == x.pid, str(f))
    f = next(x for x in findings(b, r.id) if x["rule"] == "sensitive-path")
    check(f["text"] == 'an open of "/etc/shadow" failed: ENOENT', f)
    check(f["comm"] == "cat" and f["sandbox_name"] == "told" and f["metadata"] == {"team": "red"}, f)
    b.cli("rm", r.id)


X86 = os.uname().machine == "x86_64"
CODE = """
import mmap
m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex("b814000000cd80c3"))  # mov $20, %eax; int $0x80; ret
if os.fork() == 0: ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))(); os._exit(0)
os.wait()
"""
MEMFD = "import subprocess\nfd = os.memfd_create('x', 0)\n"
FILES = "os.mkdir('d')\nfor i in range(%d): open(f'd/{i}', 'w').write('text')\n"
EACH = FILES + "for i in range(%d): %s\n"
KINDS = {  # one job each: the rule, a word of its finding, and what it does
    "int 0x80": ("dangerous-syscall", "int 0x80", CODE),
    "x32": ("dangerous-syscall", "x32", "if os.fork() == 0: call(0x40000000 | 39); os._exit(0)\nos.wait()"),
    "set-user-id": ("set-id-file", "chmod", "open('s', 'w').close(); os.chmod('s', 0o4755)"),
    "set-user-id by descriptor": ("set-id-file", "fchmod", "os.fchmod(os.open('t', os.O_CREAT | os.O_RDWR), 0o6755)"),
    "a memfd": ("unnamed-exec", "without a name", MEMFD + "os.write(fd, open('/bin/true', 'rb').read()); subprocess.run([f'/proc/self/fd/{fd}'], pass_fds=[fd])"),
    "an interpreter": ("unnamed-exec", "a file without a name as its program", MEMFD + "os.write(fd, b'pass'); subprocess.run(['python3', f'/proc/self/fd/{fd}'], pass_fds=[fd])"),
    "the loader": ("unnamed-exec", "a file without a name as its program", MEMFD + "os.write(fd, open('/bin/true', 'rb').read())\n"
                   "import glob; subprocess.run([glob.glob(f'/lib*/ld-linux-{os.uname().machine.replace(chr(95), chr(45))}.so.*')[0], f'/dev/fd/{fd}'], pass_fds=[fd])"),
    "rewriting": ("mass-rewrite", "rewritten", EACH % (400, 400, "os.write(os.open(f'd/{i}', os.O_RDWR), b'y')")),
    "truncation": ("mass-rewrite", "rewritten", EACH % (400, 400, "os.truncate(f'd/{i}', 0)")),
    "truncation by descriptor": ("mass-rewrite", "rewritten", EACH % (400, 400, "f = os.open(f'd/{i}', os.O_RDWR | os.O_APPEND); os.ftruncate(f, 0); os.close(f)")),
    "link and unlink": ("mass-relink", "linked", EACH % (600, 600, "os.link(f'd/{i}', f'd/{i}.locked'); os.unlink(f'd/{i}')")),
    "a burst of forks": ("fork-rate", "processes were created", "for i in range(250):\n    if os.fork() == 0: os._exit(0)\n    os.wait()"),
}
NEEDS_X86 = ("int 0x80", "x32")


def no_kind_of_deed_is_silent(b, c):
    missing = []
    for name, (rule, word, code) in KINDS.items():
        if name in NEEDS_X86 and not X86 or rule == "fork-rate" and SLOWNESS > 1:  # an emulated machine forks too slowly
            continue
        box = create(b, "--template", "forks" if rule == "fork-rate" else "default")
        r = b.cli("exec", "-n", box, "--", "/usr/bin/python3", "-c", CALL + code + "\ntime.sleep(0.3)")
        mine = lambda: [f for f in findings(b, box) if f["rule"] == rule and word in f["text"]]
        try:
            until(mine, name, 5)
            check("whose events were lost" not in mine()[0]["text"], mine())
        except AssertionError:
            missing.append((name, findings(b, box), r.returncode, r.stderr[-300:]))
        b.cli("rm", box)
    check(not missing, missing)


TESTS = [the_kernels_part_is_there, no_kind_of_deed_is_silent, harmless_calls_do_not_hide_a_dangerous_one,
         denials_of_one_address_do_not_hide_another, no_way_to_a_sensitive_file_is_silent,
         a_look_at_a_sensitive_file_is_noted, programs_of_the_host_may_work_as_they_do, an_exec_shows_its_arguments_and_a_finding_whose_it_is]


if __name__ == "__main__":
    main(Broker(config="socket: {mode: 0666}\n" + CONFIG), TESTS)
