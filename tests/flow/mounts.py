#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Folders of the host in sandboxes: what the configuration refuses, what a request may name, the ids of files, set-id files, sockets
and links there, snapshots, forks, sleep and batches, a name that leads elsewhere later, reload; and the volumes of a template."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

from api import NOT_FOUND, SANDBOX, main
from broker import Broker, binary, maps_ids_in_memory, skip
from runner import check, until
from sp import INVALID
from volumes import VOLUME, new, no, sh

OWNER = 54322
DENIED = 7
CODE = "/stockade.v1.CodeService/"

FOLDERS = tempfile.mkdtemp(prefix="stockade-test-folders-", dir=tempfile.gettempdir())
CLOSED = f"{FOLDERS}/closed"
OPEN, WORK = f"{FOLDERS}/open", f"{CLOSED}/work"
CONFIG = f"""
socket: {{mode: 0666}}
pool: 1
bpf: {{enabled: false}}
limits_max: {{disk: 256M, memory: 512M}}
templates:
  - name: default
    limits: {{disk: 16M, inodes: 2000, memory: 128M}}
    mounts:
      - path: {OPEN}
      - {{path: {WORK}, mode: writable}}
  - name: root
    user: root
    limits: {{disk: 16M, inodes: 2000, memory: 128M}}
    mounts:
      - path: {OPEN}
      - {{path: {WORK}, mode: writable}}
  - name: always
    limits: {{disk: 16M, inodes: 2000, memory: 128M}}
    mounts:
      - {{path: {OPEN}, at: /models}}
    volumes:
      - {{name: cache, at: /cache}}
  - name: plain
    limits: {{disk: 16M, inodes: 2000, memory: 128M}}
"""


def write(path, text, owner=0, mode=0o644):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chown(path, owner, owner)
    os.chmod(path, mode)


def prepare():
    os.chmod(FOLDERS, 0o755)
    for path, owner, mode in ((CLOSED, OWNER, 0o700), (OPEN, 0, 0o755), (WORK, OWNER, 0o755)):
        os.makedirs(path, exist_ok=True)  # the same one: a broker has it open
        for entry in os.scandir(path):
            if entry.path == WORK:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        os.chown(path, owner, owner)
        os.chmod(path, mode)
    write(f"{OPEN}/all", "all\n")
    write(f"{OPEN}/secret", "secret\n", mode=0o600)
    write(f"{OPEN}/anybody", "x\n", mode=0o666)
    write(f"{WORK}/mine", "mine\n", OWNER, 0o600)
    write(f"{WORK}/roots", "roots\n", 0, 0o600)
    write(f"{WORK}/others", "others\n", 1234, 0o666)


def mount(path, at="/data", mode="ro"):
    return (path, at, mode)


# ---- what is refused


def config_fails(mounts, *words, volumes=""):
    path = f"{FOLDERS}/bad.yaml"
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"pool: 1\ntemplates:\n  - name: default\n    mounts: {mounts}\n{volumes}")
    r = subprocess.run([binary("stockaded"), "--check", "--config", path], capture_output=True, check=False)
    text = (r.stdout + r.stderr).decode()
    check(r.returncode != 0, f"{mounts}: {text}")
    for word in words:
        check(word in text, f"{mounts}: {word!r} is not in {text!r}")


def bad_rows_are_refused_with_their_place(b, c):
    for mounts, word in (("/srv", "must be a list"), ("[{at: /x}]", "must have a path"), ("[{path: srv}]", "absolute"),
                         ("[{path: /srv, mode: rw}]", "mode"), ("[{path: /srv, at: /}]", "path"), ("[{path: /srv, at: '/a b'}]", "path"),
                         ("[{path: /srv}, {path: /srv/}]", "already"), ("[{path: /proc/1}]", "system"), ("[{path: /}]", "system"),
                         ("[{path: /etc/ssl}]", "system"), ("[{path: /srv, owner: x}]", "owner"),
                         ("[" + ", ".join(f"{{path: /srv/{i}}}" for i in range(9)) + "]", "more than 8")):
        config_fails(mounts, word, "bad.yaml")
    for volumes, word in (("[{name: a}]", "path"), ("[{name: a b, at: /x}]", "name"), ("[{at: /x}]", "name"), ("x", "list")):
        config_fails("[]", word, volumes=f"    volumes: {volumes}\n")


