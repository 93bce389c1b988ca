#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Templates whose jobs are root inside, and whose /usr they may change: what such a root has, what it does not get, and that
its changes are the sandbox's own, part of its snapshots and forks."""

import ipaddress
import os
import socket

from broker import Broker
from runner import Skipped, check, run_cases

CONFIG = """
templates:
  - name: default
  - name: keeper
    user: root
  - name: builder
    user: root
    root: writable
    paths: [/var/lib/dpkg]
    limits: {memory: 1536M, disk: 700M, inodes: 200000, timeout: 5m, cpu_time: 5m, pids: 512, file_size: 1G}
    network_max: {mode: open, outbound: [203.0.113.0/24, 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16]}
"""
SEVEN = "00000000000000fb"  # CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID
NONE = "0000000000000000"


def sh(b, script, template="builder", box=None, fails=False, **kw):
    args = ["exec", box] if box else ["run", "--template", template]
    r = b.cli(*args, "--", "sh", "-c", script, **kw)
    check(fails or r.returncode == 0, f"{script}: {r.returncode} {r.stdout.decode()} {r.stderr.decode()}")
    return (r.stdout + r.stderr).decode()


def needs_the_ids_of_usr(b):
    """Root inside owns no file of /usr where its file system cannot be id-mapped, so it cannot write to folders of it."""
    row = b.feature("idmapped-mounts")
    if ": /usr: " in row["detail"]:
        raise Skipped(row["detail"])


def a_writable_root_needs_root_inside():
    b = Broker(config="templates:\n  - {name: default, root: writable}\n")
    try:
        b.start()
        check(False, "the broker starts")
    except RuntimeError as why:
        check(":2:27: " in str(why) and "needs user: root" in str(why), why)


def the_words_are_checked():
    for line, word in (("{name: default, user: admin}", "agent"), ("{name: default, root: yes}", "writable")):
        b = Broker(config=f"templates:\n  - {line}\n")
        try:
            b.start()
            check(False, "the broker starts")
        except RuntimeError as why:
            check(":2:" in str(why) and word in str(why), why)


def other_templates_have_no_root(b):
    said = sh(b, "id -u; grep Cap /proc/self/status; touch /usr/x /etc/x", "default", fails=True)
    check(said.startswith("1000\n") and said.count(NONE) == 5 and said.count("Permission denied") == 2, said)


def root_has_seven_capabilities_and_no_way_to_more(b):
    for template in ("keeper", "builder"):
        said = sh(b, "id; grep -E 'Cap|NoNew' /proc/self/status; cat /proc/self/uid_map; echo $HOME $USER; pwd", template)
        check("uid=0(root) gid=0(root) groups=0(root)" in said, said)
        check(said.count(SEVEN) == 4 and f"CapBnd:\t{NONE}" in said and "NoNewPrivs:\t1" in said, said)
        check(said.endswith("/root root\n/root\n"), said)
        inside, host, count = said.splitlines()[-3].split()
        check(inside == "0" and int(host) >= 0x70000000 and int(host) % 65536 == 0 and count == "65535", said)


def another_user_has_none_and_gets_none_back(b):
    said = sh(b, "setpriv --reuid man --regid man --clear-groups sh -c 'grep Cap /proc/self/status; id -un; id -Gn; cat /etc/x; touch "
                 "/usr/x; cp /usr/bin/id /tmp/id'; chown root /tmp/id; chmod 4755 /tmp/id; setpriv --reuid man /tmp/id -u", "builder")
    check(said.count(NONE) == 4 and said.count("denied") == 1 and "man\nman\n6\n" in said, said)


def no_id_of_the_range_is_the_guests(b):
    said = sh(b, "for i in 999 65534 65535; do setpriv --reuid $i --regid $i --clear-groups prlimit --pid 1 --nofile=3:3 2>&1; done; "
                 "kill -9 1; kill -STOP 1; echo end; ls /proc/1 2>&1", "builder", fails=True)
    check("end\n" in said and "No such file" in said.split("end\n")[1], said)
    check(said.count("prlimit: ") + said.count("setpriv: ") == 3, said)
    check(sh(b, "echo still", "builder") == "still\n", "another job starts")


def without_a_writable_root_usr_and_folders_are_read_only(b):
    said = sh(b, "touch /usr/x /usr/bin/x; rm /usr/bin/env; echo a >/etc/a && cat /etc/a", "keeper")
    check(said.startswith("a\n") and said.count("Read-only file system") == 3, said)


def changes_stay_in_the_sandbox(b):
    sh(b, "rm -r /usr/bin /etc/passwd; mkdir /usr/mine; : >/var/lib/dpkg/mine; chmod 777 /", fails=True)
    check(not os.path.exists("/usr/mine") and not os.path.exists("/var/lib/dpkg/mine") and os.path.exists("/usr/bin/env"), "the host")
    check("mine" not in sh(b, "ls /usr /var/lib/dpkg /etc/passwd; stat -c %a /"), "the next sandbox")


def what_it_writes_counts_as_its_disk(b):
    needs_the_ids_of_usr(b)
    said = sh(b, "head -c 900M /dev/zero >/usr/bin/big; df -k / | tail -1", fails=True)
    check("No space left" in said or "File too large" in said, said)
    r = b.cli("run", "--template", "builder", "--inodes", "2000", "--", "sh", "-c",
              "seq -f /usr/bin/n%.0f 4000 | xargs touch; ls /usr/bin | grep -c ^n[0-9]")
    check(b"No space left" in r.stderr and 1000 < int(r.stdout) < 2100, r)


