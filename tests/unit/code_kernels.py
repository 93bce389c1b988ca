#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel programs alone: each is started on a socket pair, as the guest starts it, and gets cells."""
import fcntl
import gc
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

KERNELS = os.path.join(os.environ.get("STOCKADE_SOURCE", os.path.join(os.path.dirname(__file__), "../..")), "server/code/kernel")
PYTHON = ("import os;link=os.fdopen(3,'rb',65536);n=link.readline().split()[2];"
          "exec(compile(link.read(int(n)),'<kernel>','exec'),{'__name__':'stockade','link':link})")
ZYGOTE = ("import os;n=os.fstat(4).st_size;t=os.pread(4,n,0);os.close(4);"
          "exec(compile(t,'<kernel>','exec'),{'__name__':'stockade','zygote':True})")
PYTHON_PARTS = ["python.py", "python_display.py", "python_charts.py", "python_live.py", "python_zygote.py"]
BASH = "IFS=' ' read -r -u 3 k r n;LC_ALL=C IFS= read -r -d '' -u 3 -N \"$n\" k;eval \"$k\""
NODE = ("{let f=require('fs'),c=Buffer.alloc(1),h='';while(f.readSync(3,c),c[0]!==10)h+=c;let n=+h.split(' ')[2],"
        "b=Buffer.alloc(n),a=0;while(a<n)a+=f.readSync(3,b,a,n-a,null);new Function('require','process',b.toString())(require,process)}")


class Kernel:
    def __init__(self, args, parts, env=None):
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(30)
        self.reader = self.ours.makefile("rb")
        text = b""
        for part in parts:
            with open(os.path.join(KERNELS, part), "rb") as file:
                text += file.read()

        def take_link():
            os.dup2(theirs.fileno(), 3, inheritable=True)
            os.setsid()
        self.child = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      close_fds=False, preexec_fn=take_link, env=env)
        theirs.close()
        self.number = 0
        self.send("program", 0, text)
        assert self.frame()[0] == "ready"

    def send(self, kind, number, payload):
        self.ours.sendall(f"{kind} {number} {len(payload)}\n".encode() + payload)

    def frame(self):
        head = self.reader.readline(200)
        if not head:
            return None
        kind, number, size, *rest = head.decode().split()
        payload = self.reader.read(int(size))
        assert len(payload) == int(size) <= 49152, head
        return kind, int(number), payload, rest

    def begin(self, code):
        self.number += 1
        self.send("run", self.number, code.encode())

    def end(self):
        frames = []
        while True:
            frame = self.frame()
            if frame is None:
                return frames
            assert frame[1] == self.number, frame
            frames.append((frame[0], frame[2], *frame[3]))
            if frame[0] == "done":
                return frames

    def cell(self, code):
        self.begin(code)
        return self.end()

    def piped(self):
        os.set_blocking(self.child.stdout.fileno(), False)
        return self.child.stdout.read() or b""

    def close(self):
        self.reader.close()
        self.ours.close()
        try:
            self.child.wait(10)
        finally:
            self.child.kill()
            self.child.wait()
            self.child.stdout.close()
            self.child.stderr.close()


def text(frames, kind="stdout"):
    return b"".join(f[1] for f in frames if f[0] == kind).decode()


def forms(frames):
    results, now = [], {}
    for f in frames:
        if f[0] == "result":
            now[f[3]] = now.get(f[3], b"") + f[1]
            if "." in f[2]:
                results.append(now)
                now = {}
    return results


class Shared:
    """What every language does."""

    def setUp(self):
        self.k = self.kernel()

    def tearDown(self):
        self.k.close()

    def test_frames_of_a_forged_size_do_not_exist_and_a_closed_link_ends_it(self):
        self.k.ours.shutdown(socket.SHUT_RDWR)
        self.assertEqual(self.k.child.wait(10), 0)