def only_listed_folders_are_mounted(b, c):
    for path in (CLOSED, FOLDERS, "/", "/etc", f"{OPEN}/", f"{OPEN}/../open", f"{WORK}/sub", "/srv"):
        code = INVALID if path in ("/", f"{OPEN}/") else DENIED
        no(c, "Create", {"volumes": [{"volume": path, "path": "/data", "read_only": True}]}, code, service=SANDBOX)
    no(c, "Create", {"volumes": [{"volume": OPEN, "path": "/data"}]}, DENIED, "HOST_MOUNT", "read-only", service=SANDBOX)
    no(c, "Create", {"template": "plain", "volumes": [{"volume": OPEN, "path": "/data", "read_only": True}]}, DENIED, "plain",
       service=SANDBOX)
    no(c, "Create", {"volumes": [{"volume": OPEN, "path": "/etc/x", "read_only": True}]}, INVALID, "path", service=SANDBOX)
    r = b.cli("run", "--mount", f"{CLOSED}:/data", "true")
    check(r.returncode == 77, f"a refusal: {r}")
    for word in (b"rule: mounts", b"allowed: ", OPEN.encode()):
        check(word in r.stderr, f"{word} is not in {r.stderr}")
    r = b.cli("run", "-o", "json", "--mount", f"{OPEN}:/data", "true")
    check(r.returncode == 77 and b"HOST_MOUNT" in r.stdout + r.stderr, f"{r}")
    for text in ("data:/x", "/srv", f"{OPEN}:x", ":/x", f"{OPEN}:/x:rx"):
        check(b.cli("run", "--mount", text, "true").returncode == 125, f"{text}")
    check(b.cli("run", "-v", f"{OPEN}:/data:ro", "true").returncode == 125, "not a volume's name")


def with_folder(b, mounts):
    """The text of a start that fails, of a broker with these mounts."""
    other = Broker(config=f"pool: 1\nbpf: {{enabled: false}}\ntemplates:\n  - name: default\n    mounts: {mounts}\n",
                   name="-other")
    try:
        other.start()
    except RuntimeError as why:
        return str(why)
    finally:
        if other.process.poll() is None:
            other.stop()
    return ""


def folders_that_others_control_end_the_start(b, c):
    os.symlink(OPEN, f"{FOLDERS}/link")
    text = with_folder(b, f"[{{path: {FOLDERS}/link}}]")
    check("link" in text, f"a link: {text!r}")
    os.symlink(CLOSED, f"{FOLDERS}/way")
    text = with_folder(b, f"[{{path: {OPEN}}}, {{path: {FOLDERS}/way/work}}]")
    check("way is a link" in text, f"below a link: {text!r}")
    os.makedirs(f"{FOLDERS}/theirs/data", exist_ok=True)
    os.chown(f"{FOLDERS}/theirs", 1234, 1234)
    text = with_folder(b, f"[{{path: {FOLDERS}/theirs/data}}]")
    check("could replace" in text, f"another account owns the folder above: {text!r}")
    text = with_folder(b, f"[{{path: {OPEN}, mode: writable}}]")
    check("write as root" in text, f"root's: {text!r}")
    os.makedirs(f"{FOLDERS}/reachable", exist_ok=True)
    os.chown(f"{FOLDERS}/reachable", OWNER, OWNER)
    if not os.statvfs(FOLDERS).f_flag & os.ST_NOSUID:
        text = with_folder(b, f"[{{path: {FOLDERS}/reachable, mode: writable}}]")
        check("set-id" in text, f"others reach it: {text!r}")


