# SPDX-License-Identifier: Apache-2.0
"""`run --held-out`: work and attacks that no threshold was set with, the usual rules, a table for each rule, and the time to the alert.
`run --held-again`, `--held-third` to `--held-eighth`: the same with other work. Each set is unseen once.
`run --learnt`: the same attacks in templates that have learnt one kind of work."""

import calendar
import json
import threading
import time

import held_out
import workloads


class Follower(threading.Thread):
    """Reads findings of all tenants as they come, as a person with `stockade anomalies -f` would."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.process = broker.popen("anomalies", "-f", "-o", "json", "--tenant", "*", stdout=-1)
        self.seen = {}  # the findings of each sandbox
        self.waits = []  # milliseconds from the event to here
        self.start()

    def run(self):
        for line in self.process.stdout:
            now, found = time.time(), json.loads(line)
            if "rule" not in found or found["rule"] == "rate-shift":
                continue
            whole, part = found["time"].rstrip("Z").split(".")
            at = calendar_seconds(whole) + float("0." + part)
            self.seen.setdefault(found["sandbox_id"], []).append(found)
            if found["response"] != "log":
                self.waits.append((now - at) * 1000)

    def of(self, box):
        time.sleep(0.3)  # the last event of a job that has ended
        return self.seen.get(box, [])

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.join(10)


def calendar_seconds(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def one(broker, follower, job, number, *create):
    """A job in a sandbox of its own: the rules that raised an alarm, each with a text, those that only logged something, and the exit code.
    An alarm is a finding with another response than `log`: that is what `alert` and the others bring to a person."""
    (program, flag), script = job
    made = broker.cli("create", "--ttl", "10m", *create)
    if made.returncode != 0:
        raise RuntimeError(f"create: {made.stderr.decode()}")
    box = made.stdout.decode().strip()
    argv = [program, flag, script] + (["job"] if program.endswith("bash") else []) + [str(number)]
    r = broker.cli("exec", "-n", box, "--", *argv, timeout=400)
    found = follower.of(box)
    broker.cli("rm", box)
    return {f["rule"]: f["text"] for f in found if f["response"] != "log"}, {f["rule"] for f in found if f["response"] == "log"}, r.returncode


def table(rows):
    """Per rule: runs of attacks and of work that it raised an alarm in."""
    print("| rule | alarms in attacks | attacks | alarms in work | kinds of work |\n|---|---|---|---|---|")
    for rule in sorted({r for _, _, raised in rows for r in raised}):
        mine = [(what, name) for what, name, raised in rows if rule in raised]
        attacks, work = [n for w, n in mine if w == "attack"], [n for w, n in mine if w == "work"]
        print(f"| `{rule}` | {len(attacks)} | {len(set(attacks))} | {len(work)} | {', '.join(sorted(set(work))) or '-'} |")


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def play(broker, follower, kinds, what, runs):
    rows = []
    for name, job in kinds.items():
        all_raised, all_noted, codes = {}, set(), set()
        for number in range(runs):
            raised, noted, code = one(broker, follower, job, number)
            rows.append((what, name, raised))
            for rule, text in raised.items():
                all_raised.setdefault(rule, []).append(text)
            all_noted |= noted
            codes.add(code)
        print(f"{what:7}{name:22}{sorted(codes)!s:10} {' '.join(sorted(all_raised) + [f'({r})' for r in sorted(all_noted - set(all_raised))]) or '-'}", flush=True)
        for rule, texts in sorted(all_raised.items()) if what == "work" else ():
            print(f"       {rule}, {len(texts)} of {runs} runs: {texts[0]}", flush=True)
    return rows


def alarmed(rows):
    return len({n for _, n, raised in rows if raised})


def chosen(kinds, only):
    return {n: job for n, job in kinds.items() if not only or n in only}


def held(options, kinds):
    import broker as flow
    with flow.Broker(config="limits_default: {timeout: 300s}\npool: 1\n") as b:
        follower = Follower(b)
        work = play(b, follower, chosen(kinds, options.only), "work", options.runs)
        new = play(b, follower, chosen(held_out.ATTACKS, options.only), "attack", max(1, options.runs // 4))
        old = play(b, follower, chosen(workloads.ATTACKS, options.only), "attack", 1)
        follower.close()
    table(work + new + old)
    false = sum(bool(raised) for _, _, raised in work)
    print(f"{false} of {len(work)} runs of work, of {len(chosen(kinds, options.only))} kinds, raised an alarm; {alarmed(new)} of {len(held_out.ATTACKS)} held-out attacks did, "
          f"and {alarmed(old)} of {len(workloads.ATTACKS)} known ones")
    print(f"time to the alert: p50 {quantile(follower.waits, 0.5):.1f} ms, p99 {quantile(follower.waits, 0.99):.1f} ms, {len(follower.waits)} alerts")
    return 0


def learnt(options):
    """A template for each of some kinds of work learns it, and then sees more of it, and each attack."""
    import broker as flow
    names = options.only or ["python-json", "text-tools", "gcc-build"]
    templates = "".join(f"  - {{name: {n}, anomalies: {{learn: {options.runs}}}}}\n" for n in names)
    wrong = total = 0
    missed = {}
    with flow.Broker(config=f"limits_default: {{timeout: 300s}}\npool: 0\ntemplates:\n  - name: default\n{templates}") as b:
        follower = Follower(b)
        for n in names:
            for number in range(options.runs):
                one(b, follower, workloads.BENIGN[n], number, "--template", n)
            for number in range(options.runs, options.runs + max(1, options.runs // 2)):
                raised = one(b, follower, workloads.BENIGN[n], number, "--template", n)[0]
                total += 1
                wrong += bool(raised)
                print(f"work   {n:22} {' '.join(sorted(raised)) or '-'}", flush=True)
            for name, job in {**workloads.ATTACKS, **held_out.ATTACKS}.items():
                raised = one(b, follower, job, 0, "--template", n)[0]
                if not raised:
                    missed.setdefault(name, []).append(n)
            print(f"learnt {n}: {sum(n in m for m in missed.values())} of {len(workloads.ATTACKS) + len(held_out.ATTACKS)} attacks missed", flush=True)
        follower.close()
    print(f"{wrong} of {total} later runs of learnt work raised an alarm; attacks that were missed: {missed or 'none'}")
    return 0