class Zygote:
    """A zygote with its socket to the broker, and kernels that it forks."""

    def __init__(self):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(30)
        program = tempfile.TemporaryFile()
        for part in PYTHON_PARTS:
            with open(os.path.join(KERNELS, part), "rb") as file:
                program.write(file.read())
        program.flush()

        def take():
            high = fcntl.fcntl(program.fileno(), fcntl.F_DUPFD, 64)
            os.dup2(theirs.fileno(), 3, inheritable=True)
            os.dup2(high, 4, inheritable=True)
        self.child = subprocess.Popen(["/usr/bin/python3", "-c", ZYGOTE], stdin=subprocess.DEVNULL, close_fds=False, preexec_fn=take)
        theirs.close()
        program.close()

    def warm(self, modules):
        self.ours.send(b"warm " + modules)
        return self.ours.recv(4096)

    def fork(self):
        """A Kernel, without its process."""
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(30)
        socket.send_fds(self.ours, [b"fork"], [theirs.fileno()])
        theirs.close()
        k = Kernel.__new__(Kernel)
        assert control.recv(99).startswith(b"forked ")
        k.number, k.pid = 0, int(control.recv(20))
        k.ours, link = socket.socketpair()
        k.ours.settimeout(30)
        k.reader = k.ours.makefile("rb")
        with open(os.devnull, "r+b") as null:
            socket.send_fds(control, [b"g"], [null.fileno()] * 3 + [link.fileno()])
        control.close()
        link.close()
        return k

    def close(self):
        self.ours.close()
        self.child.wait(10)


class Forks(unittest.TestCase):
    def setUp(self):
        self.z = Zygote()
        self.addCleanup(self.z.close)
        self.addCleanup(gc.collect)

    def test_a_fork_is_like_a_fresh_interpreter(self):
        said = self.z.warm(b"json nothing_of_this_name")
        self.assertIn(b"import nothing_of_this_name: ModuleNotFoundError", said)
        k = self.z.fork()
        frames = k.cell("print(sorted(k for k in globals() if not k.startswith('__')), _ if '_' in globals() else None)")
        self.assertEqual(text(frames), "['In', 'Out', 'display'] None\n")
        self.assertEqual(frames[-1], ("done", b"", "1", "ok"))
        self.assertEqual(text(k.cell("import sys, os; print('json' in sys.modules, os.getpid())")), f"True {k.pid}\n")

    def test_forks_share_nothing_that_is_random_or_open(self):
        self.assertEqual(self.z.warm(b"random"), b"warm ")
        look = ("import os, random\nfds = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if "
                "os.path.islink(f'/proc/self/fd/{fd}')]\n"
                "print(random.random(), os.getsid(0) == os.getpid(), sum(fd.startswith('socket:') for fd in fds))")
        one, two = (text(self.z.fork().cell(look)).split() for _ in range(2))
        self.assertNotEqual(one[0], two[0])
        self.assertEqual((one[1:], two[1:]), (["True", "1"], ["True", "1"]))

    def test_top_level_await_works_in_a_fork(self):
        self.z.warm(b"asyncio")
        k = self.z.fork()
        self.assertEqual(text(k.cell("import asyncio\nawait asyncio.sleep(0.01)\nprint('woke')")), "woke\n")

    def test_a_fork_that_nobody_takes_ends_with_its_socket(self):
        self.z.warm(b"")
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self.z.ours, [b"fork"], [theirs.fileno()])
        theirs.close()
        self.assertTrue(control.recv(99).startswith(b"forked "))
        pid = int(control.recv(20))
        pidfd = os.pidfd_open(pid)
        control.close()
        with selectors.DefaultSelector() as ready:
            ready.register(pidfd, selectors.EVENT_READ)
            self.assertTrue(ready.select(20))
        os.close(pidfd)


