# SPDX-License-Identifier: Apache-2.0
"""The public services over the wire, without a client library, from the schema that the broker returns.

    with Broker() as b:
        c = connect(b)
        box = c.unary(SANDBOX + "Create", {"name": "a"}).sandbox
        job = c.start(box.id, "echo hello")
        result = c.finish(job)
"""

import contextlib
import sys

import sp
from google.protobuf import descriptor_pb2
from runner import check, run_cases

SANDBOX = "/stockade.v1.SandboxService/"
PROCESS = "/stockade.v1.ProcessService/"
SYSTEM = "/stockade.v1.SystemService/"
HEALTH = "/stockade.v1.HealthService/"
NOT_FOUND, EXISTS, PRECONDITION = 5, 6, 9
SIGNALED, LIMIT, CANCELLED, EXITED = 2, 3, 7, 1


def connect(broker, timeout=60):
    client = Api(broker if isinstance(broker, str) else broker.address, timeout)
    client.learn()
    return client


def with_client(broker):
    """For run_cases: calls each case with the broker and a connection of its own."""
    def call(case):
        c = connect(broker)
        try:
            case(broker, c)
        finally:
            c.close()
    return call


class Job:
    """The events of a process stream so far."""

    def __init__(self, method, call):
        self.method, self.call = method, call
        self.id = self.sandbox = ""
        self.output, self.gaps, self.events, self.result = b"", [], 0, None
        self.first = self.exited = None


class Api(sp.Client):
    known = False

    def learn(self):
        """Reads the schema by reflection, once in a process."""
        if Api.known:
            return
        frame = self.recv(self.begin("/stockade.v1.ReflectionService/GetFileDescriptorSet", b""))
        check(frame.kind == sp.END and frame.status.code == 0, "reflection answers")
        at, shift, size = 1, 0, 0  # field 1, length-delimited: the set
        while True:
            size |= (frame.payload[at] & 127) << shift
            shift += 7
            at += 1
            if frame.payload[at - 1] < 128:
                break
        for file in descriptor_pb2.FileDescriptorSet.FromString(frame.payload[at:at + size]).file:
            with contextlib.suppress(TypeError):  # the echo server's set brought it already
                sp._pool.Add(file)
        Api.known = True

    def shell(self, line, **command):
        return {"args": ["/bin/sh", "-c", line], **command}

    def stream(self, method, fields, **frame):
        frame.setdefault("credit", 1000)
        return Job(method, self.begin(PROCESS + method, fields, **frame))

    def run(self, line, limits=None, **fields):
        """A one-shot job to its end."""
        return self.finish(self.begin_run(line, limits, **fields))

    def begin_run(self, line, limits=None, **fields):
        return self.stream("Run", {"command": self.shell(line), "limits": limits or {}, **fields})

    def start(self, sandbox, line, limits=None, metadata=None, **command):
        """A process in a sandbox, until it runs."""
        job = self.stream("Start", {"sandbox_id": sandbox, "command": self.shell(line, **command),
                                    "limits": limits or {}}, metadata=metadata)
        return self.until(job, lambda: job.id)

    def attach(self, id_, offset=0):
        return self.stream("Attach", {"process_id": id_, "offset": offset})

    def until(self, job, condition):
        while not condition():
            frame = self.recv(job.call)
            if frame.kind == sp.END:
                if frame.status.code:
                    raise sp.Failed(frame.status)
                raise AssertionError(f"{job.method} ended early: {job.output[-500:]!r}")
            check(frame.kind == sp.DATA, "streams bring DATA")
            self.take(job, frame.payload)
        return job

    def take(self, job, payload):
        event = sp.message(f"stockade.v1.{job.method}Response").FromString(payload).event
        kind = event.WhichOneof("event")
        job.events += 1
        if kind == "started":
            job.id, job.sandbox = event.started.process_id, event.started.sandbox_id
        elif kind == "output":
            job.first = event.output.offset if job.first is None else job.first
            job.output += event.output.data
        elif kind == "gap":
            job.gaps.append(event.gap)
        else:
            job.exited, job.result = event.exited, event.exited.result

    def finish(self, job):
        """Reads to the end of the stream; the job, with its result."""
        self.until(job, lambda: job.result)
        frame = self.recv(job.call)
        check(frame.kind == sp.END and frame.status.code == 0, f"{job.method} ends well after `exited`")
        return job

    def wait(self, id_):
        return self.unary(PROCESS + "Wait", {"process_id": id_}).result


def figures(bill):
    """name -> (value, source, scope) of what is known."""
    return {f.name: (v.value, v.source, v.scope) for f, v in bill.ListFields() if f.name != "unknown" and v.source}


def main(broker, tests):
    """Runs tests against one broker, each with a client of its own."""
    with broker as b:
        status = run_cases(tests, lambda test: test(b, connect(b)), lambda: b.cli("rm", "--all"))
    sys.exit(status)
