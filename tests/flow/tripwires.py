#!/usr/bin/python3
"""Tripwires hold against who knows them: floods of what is harmless, and other ways to the same deed."""

import json

from api import SANDBOX, main
from broker import Broker, skip
from runner import check, until

CONFIG = """
pool: 2
templates:
  - name: default
  - {name: killing, anomalies: {rules: {dangerous-syscall: {response: kill}}}}
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


TESTS = [the_kernels_part_is_there, harmless_calls_do_not_hide_a_dangerous_one,
         denials_of_one_address_do_not_hide_another]


if __name__ == "__main__":
    main(Broker(config="socket: {mode: 0666}\n" + CONFIG), TESTS)