class Python(Shared, unittest.TestCase):
    def kernel(self):
        return Kernel(["/usr/bin/python3", "-c", PYTHON], PYTHON_PARTS)

    def error(self, frames):
        name, value, trace = [f[1] for f in frames if f[0] == "error"][0].decode().split("\0")
        return name, value, trace

    def test_an_error_has_a_name_a_value_and_the_traceback_of_the_cell_only(self):
        frames = self.k.cell("def f():\n    return {}['k']\nf()")
        name, value, trace = self.error(frames)
        self.assertEqual((name, value), ("KeyError", "'k'"))
        self.assertIn("line 2, in f", trace)
        self.assertIn("return {}['k']", trace)
        self.assertNotIn("<kernel>", trace)
        self.assertEqual(frames[-1], ("done", b"", "1", "error"))
        self.assertEqual(self.error(self.k.cell("1 +"))[0], "SyntaxError")
        name, value, trace = self.error(self.k.cell("class E(Exception):\n  def __str__(self): raise ValueError\nraise E"))
        self.assertEqual(name, "E")

    def test_sys_exit_ends_the_cell_and_not_the_kernel(self):
        self.assertEqual(self.error(self.k.cell("import sys; sys.exit(3)"))[:2], ("SystemExit", "3"))
        self.assertEqual(text(self.k.cell("print(1)")), "1\n")

    def test_variables_stay_and_the_last_expression_is_a_result(self):
        self.assertEqual(self.k.cell("x = 40"), [("done", b"", "1", "ok")])
        self.assertEqual(self.k.cell("x + 2")[0], ("result", b"42", "m.", "text/plain"))
        self.assertEqual(forms(self.k.cell("_ + 1")), [{"text/plain": b"43"}])
        self.assertEqual(forms(self.k.cell("x;")), [])
        self.assertEqual(forms(self.k.cell("None")), [])

    def test_a_cell_that_looks_like_one_call_is_a_cell_like_any_other(self):
        self.assertEqual(text(self.k.cell("print('a'); print('b')")), "a\nb\n")
        self.assertEqual(self.k.cell("kept = len('abc')"), [("done", b"", "2", "ok")])
        self.assertEqual(text(self.k.cell("if kept: print(kept)")), "3\n")
        self.assertEqual(forms(self.k.cell("max(4, kept)")), [{"text/plain": b"4"}])
        self.assertEqual(text(self.k.cell("print(_)")), "4\n")
        self.assertEqual(forms(self.k.cell("await __import__('asyncio').sleep(0, result=5)")), [{"text/plain": b"5"}])
        self.assertEqual(self.error(self.k.cell("return len('a')"))[:2], ("SyntaxError", "'return' outside function (<cell 7>, line 1)"))
        trace = self.error(self.k.cell("len(missing)"))[2]
        self.assertIn("len(missing)", trace)
        self.assertNotIn("<kernel>", trace)

    def test_what_one_print_writes_is_one_message(self):
        frames = self.k.cell("print('a', 'b')\nimport sys\nprint('c', file=sys.stderr)\nprint('d', end='')")
        self.assertEqual(frames[:-1], [("stdout", b"a b\n"), ("stderr", b"c\n"), ("stdout", b"d")])

    def test_a_long_output_comes_in_bounded_frames(self):
        self.assertEqual(len(text(self.k.cell("print('x' * 300000)"))), 300001)

    def test_await_works_at_top_level_and_the_loop_stays(self):
        self.k.cell("import asyncio\nq = asyncio.Queue()\nawait q.put(7)")
        self.assertEqual(forms(self.k.cell("await q.get()")), [{"text/plain": b"7"}])

    def test_a_future_import_holds_for_later_cells(self):
        self.k.cell("from __future__ import annotations")
        self.assertEqual(text(self.k.cell("def f(x: missing): pass\nprint(f.__annotations__)")), "{'x': 'missing'}\n")

    def test_an_interrupt_ends_the_cell_and_keeps_the_variables(self):
        for code in ("x = 5\nwhile True: pass", "x = 5\nimport time; time.sleep(60)", "x = 5\nawait __import__('asyncio').sleep(60)",
                     "x = 5\nwhile True: print('flood' * 100)"):
            self.k.begin(code)
            time.sleep(0.3)
            os.kill(self.k.child.pid, signal.SIGINT)
            frames = self.k.end()
            self.assertEqual(frames[-1][3], "interrupted", code)
            self.assertEqual(self.error(frames)[0], "KeyboardInterrupt")
            self.assertEqual(text(self.k.cell("print(x); x = 0")), "5\n")

    def test_an_interrupt_between_cells_is_ignored(self):
        for _ in range(20):
            os.kill(self.k.child.pid, signal.SIGINT)
            self.assertEqual(text(self.k.cell("print(1)")), "1\n")

    def test_a_crash_keeps_what_was_printed_before(self):
        frames = self.k.cell("print('before')\nimport os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        self.assertEqual(frames, [("stdout", b"before\n")])
        self.assertEqual(self.k.child.wait(10), -signal.SIGSEGV)

    def test_a_child_of_fork_never_writes_to_the_link(self):
        frames = self.k.cell("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('who', pid > 0)")
        self.assertEqual(frames[:-1], [("stdout", b"who True\n")])
        self.assertEqual(self.k.piped(), b"who False\n")
        frames = self.k.cell("import subprocess; subprocess.run(['/bin/sh', '-c', 'echo forged 1 0 >&3']).returncode != 0")
        self.assertEqual(forms(frames), [{"text/plain": b"True"}])

    def test_an_object_shows_its_forms_and_a_broken_one_does_no_harm(self):
        frames = self.k.cell("class H:\n  def _repr_html_(self): return '<b>h</b>'\n  def _repr_png_(self): raise OSError\n"
                             "  def __repr__(self): raise ValueError('no')\nH()")
        self.assertEqual(forms(frames)[0]["text/html"], b"<b>h</b>")
        self.assertIn(b"its repr() raised ValueError: no", forms(frames)[0]["text/plain"])
        frames = self.k.cell("display({'text/markdown': '# m', 'bad mime\\n': 'x'}, raw=True)\ndisplay(1, 2)")
        self.assertEqual(forms(frames), [{"text/markdown": b"# m"}, {"text/plain": b"1"}, {"text/plain": b"2"}])

    def test_a_huge_result_is_cut(self):
        self.assertLess(len(forms(self.k.cell("'x' * 3000000"))[0]["text/plain"]), 1100000)

    def test_threads_write_whole_frames(self):
        frames = self.k.cell("import threading\ndef f():\n  for i in range(200): print('line')\n"
                             "t = [threading.Thread(target=f) for _ in range(4)]\n[x.start() for x in t]; [x.join() for x in t];")
        self.assertEqual((text(frames).count("line"), text(frames).count("\n")), (800, 800))

    def test_setup_sets_folder_and_environment(self):
        self.k.send("setup", 0, b"/tmp\0A=1\0B=two\nlines")
        self.assertEqual(text(self.k.cell("import os; print(os.getcwd(), sorted(os.environ))")),
                         "/tmp ['A', 'B', 'MPLBACKEND']\n")

    def test_a_missing_folder_is_said_and_ends_it(self):
        self.k.send("setup", 0, b"/nowhere\0A=1")
        kind, number, said, _ = self.k.frame()
        self.assertEqual((kind, number, said), ("failed", 0, b"enter /nowhere: No such file or directory"))
        self.assertEqual(self.k.child.wait(10), 127)

    def test_a_figure_becomes_a_picture_with_its_chart(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("python3-matplotlib is not installed")
        import json
        frames = self.k.cell("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], label='l')\nplt.title('t')\n"
                             "plt.xlabel('Time (s)');")
        picture = forms(frames)[-1]
        self.assertEqual(picture["image/png"][:4], b"\x89PNG")
        chart = json.loads(picture["e2b/chart"])
        self.assertEqual((chart["type"], chart["title"], chart["x_unit"]), ("line", "t", "s"))
        self.assertEqual(chart["elements"], [{"label": "l", "points": [[1, 4], [2, 5], [3, 6]]}])
        for code, kind in (("plt.bar(['a', 'b'], [1, 2]); plt.show()", "bar"), ("plt.scatter([1], [2]);", "scatter"),
                           ("plt.pie([1, 3], labels=['x', 'y']);", "pie"), ("plt.boxplot([[1, 2, 3, 9]]);", "box_and_whisker"),
                           ("f, a = plt.subplots(2); a[0].plot([1]); a[1].bar(['q'], [2]);", "superchart")):
            chart = json.loads(forms(self.k.cell(code))[-1]["e2b/chart"])
            self.assertEqual(chart["type"], kind)
        bars = json.loads(forms(self.k.cell("plt.bar(['a', 'b'], [1, 2]);"))[-1]["e2b/chart"])["elements"]
        self.assertEqual([(b["label"], b["value"]) for b in bars], [("a", 1), ("b", 2)])

    def test_a_data_frame_becomes_a_table(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import pandas"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("python3-pandas is not installed")
        frame = forms(self.k.cell("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"))[0]
        self.assertIn(b"<table", frame["text/html"])
        self.assertEqual(frame["e2b/data"], b'{"a": [1, 2], "b": ["x", "y"]}')

    def test_ipython_gives_magics_and_commands(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import IPython"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("python3-ipython is not installed")
        frames = self.k.cell("print('a')\n!echo b; echo c >&2\nprint('d')")
        self.assertEqual([f[:2] for f in frames[:-1] if f[0] == "stdout"], [("stdout", b"a\n"), ("stdout", b"b\n"), ("stdout", b"d\n")])
        self.assertEqual(text(frames, "stderr"), "c\n")
        self.assertEqual(forms(self.k.cell("x = !echo hi\nx[0]")), [{"text/plain": b"'hi'"}])
        self.assertEqual(text(self.k.cell("%cd /tmp\nimport os; print(os.getcwd())")).splitlines()[-1], "/tmp")
        self.assertIn("loop", text(self.k.cell("%timeit -n1 -r1 1")))
        self.assertEqual(forms(self.k.cell("from IPython.display import display, HTML, Markdown\ndisplay(HTML('<i>'))"))[0]["text/html"], b"<i>")
        self.assertEqual(forms(self.k.cell("HTML('<u>')"))[0]["text/html"], b"<u>")


class Bash(Shared, unittest.TestCase):
    def kernel(self):
        return Kernel(["/bin/bash", "-c", BASH], ["bash.sh"])

    def test_a_status_is_an_error_and_the_shell_goes_on(self):
        frames = self.k.cell("x=5; false")
        self.assertEqual(frames, [("error", b"ExitStatus\x001\x00"), ("done", b"", "1", "error")])
        self.assertEqual(self.k.cell("echo $x; cd /tmp"), [("done", b"", "2", "ok")])
        self.assertEqual(self.k.piped(), b"5\n")
        self.k.cell("pwd")
        self.assertEqual(self.k.piped(), b"/tmp\n")

    def test_an_interrupt_ends_the_cell_and_keeps_the_variables(self):
        for code in ("y=7; sleep 60; echo never", "y=7; while :; do :; done; echo never"):
            self.k.begin(code)
            time.sleep(0.3)
            os.killpg(self.k.child.pid, signal.SIGINT)
            frames = self.k.end()
            self.assertEqual(frames[-1][3], "interrupted", code)
            self.k.cell("echo $y; y=")
            self.assertEqual(self.k.piped(), b"7\n")

    def test_the_text_of_a_cell_is_kept_byte_by_byte(self):
        self.k.cell("echo 'ä\n\\n  b\t'\n")
        self.assertEqual(self.k.piped(), "ä\n\\n  b\t\n".encode())

    def test_programs_of_a_cell_cannot_write_to_the_link(self):
        self.assertEqual(self.k.cell("/bin/sh -c 'echo forged >&3' 2>/dev/null || echo refused")[-1][3], "ok")
        self.assertEqual(self.k.piped(), b"refused\n")

    def test_exit_ends_the_shell(self):
        self.assertEqual(self.k.cell("exit 3"), [])
        self.assertEqual(self.k.child.wait(10), 3)


@unittest.skipUnless(shutil.which("node"), "node is not installed")
class Node(Shared, unittest.TestCase):
    def kernel(self):
        return Kernel(["node", "-e", NODE], ["node.js"])

    def test_an_error_has_a_name_and_a_value(self):
        frames = self.k.cell("throw new TypeError('t')")
        name, value, trace = frames[0][1].decode().split("\0")
        self.assertEqual((name, value), ("TypeError", "t"))
        self.assertEqual(self.k.cell("1 +")[0][1].split(b"\0")[0], b"SyntaxError")
        self.assertEqual(frames[-1], ("done", b"", "1", "error"))

    def test_names_stay_and_may_be_declared_again(self):
        self.k.cell("const a = 41; let b = 1; function f(x) { return x + 1; }")
        self.assertEqual(forms(self.k.cell("const a = 1; f(a)")), [{"text/plain": b"2"}])
        self.assertEqual(forms(self.k.cell("({ k: [1, 2] })")), [{"text/plain": b"{ k: [ 1, 2 ] }"}])
        self.assertEqual(forms(self.k.cell("undefined")), [])

    def test_await_works_at_top_level_and_console_is_stdout(self):
        frames = self.k.cell("await new Promise((r) => setTimeout(r, 20)); console.log('a', 1); console.error('e'); require('os').EOL")
        self.assertEqual((text(frames), text(frames, "stderr")), ("a 1\n", "e\n"))
        self.assertEqual(forms(frames), [{"text/plain": b"'\\n'"}])

    def test_an_interrupt_ends_the_cell_and_keeps_the_variables(self):
        for code in ("var y = 7; while (true);", "var y = 7; await new Promise(() => setTimeout(() => {}, 60000));"):
            self.k.begin(code)
            time.sleep(0.3)
            os.kill(self.k.child.pid, signal.SIGINT)
            self.assertEqual(self.k.end()[-1][3], "interrupted", code)
            self.assertEqual(forms(self.k.cell("y")), [{"text/plain": b"7"}])


if __name__ == "__main__":
    unittest.main(verbosity=1)