def the_state_directory_is_refused(b, c):
    config = "pool: 1\nbpf: {enabled: false}\ntemplates:\n  - name: default\n    mounts: [MOUNT]\n"
    other = Broker(config=config.replace("MOUNT", ""), name="-other")
    other.start()
    other.stop()
    for path in ("", "/state", "/state/templates"):
        other.write_config(config.replace("MOUNT", f"{{path: {other.folder + path}}}"))
        try:
            other.start()
        except RuntimeError as why:
            check("state directory" in str(why), f"{path}: {why}")
        else:
            other.stop()
            check(False, f"{path} was accepted")


# ---- what works


def a_read_only_folder_shows_what_everybody_may_read(b, c):
    box = new(c, mount(OPEN))
    check(sh(c, box, "cat /data/all; stat -c '%u %g' /data /data/all") == "all\n65534 65534\n65534 65534\n", "nobody's")
    check(sh(c, box, "cat /data/secret 2>&1 | grep -c denied; (echo y > /data/anybody) 2>&1 | grep -c 'Read-only'") == "1\n1\n", "no more")
    flags = sh(c, box, "grep ' /data ' /proc/self/mounts").split()[3]
    check(set("ro,nosuid,nodev".split(",")) <= set(flags.split(",")), flags)
    write(f"{OPEN}/later", "later\n")
    check(sh(c, box, "cat /data/later") == "later\n", "what the host writes is there")
    seen = c.unary(SANDBOX + "Get", {"id": box}).sandbox.volumes
    check([(v.volume, v.path, v.read_only) for v in seen] == [(OPEN, "/data", True)], f"{seen}")
    c.unary(SANDBOX + "Delete", {"id": box})


def a_writable_folder_is_the_jobs(b, c):
    box = new(c, mount(WORK, mode="rw"))
    out = sh(c, box, "cd /data; stat -c '%u %g' . mine; cat mine; echo job > made; mkdir d; id -u")
    check(out == "1000 1000\n1000 1000\nmine\n1000\n", f"{out}")
    st = os.stat(f"{WORK}/made")
    check((st.st_uid, st.st_gid) == (OWNER, OWNER), f"the owner's on the host: {st}")
    out = sh(c, box, "cd /data; cat roots 2>&1 | grep -c denied; (echo x >> others) 2>&1 | grep -c denied; cat others; "
                     "chown 0 made 2>&1 | grep -c chown; stat -c %u roots; rm -f roots 2>&1 | wc -l")
    check(out.split("\n")[:5] == ["1", "1", "others", "1", "65534"], f"files of other accounts: {out}")
    check(os.path.exists(f"{WORK}/roots"), "not even removed")
    check(sh(c, box, "cd /data; ln made hard && stat -c %h made; ln /etc/hostname x 2>&1 | grep -c -i cross") == "2\n1\n", "links")
    c.unary(SANDBOX + "Delete", {"id": box})
    r = b.cli("run", "--mount", f"{WORK}:/home/agent/in:ro", "--", "sh", "-c", "cat in/others; touch in/x 2>/dev/null; echo $?")
    check(r.stdout == b"others\n1\n", f"and read-only where the request says so: {r}")


def set_id_files_reach_nobody_else(b, c):
    """A job can make them, but no other account can get there, and they mean nothing in sandboxes."""
    box = new(c, mount(WORK, mode="rw"))
    sh(c, box, "cd /data; cp /usr/bin/id id; chmod 6777 id; chmod 0777 .")
    check(stat.S_IMODE(os.stat(f"{WORK}/id").st_mode) == 0o6777, "it is there")
    r = subprocess.run(["cat", f"{WORK}/id"], user=1234, group=1234, extra_groups=[], check=False, capture_output=True)
    check(r.returncode != 0 and b"denied" in r.stderr, f"another account reaches it: {r}")
    root = new(c, mount(WORK, mode="rw"), template="root")
    check(sh(c, root, "/data/id -u") == "0\n", "its own id")
    check(sh(c, box, "/data/id -u") == "1000\n", "its own id")
    for it in (box, root):
        c.unary(SANDBOX + "Delete", {"id": it})


