#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Templates as archives: what one broker pushes another one loads, with all its files and their digests; and archives that no
broker wrote are refused, whatever they hold."""

import contextlib
import glob
import hashlib
import io
import os
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import threading
import time

from broker import Broker, small_disk
from cli import expect
from kept import box, refused, sh
from root_inside import needs_the_ids_of_usr
from runner import check, run_cases, until
from slowness import Popen, scaled

CONFIG = """
socket: {mode: 0666}
pool: 1
bpf: {enabled: false}
quotas: {kept_bytes_per_caller: 48M}
limits_max: {disk: 256M, memory: 512M}
templates:
  - {name: default, limits: {disk: 128M, memory: 256M}}
  - {name: builder, user: root, root: writable}
"""
KEY = b"stockade: a layer in an archive\0"
END = 0xFFFF
# The size of a folder is the file system's affair.
LOOK = ("find . ! -name . \\( -type d -printf '%p %m %u %n %Ts\\n' -o -printf '%p %m %u %n %Ts %s\\n' \\) | sort;"
        "sha256sum big h2 d/f19; readlink l; du -k hole | cut -f1; "
        "test ! -e gone && echo no gone")


# ---- archives, as anybody may write them

def n8(v):
    return struct.pack("<Q", v & (1 << 64) - 1)


def text(v):
    return n8(len(v)) + v


def head(mode, name, uid=1000, gid=1000):
    return n8(mode) + n8(uid) + n8(gid) + n8(1) + n8(0) + text(name)


def xattrs(pairs=()):
    return b"".join(text(k) + text(v) for k, v in pairs) + n8(END)


def file(name, data=b"x", mode=0o644, first=0, blocks=None, size=None, attributes=(), **who):
    if blocks is None:
        blocks = b"".join(n8(i // 4096) + data[i:i + 4096] for i in range(0, len(data), 4096))
    return (head(stat.S_IFREG | mode, name, **who) + n8(first) + xattrs(attributes) +
            n8(len(data) if size is None else size) + blocks + n8(-1))


def folder(name, *inside, attributes=(), mode=0o755):
    return head(stat.S_IFDIR | mode, name) + xattrs(attributes) + b"".join(inside) + n8(END)


def special(name, kind, mode=0, device=0):
    return head(kind | mode, name) + n8(device)


def layer(*inside, part=1, end=n8(0), attributes=()):
    return n8(part) + b"stockade layer 1\n" + folder(b"", *inside, attributes=attributes) + end


def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def put(number, v):
    if isinstance(v, int):
        return varint(number << 3) + varint(v)
    v = v.encode() if isinstance(v, str) else v
    return varint(number << 3 | 2) + varint(len(v)) + v


def digest(stream):
    return hashlib.blake2b(stream, digest_size=32, key=KEY).hexdigest()


def about(*streams, name="evil", host="default", version=1, more=b"", of_layer=b"", **changed):
    m = put(1, version) + put(2, put(1, name) + put(3, host) + more)
    for s in streams:
        m += put(3, put(1, changed.get("digest", digest(s))) + put(2, changed.get("size", len(s))) + put(3, changed.get("bytes", 1 << 20)) + of_layer)
    return m


def tar(*files, end=bytes(1024)):
    out = b""
    for name, data in files:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        out += info.tobuf(format=tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)
    return out + end


def archive(*streams, **changed):
    return tar(("stockade-template", about(*streams, **changed)), *((f"layers/{digest(s)}", s) for s in streams))


def load(b, data, *more, **kw):
    return b.cli("template", "load", *more, "-", input=data, **kw)


def push(b, name):
    return expect(b.cli("template", "push", name), 0).stdout


def layers(b):
    return sorted(os.listdir(f"{b.state}/layers"))


def made(b):
    return [t["name"] for t in b.json("template", "ls")[1] if not t["of_host"]]


def clear(b):
    b.cli("rm", "--all")
    for name in made(b):
        expect(b.cli("template", "rm", name), 0)
    until(lambda: not layers(b), lambda: f"no layer is left: {layers(b)}")


# ---- cases

HOSTILE = {
    "a name with a slash": layer(file(b"../x")),
    "dot dot": layer(folder(b"..", file(b"x"))),
    "no name": layer(file(b"")),
    "a name twice": layer(file(b"a"), file(b"a")),
    "names out of order": layer(file(b"b"), file(b"a")),
    "a device": layer(special(b"d", stat.S_IFCHR, 0o666, os.makedev(1, 1))),
    "a block device": layer(special(b"d", stat.S_IFBLK)),
    "an unknown kind": layer(special(b"d", 0)),
    "a whiteout with permissions": layer(special(b"w", stat.S_IFCHR, 0o644)),
    "a whiteout as the root": n8(1) + b"stockade layer 1\n" + special(b"", stat.S_IFCHR) + n8(0),
    "an opaque file": layer(file(b"a", attributes=[(b"trusted.overlay.opaque", b"y")])),
    "an opaque mark of another value": layer(folder(b"a", attributes=[(b"trusted.overlay.opaque", b"x")])),
    "a redirect": layer(folder(b"a", attributes=[(b"trusted.overlay.redirect", b"/etc")])),
    "a capability": layer(file(b"a", attributes=[(b"security.capability", b"\1")])),
    "set-user-ID of root": layer(file(b"a", mode=0o4755, uid=0)),
    "set-group-ID of root": layer(file(b"a", mode=0o2755, gid=0)),
    "set-user-ID of the guest": layer(file(b"a", mode=0o4755, uid=65535)),
    "an owner outside": layer(file(b"a", uid=70000)),
    "an owner with 32 bits": layer(file(b"a", uid=1 << 32)),
    "a link to what is no file": layer(folder(b"a"), file(b"b", first=2)),
    "a link to a later one": layer(file(b"a", first=7)),
    "a link to one that has one name": layer(file(b"a"), head(stat.S_IFREG | 0o644, b"b") + n8(2)),
    "a block behind the end": layer(file(b"a", blocks=n8(7) + b"x", size=1)),
    "blocks out of order": layer(file(b"a", blocks=n8(1) + bytes(4096) + n8(0) + bytes(4096), size=8192)),
    "a part that the template has not": layer(file(b"a"), part=2),
    "too deep": layer(b"".join(folder(b"a")[:-8] for _ in range(4200)) + n8(END) * 4200),
    "a time of four seconds": layer(head(stat.S_IFREG, b"a")[:-17] + n8(4 << 30) + text(b"a") + n8(0)),
    "cut": layer(file(b"a"))[:-9],
    "more behind its end": layer(file(b"a"), end=n8(0) + b"x"),
    "no parts": n8(0),
    "another magic": n8(1) + b"stockade layer 9\n" + folder(b"") + n8(0),
}


def layers_that_no_keeper_writes_are_refused(b):
    for b2 in (b, b.other):
        for what, stream in HOSTILE.items():
            r = load(b2, archive(stream))
            check(r.returncode not in (0, -6, -9, -11, 70) and b"archive" in r.stderr, f"{what}: {r}")
            check(b"INTERNAL" not in r.stderr and b"state directory" not in r.stderr, f"{what}: {r}")
        until(lambda b2=b2: made(b2) == [] and layers(b2) == [], f"nothing is left: {layers(b2)}")
    expect(load(b, archive(layer(file(b"a", mode=0o4755), special(b"w", stat.S_IFCHR)))), 0)  # a job can make it
    check(made(b) == ["evil"], made(b))


def containers_that_nobody_pushes_are_refused(b):
    good = layer(file(b"a"))
    name = f"layers/{digest(good)}"
    m = about(good)
    link = tarfile.TarInfo(name)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    for what, data, word in (
            ("nothing", b"", b"ends early"), ("text", b"x" * 2000, b"archive"), ("zeros", bytes(1024), b"fewer layers"),
            ("no first file", tar((name, good)), b"first file"), ("twice the first", tar(("stockade-template", m), ("stockade-template", m)), b"not the next layer"),
            ("a path", tar(("stockade-template", m), ("../" + name, good)), b""), ("an absolute one", tar(("stockade-template", m), ("/" + name, good)), b""),
            ("another name", tar(("stockade-template", m), ("layers/" + "0" * 64, good)), b"not the next layer"),
            ("a link", tar(("stockade-template", m), end=link.tobuf(format=tarfile.USTAR_FORMAT) + bytes(1024)), b"no regular file"),
            ("one more", tar(("stockade-template", m), (name, good), (name, good)), b"more files than layers"),
            ("one less", tar(("stockade-template", m)), b"fewer layers"), ("no end", tar(("stockade-template", m), (name, good), end=b""), b"ends early"),
            ("cut", archive(good)[:-1300], b"ends early"), ("more behind", archive(good) + b"x" * 512, b"follows its end"),
            ("a bit", archive(good).replace(b"stockade layer 1", b"stockade layer 0"), b"archive"), ("another digest", archive(good, digest="1" * 64), b"not the next layer"),
            ("a size", archive(good, size=7), b"another size"), ("a bomb of size", archive(good, bytes=1 << 62), b"archive"),
            ("many layers", tar(("stockade-template", about(*[good] * 300))), b"archive"), ("a large first file", tar(("stockade-template", bytes(1 << 20))), b"too large"),
            ("a newer one", archive(good, version=2), b"newer"), ("no version", archive(good, version=0), b"archive"),
            ("a name of a path", archive(good, name="../x"), b"name"), ("a name of the host's", archive(good, name="default"), b"the host has"),
            ("another template", archive(good, host="none"), b"does not have"), ("other rights", archive(good, more=put(10, 1)), b"another one here"),
            ("a host's", archive(good, more=put(2, 1)), b"archive"), ("a folder", archive(good, more=put(13, "x")), b"working directory"),
            ("a variable", archive(good, more=put(12, put(1, "A=B"))), b"archive"), ("no text", archive(good, more=put(15, b"\xff")), b"archive"),
            ("a long word", archive(good, more=put(15, "x" * 65)), b"archive"), ("too large", archive(good, bytes=49 << 20), b"kept_bytes_per_caller"),
            ("48 layers", archive(*[good] * 48), b"47 layers"), ("many steps", archive(good, of_layer=put(4, b"") * 1100), b"archive")):
        r = load(b, data)
        check(r.returncode not in (0, -6, -9, -11, 70) and word in r.stderr and b"INTERNAL" not in r.stderr, f"{what}: {r}")
    again = tar(("stockade-template", m), (name, bytes([1]) + good[1:-8] + n8(1)[:8]))
    check(b"archive" in load(b, again).stderr, "other bytes of the same length")
    check(made(b) == [] and layers(b) == [], f"nothing is left: {made(b)} {layers(b)}")
    expect(load(b, archive(good) + bytes(8192)), 0)  # as GNU tar fills its records
    refused(load(b, archive(good)), b"already exists", b"--replace")
    refused(load(b, archive(good, name="default"), "--replace"), b"the host has")
    refused(load(b, archive(good, bytes=49 << 20), "--replace"), b"kept_bytes_per_caller")
    refused(b.cli("template", "ls", "--replace"), b"--replace needs the action create or load")
    expect(load(b, archive(good), "--name", "second"), 0)

    def content(template):
        return expect(b.cli("run", "--template", template, "-w", "/", "--", "cat", "/a"), 0).stdout
    check(content("second") == b"x" and content("evil") == b"x", "it is the file, also where a replacement failed")
    expect(load(b, archive(layer(file(b"a", b"two"))), "--replace"), 0)
    expect(load(b, archive(layer(file(b"a", b"three"))), "--replace", "--name", "third"), 0)
    check((content("evil"), content("second"), content("third")) == (b"two", b"x", b"three"), "each has its own")
    check(sorted(made(b)) == ["evil", "second", "third"], made(b))
    until(lambda: len(layers(b)) == 3, lambda: f"no layer of the old one is left: {layers(b)}")


def sh_run(b, template, script):
    return expect(b.cli("run", "--template", template, "--", "sh", "-c", script), 0).stdout.decode()


def make(b, name="t"):
    one = box(b)
    sh(b, one, "mkdir -m 0710 d d/e; echo hard > h1; ln h1 h2; ln h1 d/h3; mkfifo -m 0640 p; ln -s ../x l; truncate -s 100000000 hole; "
               "printf end | dd of=hole bs=1 seek=99990000 conv=notrunc status=none; head -c 3000001 /dev/urandom > big; chmod 4755 big; "
               "for i in $(seq 20); do echo $i > d/f$i; done; echo gone > gone; echo Xyzzy-archived > word")
    expect(b.cli("snapshot", "create", one, "first"), 0)
    sh(b, one, "rm gone; rm -r d/e; mkdir d/e; echo opaque > d/e/o; mv d/f1 d/f2")
    expect(b.cli("template", "create", name, "--from", one, "-e", "A=b", "--workdir", "/home/agent"), 0)
    wanted = sh(b, one, LOOK)
    expect(b.cli("rm", one), 0)
    return wanted


def what_one_pushes_another_loads_with_all_its_files(b):
    wanted = make(b)
    one = b.json("template", "show", "t")[1]
    data = push(b, "t")
    check(push(b, "t") == data, "the same template is the same archive")
    names = tarfile.open(fileobj=io.BytesIO(data)).getnames()
    check(names[0] == "stockade-template" and len(names) == 3, names)
    expect(b.cli("template", "rm", "t"), 0)
    path = f"{b.folder}/t.tar"
    with open(path, "wb") as f:
        f.write(data)
    for to in (b.other, b):  # an encrypted one; and back, where nothing of it is left
        expect(to.cli("template", "load", path), 0)
        two = to.json("template", "show", "t")[1]
        check(sh_run(to, "t", LOOK) == wanted, f"{sh_run(to, 't', LOOK)}\nwanted {wanted}")
        check(sh_run(to, "t", "echo $A; pwd") == "b\n/home/agent\n", "its environment")
        for field in ("bytes", "base", "env", "workdir", "network", "made_on", "principal"):
            check(one[field] == two[field], f"{field}: {one[field]} {two[field]}")
        check([s["command"] for s in one["steps"]] == [s["command"] for s in two["steps"]] and len(one["steps"]) == 2, two["steps"])
        check(one["loaded_by"] == "" and two["loaded_by"] == f"uid:{os.getuid()}", two)
    check(b.json("template", "show", "t")[1]["digest"] == one["digest"], "the same layers have the same digest")
    secret = subprocess.run(["grep", "-rlaF", "--exclude-dir=audit", "Xyzzy-archived", b.other.state], capture_output=True, check=False)
    check(secret.stdout == b"" and len(layers(b.other)) == 2, f"nothing is in clear where it is encrypted: {secret}")
    check(push(b.other, "t").count(b"Xyzzy-archived") > 0, "an archive of it is not")
    back = push(b.other, "t")
    expect(load(b, back, "--name", "back"), 0)
    check(b.json("template", "show", "back")[1]["digest"] == one["digest"], "and it comes back as it was")
    b.kill()
    b.start()
    check(b.json("template", "show", "back")[1]["loaded_by"] != "" and sh_run(b, "back", LOOK) == wanted, "after a kill")


def a_writable_root_goes_as_well(b):
    needs_the_ids_of_usr(b)
    one = box(b, "--template", "builder")
    sh(b, one, "echo tool > /usr/bin/tool; chmod 4755 /usr/bin/tool; rm /usr/bin/env; echo home > /root-file")
    expect(b.cli("template", "create", "r", "--from", one), 0)
    data = push(b, "r")
    expect(load(b.other, data), 0)
    there = sh_run(b.other, "r", "stat -c '%a %u' /usr/bin/tool; cat /root-file; test -e /usr/bin/env || echo none")
    check(there == "4755 0\nhome\nnone\n", f"it is the same: {there}")
    expect(b.other.cli("template", "rm", "r"), 0)


def it_is_the_callers_alone_and_one_at_a_time(b):
    make(b)
    refused(b.stranger("template", "push", "t"), b"there is no template t")
    refused(b.cli("template", "push", "default"), b"the host's")
    refused(b.cli("template", "push", "none"), b"there is no template none")
    refused(b.cli("template", "load", f"{b.folder}/none"), b"No such file")
    refused(b.cli("template", "push", "t", f"{b.folder}/no/t.tar"), b"No such file")
    data = push(b, "t")
    slow = b.popen("template", "load", "--name", "slow", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    slow.stdin.write(data[:300000])
    slow.stdin.flush()
    until(lambda: b"one caller" in load(b, data, "--name", "x").stderr, "a second one is refused")
    refused(b.cli("template", "push", "t"), b"one caller")
    slow.send_signal(signal.SIGKILL)
    slow.wait()
    until(lambda: b.cli("template", "push", "t").returncode == 0, "it is gone with its caller")
    theirs = b.stranger("template", "load", "-", input=data)
    expect(theirs, 0)
    check(made(b) == ["t"], made(b))
    expect(b.stranger("template", "rm", "t"), 0)


def a_kill_in_the_middle_leaves_nothing(b):
    make(b)
    data = push(b, "t")
    for turn in range(3):
        timer = threading.Timer(0.05 * turn, b.process.kill)
        timer.start()
        r = load(b, data, "--name", f"k{turn}")
        timer.join()
        b.process.wait()
        b.start()
        check(r.returncode != 0 or f"k{turn}" in made(b), f"{turn}: it was reported, and is not there")
        until(lambda: not [n for n in layers(b) if "-" in n], lambda: f"nothing half is left: {layers(b)}")
    check(sorted(os.listdir(b.state)) == sorted(n for n in os.listdir(b.state) if "spool" not in n), os.listdir(b.state))


def a_full_disk_refuses_and_loses_nothing(_):
    b = Broker(config=CONFIG, name="-full")
    b.prefix = small_disk(b.state, 24)
    with b:
        large = layer(file(b"big", os.urandom(14 << 20)))
        refused(load(b, archive(large, bytes=14 << 20)), b"No space left on device", b"free some space")
        refused(load(b, archive(large, bytes=3 << 20)), b"No space left on device", b"free some space")  # it takes more than it says
        check(made(b) == [] and expect(b.cli("run", "--", "true"), 0), made(b))
        expect(load(b, archive(layer(file(b"a")))), 0)
        check(made(b) == ["evil"], made(b))


def an_interrupted_push_leaves_no_file(b):
    """Also one that is killed: its file has no name until it is complete."""
    one = box(b)
    sh(b, one, "head -c 30000000 /dev/urandom > big")
    expect(b.cli("template", "create", "t", "--from", one), 0)
    path = os.path.join(b.folder, "interrupted.tar")

    def has_begun(pid):
        """It writes to a file of the folder."""
        with contextlib.suppress(FileNotFoundError):
            return any(os.readlink(f"/proc/{pid}/fd/{fd}").startswith(b.folder + "/") and os.stat(f"/proc/{pid}/fd/{fd}").st_size
                       for fd in os.listdir(f"/proc/{pid}/fd"))
        return False

    def interrupted(which):
        """False: it was faster."""
        p = b.popen("template", "push", "t", path, stderr=subprocess.PIPE)
        until(lambda: p.poll() is not None or has_begun(p.pid), "it has begun", brief=True)
        b.process.send_signal(signal.SIGSTOP)
        p.send_signal(which)
        try:
            said = p.communicate(timeout=scaled(30))[1]
        finally:
            b.process.send_signal(signal.SIGCONT)
        if p.returncode == 0:
            os.unlink(path)
            return False
        code = -which if which == signal.SIGKILL else 128 + which
        left = glob.glob(path + "*")
        check(p.returncode == code and said == b"" and left == [], f"{p.returncode} {said} {left}")
        return True
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        until(lambda: interrupted(which), "it is interrupted")


def a_reader_that_stops_holds_nobody_up(b):
    one = box(b)
    sh(b, one, "head -c 20000000 /dev/urandom > big")
    expect(b.cli("template", "create", "t", "--from", one), 0)
    gone = b.popen("template", "push", "t", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    gone.stdout.read(100)
    gone.stdout.close()
    check(gone.wait(60) == 141 and gone.stderr.read() == b"", f"a reader that has gone: {gone.returncode}")
    slow = b.popen("template", "push", "t", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    slow.stdout.read(100)
    expect(b.cli("snapshot", "create", "--keep", one, "k"), 0)
    expect(b.cli("snapshot", "rm", "k"), 0)
    expect(b.cli("template", "rm", "t"), 0)
    rest, _ = slow.communicate()
    check(slow.returncode == 0 and len(rest) > 20000000, "what was deleted meanwhile comes whole")


def slow_callers_lose_their_places_to_others(b):
    """Nine accounts, of which eight load a little and wait."""
    data = archive(layer(file(b"a", os.urandom(300000))))
    b.stranger("version")  # makes a copy of the command that others can execute

    def other(user, *args):
        return Popen([f"{b.folder}/stockade", "--address", b.address, "template", *args], user=user, group=user, extra_groups=[], cwd="/",
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    slow = {user: other(user, "load", "-") for user in range(54330, 54338)}
    for p in slow.values():
        p.stdin.write(data[:70000])
        p.stdin.flush()
    full = time.monotonic()
    while (r := load(b, data)).returncode == 0:
        expect(b.cli("template", "rm", "evil"), 0)
        check(time.monotonic() < full + 8, "eight places are not taken")
    refused(r, b"8 archives", b"try again")
    until(lambda: load(b, data).returncode == 0, "a slow one makes room", seconds=20)
    check(time.monotonic() - full > 5, "they had no time")
    lost = []
    for user, p in slow.items():  # those that have their places go on
        _, why = p.communicate(data[70000:])
        if p.returncode == 0:
            check(other(user, "rm", "evil").wait() == 0, "it is its caller's")
        else:
            lost.append(why)
    check(len(lost) == 1 and b"another caller needed the place" in lost[0], lost)


CASES = [slow_callers_lose_their_places_to_others,
         layers_that_no_keeper_writes_are_refused, containers_that_nobody_pushes_are_refused,
         what_one_pushes_another_loads_with_all_its_files, a_writable_root_goes_as_well,
         it_is_the_callers_alone_and_one_at_a_time, a_full_disk_refuses_and_loses_nothing, an_interrupted_push_leaves_no_file, a_reader_that_stops_holds_nobody_up,
         a_kill_in_the_middle_leaves_nothing]


def main():
    with Broker(config=CONFIG) as b:
        other = Broker(config=CONFIG, name="-other")
        key = f"{other.folder}/key"
        with open(key, "wb", opener=lambda p, flags: os.open(p, flags, 0o400)) as f:
            f.write(os.urandom(32))
        other.write_config(CONFIG + f"encryption: {{key_file: {key}}}\n")
        with other:
            b.other = other
            return run_cases(CASES, lambda case: (clear(b), clear(other), case(b)))


if __name__ == "__main__":
    sys.exit(main())
