# SPDX-License-Identifier: Apache-2.0
# What a Python program asks of the system: processes, loops, temporary files, a database, virtual environments.
cat >p.py <<'P'
import asyncio, concurrent.futures as cf, ctypes, curses, fcntl, glob, locale, mmap, multiprocessing as mp, os, pathlib, pty, pwd, queue, resource, select, shutil, signal
import socket, sqlite3, ssl, subprocess, sys, tempfile, threading, time, zoneinfo
from multiprocessing import shared_memory

def square(n): return n * n
def put(q): q.put(os.getpid() > 0)

async def loop():
    server = await asyncio.start_server(lambda r, w: (w.write(b"hello\n"), w.close()), "127.0.0.1", 0)
    reader, _ = await asyncio.open_connection(*server.sockets[0].getsockname())
    child = await asyncio.create_subprocess_exec("sh", "-c", "cat; exit 5", stdin=-1, stdout=-1)
    out, _ = await child.communicate(b"in")
    return await reader.readline(), out, child.returncode, await asyncio.gather(*(asyncio.to_thread(square, i) for i in range(5)))

def main():
    for how in ("fork", "spawn", "forkserver"):
        with mp.get_context(how).Pool(3) as p: print(how, p.map(square, range(8)))
    with cf.ProcessPoolExecutor(2) as p, cf.ThreadPoolExecutor(8) as t: print(sum(p.map(square, range(20))), sum(t.map(square, range(200))))
    q = mp.Queue(); mp.Process(target=put, args=(q,)).start(); print(q.get(timeout=20)); m = mp.Manager(); print(dict(m.dict(a=1))); m.shutdown()
    s = shared_memory.SharedMemory(create=True, size=1 << 20); s.buf[9] = 7; o = shared_memory.SharedMemory(s.name); print(o.buf[9]); o.close(); s.close(); s.unlink()
    l = mp.RLock(); print(l.acquire(timeout=1)); print(asyncio.run(loop()))
    with tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile(dir=d) as f, tempfile.TemporaryFile() as t:
        print(pathlib.Path(f.name).exists(), t.write(b"x" * 100), oct(os.stat(d).st_mode), sorted(os.listdir(d)) == [os.path.basename(f.name)])
        c = sqlite3.connect(d + "/db"); c.execute("pragma journal_mode=wal"); c.execute("create table t(x)"); c.executemany("insert into t values(?)", ((i,) for i in range(1000))); c.commit()
        print(c.execute("select sum(x) from t").fetchone(), sqlite3.connect(d + "/db").execute("pragma integrity_check").fetchone()); c.close()
        os.mkfifo(d + "/f"); os.link(f.name, d + "/h"); os.symlink("none", d + "/s"); print(sorted(e.is_symlink() for e in os.scandir(d))); shutil.copytree("/usr/share/python3", d + "/c", symlinks=True)
        fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); print(shutil.disk_usage(d).free > 0, os.statvfs(d).f_namemax); os.truncate(f.name, 1 << 20); mm = mmap.mmap(f.fileno(), 0); mm[5:8] = b"abc"; print(mm.find(b"abc"))
        print(all(e.inode() == e.stat(follow_symlinks=False).st_ino for p in (d, "/usr/bin", "/etc", "/") for e in os.scandir(p) if not os.path.ismount(e.path)))
    a, b = socket.socketpair(); socket.send_fds(a, [b"x"], [0]); print(len(socket.recv_fds(b, 9, 9)[1])); e = select.epoll(); e.register(a, select.EPOLLOUT); print(e.poll(1)[0][1]); print(os.memfd_create("m") > 0)
    signal.signal(signal.SIGALRM, lambda *_: print("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.02); signal.pause(); print(signal.sigtimedwait([signal.SIGUSR1], 0.01)); print(os.pidfd_open(os.getpid()) > 0)
    pid, fd = pty.fork()
    if pid == 0: os.execlp("sh", "sh", "-c", "tty >/dev/null && stty size && echo terminal")
    time.sleep(0.2); print(os.read(fd, 99)); os.waitpid(pid, 0)
    for name in ("/usr/none", "/etc/none", "/none"):
        for call in (os.unlink, os.rmdir, os.stat, os.readlink): 
            try: call(name)
            except OSError as x: print(call.__name__, name, x.strerror)
    print(len(os.getrandom(8)), os.sysconf("SC_PAGESIZE"), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0, pwd.getpwuid(os.getuid()).pw_name != "", socket.getaddrinfo("localhost", 80)[0][4][1], time.tzname)
    print(ctypes.CDLL(None).getpid() == os.getpid(), ssl.create_default_context().verify_mode, len(ssl.create_default_context().get_ca_certs()) > 50, zoneinfo.ZoneInfo("Europe/Berlin"), locale.setlocale(locale.LC_ALL, "C.UTF-8"), os.nice(1) - os.nice(0), os.getloadavg()[0] >= 0)
    threads = [threading.Thread(target=time.sleep, args=(0.1,)) for _ in range(200)]; [t.start() for t in threads]; print(threading.active_count()); print(os.get_terminal_size.__name__, sys.flags.isolated)
if __name__ == "__main__": main()
P
/usr/bin/python3 p.py
/usr/bin/python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'