def root_inside_has_no_power_there(b, c):
    box = new(c, mount(OPEN), mount(WORK, "/work", "rw"), template="root")
    out = sh(c, box, "id -u; cat /data/secret 2>&1 | grep -c denied; cat /work/roots 2>&1 | grep -c denied; cat /work/mine; "
                     "chown 5:5 /work/mine 2>&1 | grep -c .; (echo x >> /work/others) 2>&1 | grep -c denied; touch /work/as-root")
    check(out == "0\n1\n1\nmine\n1\n1\n", f"{out}")
    check(os.stat(f"{WORK}/as-root").st_uid == OWNER, "the owner's")
    out = sh(c, box, "mknod /work/null c 1 3 2>&1 | grep -c permitted; setpriv --reuid 1000 --clear-groups touch /work/y 2>&1 | grep -c .")
    check(out == "1\n1\n", f"no device, and no other id of its range: {out}")
    c.unary(SANDBOX + "Delete", {"id": box})


CONNECT = """python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1]); print("connected")
except OSError as e: print(e.errno)
' """


def sockets_and_pipes_of_a_read_only_folder_are_closed(b, c):
    path = f"{OPEN}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o777)
    listener.listen()
    os.mkfifo(f"{OPEN}/pipe")
    os.chmod(f"{OPEN}/pipe", 0o666)
    os.mknod(f"{OPEN}/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.chmod(f"{OPEN}/null", 0o666)
    reader = os.open(f"{OPEN}/pipe", os.O_RDONLY | os.O_NONBLOCK)
    for template in ("default", "root"):
        box = new(c, mount(OPEN), template=template)
        check(sh(c, box, CONNECT + "/data/socket") == "13\n", "EACCES")
        out = sh(c, box, "(echo x > /data/pipe) 2>&1 | grep -c denied; cat /data/null 2>&1 | grep -c denied")
        check(out == "1\n1\n", f"{template}: {out}")
        c.unary(SANDBOX + "Delete", {"id": box})
    os.close(reader)
    listener.close()


def links_lead_nowhere_on_the_host(b, c):
    secret = f"{FOLDERS}/outside"
    write(secret, "outside\n")
    os.symlink(secret, f"{OPEN}/out")
    os.symlink("../outside", f"{OPEN}/up")
    os.symlink("/proc/self/root/etc/hostname", f"{OPEN}/proc")
    box = new(c, mount(OPEN))
    check(sh(c, box, "cat /data/out /data/up 2>&1 | grep -c 'No such file'") == "2\n", "they are resolved in the sandbox")
    host = os.uname().nodename
    check(sh(c, box, "cat /data/proc").strip() != host or not host, "of the sandbox")
    check(sh(c, box, "cd /data/..; ls -d outside closed 2>&1 | grep -c 'No such'") == "2\n", "'..' leads to the sandbox's own root")
    c.unary(SANDBOX + "Delete", {"id": box})


def what_is_mounted_below_is_no_part_of_it(b, c):
    """The folder as it lies on its file system: no mount of the host below it."""
    script = ('mkdir -p "$0/below" && mount -t tmpfs none "$0/below" && echo hidden > "$0/below/f" && exec "$@"')
    os.makedirs(f"{OPEN}/below", exist_ok=True)
    other = Broker(config=CONFIG, name="-other", prefix=["unshare", "-m", "sh", "-c", script, OPEN])
    with other:
        r = other.cli("run", "--mount", f"{OPEN}:/data:ro", "ls", "/data/below")
        check(r.returncode == 0 and r.stdout == b"", f"{r}")


def a_name_that_leads_elsewhere_later_has_no_effect(b, c):
    """The folder was opened once; a link or another folder in its place is not what sandboxes get."""
    box = new(c, mount(WORK, mode="rw"))
    os.rename(WORK, f"{CLOSED}/moved")
    os.symlink("/etc", WORK)
    check(sh(c, box, "cat /data/mine; ls /data/passwd 2>&1 | grep -c 'No such'") == "mine\n1\n", "the one that is mounted")
    late = new(c, mount(WORK, mode="rw"))
    check(sh(c, late, "cat /data/mine; ls /data/passwd 2>&1 | grep -c 'No such'") == "mine\n1\n", "a later sandbox has it, too")
    b.process.send_signal(signal.SIGHUP)
    until(lambda: "is a link" in b.log() or "link or no folder" in b.log(), "a reload refuses the link")
    check(sh(c, new(c, mount(WORK, mode="rw")), "cat /data/mine") == "mine\n", "and goes on with what it has")
    os.unlink(WORK)
    os.rename(f"{CLOSED}/moved", WORK)
    b.cli("rm", "--all")


def a_folder_that_was_removed_is_named(b, c):
    os.rename(WORK, f"{CLOSED}/kept")
    os.mkdir(WORK)
    os.chown(WORK, OWNER, OWNER)
    other = Broker(config=CONFIG, name="-other")
    with other:
        os.rmdir(WORK)
        r = other.cli("run", "--mount", f"{WORK}:/data", "true")
        check(r.returncode == 125 and b"was removed on the host" in r.stderr, f"{r}")
        os.rename(f"{CLOSED}/kept", WORK)
        other.process.send_signal(signal.SIGHUP)
        until(lambda: other.cli("run", "--mount", f"{WORK}:/data", "cat", "/data/mine").stdout == b"mine\n", "after a reload")


def it_stays_with_snapshots_forks_and_sleep(b, c):
    box = new(c, mount(WORK, mode="rw"), mount(OPEN, "/models"))
    sh(c, box, "echo 1 > /data/A; echo 1 > B")
    c.unary("/stockade.v1.SnapshotService/Create", {"sandbox": box, "name": "s"})
    sh(c, box, "echo 2 > /data/A; echo 2 > B")
    c.unary("/stockade.v1.SnapshotService/Restore", {"sandbox": box, "name": "s"})
    check(sh(c, box, "cat /data/A B /models/all") == "2\n1\nall\n", "the folder is as it was")
    if maps_ids_in_memory():
        fork = c.unary(SANDBOX + "Fork", {"id": box}).sandboxes[0].id
        check(sh(c, fork, "cat /data/A; echo 3 > /data/A; stat -c %u /data/A") == "2\n1000\n", "the fork has it")
        c.unary(SANDBOX + "Delete", {"id": fork})
        check(sh(c, box, "cat /data/A") == "3\n", "the same one")
    c.unary(SANDBOX + "Sleep", {"id": box})
    check(sh(c, box, "cat /data/A B /models/all") .endswith("\n1\nall\n"), "and after a sleep")
    c.unary(SANDBOX + "Delete", {"id": box})
    r = b.cli("run", "--simulate", "--mount", f"{WORK}:/data", "--", "sh", "-c", "echo 4 > /data/A; cat /data/A")
    check(b"Read-only" in r.stderr and b"4" not in r.stdout, f"a simulation writes nothing: {r}")


def batches_and_cells_have_mounts_and_volumes(b, c):
    b.cli("volume", "create", "vol", "--size", "8M")
    has_disks = b.feature("disks")["available"]
    jobs = b"".join(b'["sh", "-c", "cat /models/all; echo %d >> /work/log"]\n' % i for i in range(6))
    for reset in ("sandbox", "files"):
        r = b.cli("batch", "--reset", reset, "--network", "off", "--mount", f"{OPEN}:/models:ro", "--mount", f"{WORK}:/work", "-",
                  input=jobs)
        check(r.returncode == 0 and r.stdout.count(b'all\\n') == 6, f"{reset}: {r}")
    with open(f"{WORK}/log", encoding="utf-8") as f:
        check(sorted(f.read().split()) == sorted("012345" * 2), "each job wrote once")
    r = b.cli("code", "--mount", f"{OPEN}:/models:ro", "-c", "print(open('/models/all').read())")
    check(r.returncode == 0 and b"all" in r.stdout, f"{r}")
    box = c.unary(SANDBOX + "Create", {}).sandbox.id
    volumes = [{"volume": OPEN, "path": "/m", "read_only": True}]
    no(c, "RunCode", {"code": "1", "sandbox_id": box, "volumes": volumes}, INVALID, "fresh sandbox", service=CODE)
    c.unary(SANDBOX + "Delete", {"id": box})
    if has_disks:
        r = b.cli("code", "-v", "vol:/v", "-c", "open('/v/x', 'w').write('cell')")
        check(r.returncode == 0, f"{r}")
        r = b.cli("batch", "-v", "vol:/v", "-", input=b'["cat", "/v/x"]\n')
        check(b'"cell"' in r.stdout, f"{r}")
        b.cli("volume", "rm", "vol")


def a_template_mounts_its_own(b, c):
    if not b.feature("disks")["available"]:
        r = b.cli("run", "--template", "always", "true")
        check(b"there is no volume cache" in r.stderr, f"{r}")
        return
    no(c, "Create", {"template": "always"}, NOT_FOUND, "there is no volume cache", "always", service=SANDBOX)
    c.unary(VOLUME + "Create", {"name": "cache", "bytes": 8 << 20, "inodes": 500})
    r = b.cli("run", "--template", "always", "--", "sh", "-c", "cat /models/all; echo kept > /cache/A")
    check(r.stdout == b"all\n", f"{r}")
    check(b.cli("code", "--template", "always", "-c", "print(open('/cache/A').read())").stdout.strip() == b"kept", "for cells, too")
    no(c, "Create", {"template": "always", "volumes": [{"volume": "cache", "path": "/cache/in"}]}, INVALID, "another one", service=SANDBOX)
    seven = [{"volume": "cache", "path": f"/c{i}"} for i in range(7)]
    no(c, "Create", {"template": "always", "volumes": seven}, INVALID, "at most 8", service=SANDBOX)
    r = b.stranger("run", "--template", "always", "true")
    check(b"there is no volume cache" in r.stderr, f"another tenant has none of the name: {r}")
    b.cli("volume", "rm", "--force", "cache")


def a_reload_changes_what_is_listed(b, c):
    box = new(c, mount(WORK, mode="rw"))
    b.write_config(CONFIG.replace(f"{{path: {WORK}, mode: writable}}", f"{{path: {WORK}}}", 1))
    b.process.send_signal(signal.SIGHUP)
    until(lambda: b.cli("run", "--mount", f"{WORK}:/data", "true").returncode == 77, "writing is refused now")
    check(sh(c, box, "echo x > /data/B; cat /data/B") == "x\n", "a sandbox keeps what it has")
    c.unary(SANDBOX + "Delete", {"id": box})
    b.write_config(CONFIG)
    b.process.send_signal(signal.SIGHUP)
    until(lambda: b.cli("run", "--mount", f"{WORK}:/data", "true").returncode == 0, "and it may again")


def nothing_is_left(b, c):
    for _ in range(3):
        sh(c, new(c, mount(WORK, mode="rw"), mount(OPEN, "/m")), "touch /data/Z")
        b.cli("rm", "--all")
    before = b.rests()
    boxes = [new(c, mount(WORK, mode="rw"), mount(OPEN, "/m")) for _ in range(5)]
    for box in boxes:
        c.unary(SANDBOX + "Delete", {"id": box})
    b.rests()
    check(b.settles(before), "as before")


TESTS = [bad_rows_are_refused_with_their_place, only_listed_folders_are_mounted, folders_that_others_control_end_the_start,
         the_state_directory_is_refused, a_read_only_folder_shows_what_everybody_may_read, a_writable_folder_is_the_jobs,
         set_id_files_reach_nobody_else, root_inside_has_no_power_there, sockets_and_pipes_of_a_read_only_folder_are_closed,
         links_lead_nowhere_on_the_host, what_is_mounted_below_is_no_part_of_it, a_name_that_leads_elsewhere_later_has_no_effect,
         a_folder_that_was_removed_is_named, it_stays_with_snapshots_forks_and_sleep, batches_and_cells_have_mounts_and_volumes, a_template_mounts_its_own,
         a_reload_changes_what_is_listed, nothing_is_left]


def fresh(test):
    def run(b, c):
        prepare()
        test(b, c)
    run.__name__ = test.__name__
    return run


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("needs root")
    prepare()
    try:
        main(Broker(config=CONFIG), [fresh(test) for test in TESTS])
    finally:
        shutil.rmtree(FOLDERS, ignore_errors=True)