def snapshots_and_forks_have_usr_too(b):
    needs_the_ids_of_usr(b)
    b.cli("create", "--name", "box", "--template", "builder")
    sh(b, "echo a >/usr/bin/a; echo a >/etc/a; rm /usr/bin/env; echo a >/var/lib/dpkg/a", box="box")
    check(b.cli("snapshot", "create", "box", "one").returncode == 0, "a snapshot")
    sh(b, "rm -r /usr/share/doc /usr/bin/a /etc/a; chmod 700 / /usr; touch /usr/bin/env", box="box")
    check(b.cli("snapshot", "create", "box", "two").returncode == 0, "a second snapshot")
    check(b.cli("snapshot", "restore", "box", "one").returncode == 0, "restored")
    said = sh(b, "cat /usr/bin/a /etc/a /var/lib/dpkg/a; stat -c %a / /usr; ls -d /usr/share/doc; ls /usr/bin/env", box="box", fails=True)
    check(said.startswith("a\na\na\n755\n755\n/usr/share/doc\n") and "No such file" in said, said)
    fork = b.cli("fork", "box").stdout.decode().strip()
    said = sh(b, "cat /usr/bin/a; stat -c %u /usr/bin/a; rm /usr/bin/a; touch /usr/lib/f; chown man /usr/lib/f", box=fork)
    check(said == "a\n0\n", said)
    check(sh(b, "cat /usr/bin/a; ls /usr/lib/f", box="box", fails=True).startswith("a\n"), "the fork's changes are its own")
    check(b.cli("snapshot", "restore", "box", "two").returncode == 0, "restored again")
    check(sh(b, "stat -c %a / /usr; ls /usr/share/doc", box="box", fails=True).startswith("700\n700\n"), "as it was")
    b.cli("rm", "--all")


def many_names_in_the_root_directory_are_refused_and_nothing_is_lost(b):
    b.cli("create", "--name", "box", "--template", "builder")
    sh(b, "for i in $(seq 1100); do : >/usr/n$i; done; echo a >/a", box="box")
    r = b.cli("snapshot", "create", "box", "one")
    check(r.returncode == 75 and b"more than 1024 names" in r.stderr, r)
    check(sh(b, "cat /a; ls /usr | grep -c ^n", box="box") == "a\n1100\n", "all is there")
    sh(b, "rm /usr/n*", box="box")
    check(b.cli("snapshot", "create", "box", "one").returncode == 0, "after they were removed")
    b.cli("rm", "--all")


def the_file_service_works_as_root(b):
    b.cli("create", "--name", "box", "--template", "builder")
    r = b.cli("fs", "write", "box", "/etc/mine", input=b"x\n")
    check(r.returncode == 0, r)
    check(sh(b, "stat -c '%u %g' /etc/mine; cat /etc/mine", box="box") == "0 0\nx\n", "the file")
    b.cli("rm", "--all")


# ---- packages, from the registries

def reachable(*hosts):
    """The flags that let a sandbox reach them; None: this machine does not. A registry in a special range, such as a mirror in a
    private network, needs a rule for its address as well."""
    flags = []
    for host, port in hosts:
        try:
            address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
            socket.create_connection((address, port), 5).close()
        except OSError as why:
            print(f"skipped: {host} is not reached from here: {why}")
            return None
        flags += ["--allow", f"{host}:{port}"]
        if not ipaddress.ip_address(address).is_global:
            flags += ["--allow", f"{address}/32:{port}"]
    return flags


def with_network(b, hosts, missing, script):
    flags = reachable(*hosts)
    if flags is None:
        return None
    if missing:
        return print(f"skipped: {missing}")
    r = b.cli("run", "--template", "builder", "--timeout", "4m", *flags, "--", "sh", "-ec", script, timeout=300)
    said = (r.stdout + r.stderr).decode(errors="replace")
    check(r.returncode == 0, f"{r.returncode} {said[-3000:]}")
    return said


def apt_installs_and_removes(b):
    missing = "" if os.path.exists("/usr/bin/apt-get") and os.path.exists("/var/lib/dpkg/status") else "no apt on this machine"
    said = with_network(b, [("deb.debian.org", 80)], missing,
                        "exec </dev/null; apt-get update; apt-get remove -y jq; ! jq --version; apt-get install -y jq; jq --version; "
                        "dpkg -s jq | grep Status; dpkg --verify jq; groupadd crew; useradd -m -g crew bob; stat -c %U:%G /home/bob")
    if said:
        check("jq-1." in said and "install ok installed" in said and "bob:crew" in said, said[-3000:])
        check(sh(b, "ls -d /home/bob", fails=True).startswith("ls: "), "the next sandbox has none of it")


def npm_installs_for_all(b):
    said = with_network(b, [("registry.npmjs.org", 443)], "" if os.path.exists("/usr/bin/npm") else "no npm on this machine",
                        "npm install -g typescript; command -v tsc; tsc --version")
    if said:
        check("Version " in said and "/bin/tsc" in said, said[-3000:])


TESTS = [other_templates_have_no_root, root_has_seven_capabilities_and_no_way_to_more, another_user_has_none_and_gets_none_back,
         no_id_of_the_range_is_the_guests, without_a_writable_root_usr_and_folders_are_read_only, changes_stay_in_the_sandbox,
         what_it_writes_counts_as_its_disk, snapshots_and_forks_have_usr_too,
         many_names_in_the_root_directory_are_refused_and_nothing_is_lost, the_file_service_works_as_root,
         apt_installs_and_removes, npm_installs_for_all]

if __name__ == "__main__":
    a_writable_root_needs_root_inside()
    the_words_are_checked()
    with Broker(config=CONFIG) as broker:
        raise SystemExit(run_cases(TESTS, lambda test: test(broker), lambda: broker.cli("rm", "--all")))
