#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What belongs to another tenant and what does not exist get the same answer, in the same time: for every field of every method that
takes an id or a name. The methods and fields come from the broker's schema, so one that is added without a row fails."""

import atexit
import random
import re
import shutil
import statistics
import sys
import tempfile
import time

import sp
from api import NOT_FOUND, connect
from broker import Broker
from runner import check, run_cases

CONFIG = """
pool: 0
policy_files: [%s]
socket: {mode: 0666}
templates:
  - {name: default, network_max: {mode: none, inbound: [8000]}}
"""
POLICY = """
layers:
  - name: closed
    tenants: ["uid:4003"]
    rules:
      - {id: nothing, match: {methods: ["*"]}, verdict: deny, reason: nobody may}
"""
OWNER, OTHER, CLOSED, NONE = 4001, 4002, 4003, 1
SERVICE = "/stockade.v1.%s"
ABOUT = re.compile(r"(id|.*_id|.*_ids|sandbox|snapshot|template|name|volume|key|checkpoint|approval|context|transaction|rule|first|second)")
SILENCE, BOX, JOB, SNAPSHOT, TEMPLATE, VOLUME, CONTEXT, TRANSACTION, APPROVAL, KEY, RULE, RULES, TRANSFER, CONNECTION, BATCH = (
    "silence", "box", "job", "snapshot", "template", "volume", "context", "transaction", "approval", "key", "rule", "rules", "transfer", "connection", "batch")
FILE = {"path": b"/tmp/x"}
DENIED = 7
# Method: field -> what it names, and the rest of a request that would be valid.
ROWS = {
    "SandboxService/Create": ({"template": TEMPLATE, "snapshot": SNAPSHOT, "volumes.volume": VOLUME}, {}),
    "SandboxService/Get": ({"id": BOX}, {}),
    "SandboxService/Update": ({"id": BOX}, {}),
    "SandboxService/Delete": ({"id": BOX}, {}),
    "SandboxService/Pause": ({"id": BOX}, {}),
    "SandboxService/Resume": ({"id": BOX}, {}),
    "SandboxService/Sleep": ({"id": BOX}, {}),
    "SandboxService/Wake": ({"id": BOX}, {}),
    "SandboxService/Fork": ({"id": BOX, "snapshot": SNAPSHOT}, {}),
    "SandboxService/Forward": ({"id": BOX}, {"port": 80}),
    "SandboxService/ForwardInput": ({"connection_id": CONNECTION}, {"data": b"x"}),
    "SandboxService/ForwardClose": ({"connection_id": CONNECTION}, {}),
    **{f"FileService/{m}": ({"sandbox_id": BOX}, FILE) for m in
       ("Stat", "List", "Read", "OpenWrite", "Upload", "Download", "MakeDir", "Remove", "SetMode", "Watch")},
    "FileService/Write": ({"sandbox_id": BOX}, {**FILE, "data": b"x"}),
    "FileService/Move": ({"sandbox_id": BOX}, {**FILE, "to": b"/tmp/y"}),
    "FileService/Copy": ({"sandbox_id": BOX}, {**FILE, "to": b"/tmp/y"}),
    "FileService/Send": ({"transfer_id": TRANSFER}, {"data": b"x"}),
    "FileService/Finish": ({"transfer_id": TRANSFER}, {}),
    "SnapshotService/Create": ({"sandbox": BOX}, {"name": "new"}),
    **{f"SnapshotService/{m}": ({"sandbox": BOX, "name": SNAPSHOT}, {"name": "mine"}) for m in ("Get", "Restore", "Delete")},
    "SnapshotService/List": ({"sandbox": BOX}, {}),
    **{f"SnapshotService/{m}": ({"sandbox_id": BOX, "first": SNAPSHOT, "second": SNAPSHOT}, {"first": "mine", **more})
       for m, more in (("Diff", {}), ("DiffFile", FILE))},
    "TransactionService/Begin": ({"sandbox": BOX}, {}),
    "TransactionService/List": ({"sandbox": BOX}, {}),
    **{f"TransactionService/{m}": ({"id": TRANSACTION}, {}) for m in ("Get", "Commit", "Discard")},
    "ProcessService/Run": ({"template": TEMPLATE, "volumes.volume": VOLUME}, {"command": {"args": ["true"]}}),
    "ProcessService/Start": ({"sandbox_id": BOX}, {"command": {"args": ["true"]}}),
    **{f"ProcessService/{m}": ({"process_id": JOB}, {}) for m in ("Attach", "Input", "CloseInput", "Wait")},
    "ProcessService/Signal": ({"process_id": JOB}, {"signal": 15}),
    "ProcessService/Resize": ({"process_id": JOB}, {"size": {"rows": 1, "columns": 1}}),
    "ProcessService/RunBatch": ({"template": TEMPLATE, "volumes.volume": VOLUME}, {"key": "of-mine"}),
    "ProcessService/AddToBatch": ({"key": BATCH}, {}),
    "ProcessService/List": ({"sandbox_id": BOX}, {}),
    "AnomalyService/ListFindings": ({"sandbox_id": BOX, "rule": RULE}, {}),
    "AnomalyService/CreateSilence": ({"rule": RULE}, {"reason": "x", "ttl_ms": 60000}),
    "AnomalyService/DeleteSilence": ({"silence_id": SILENCE}, {}),
    "TelemetryService/Subscribe": ({"sandbox_ids": BOX, "process_id": JOB}, {"from_sequence": 1, "kept_only": True}),
    "TelemetryService/GetRecord": ({"process_id": JOB}, {}),
    "TelemetryService/ListUsage": ({"sandbox_id": BOX}, {}),
    "TemplateService/Create": ({"sandbox": BOX, "snapshot": SNAPSHOT}, {"name": "new"}),
    **{f"TemplateService/{m}": ({"name": TEMPLATE}, {}) for m in ("Get", "Delete", "Push")},
    "CodeService/CreateContext": ({"sandbox_id": BOX}, {"language": "bash"}),
    **{f"CodeService/{m}": ({"context_id": CONTEXT}, {}) for m in ("RestartContext", "InterruptContext", "DeleteContext", "CheckpointContext")},
    **{f"CodeService/{m}": ({"sandbox_id": BOX}, {}) for m in ("ListContexts", "ListCheckpoints")},
    "CodeService/DeleteCheckpoint": ({"sandbox_id": BOX}, {"name": "c"}),
    **{f"CodeService/{m}": ({"context_id": CONTEXT}, {"checkpoint": "c"}) for m in ("RestoreContext", "ForkContext")},
    "CodeService/RunCode": ({"context_id": CONTEXT, "sandbox_id": BOX, "template": TEMPLATE, "volumes.volume": VOLUME}, {"code": b"1"}),
    **{f"VolumeService/{m}": ({"name": VOLUME}, {}) for m in ("Get", "Delete")},
    "KeyService/Revoke": ({"id": KEY}, {}),
    **{f"ApprovalService/{m}": ({"id": APPROVAL}, {}) for m in ("Get", "Approve", "Deny", "Cancel", "Watch")},
    "PolicyService/Explain": ({"call.template": TEMPLATE}, {}),
    "PolicyService/Show": ({"template": TEMPLATE}, {}),
    **{f"RulesService/{m}": ({"name": RULES}, {}) for m in ("Get", "Delete")},
    **{f"RulesService/{m}": ({"rule": RULE}, {}) for m in ("Enable", "Disable")},
    "AuditService/GetProof": ({"process_id": JOB}, {}),
}
# Valid requests of methods that name no object.
OTHERS = {
    "TokenService/Revoke": {"block_id": "0" * 32}, "VolumeService/Create": {"name": "new"},
    "RulesService/Set": {"name": "new", "text": "rules: []"}, "RulesService/Check": {"name": "new", "text": "rules: []"},
    "RulesService/Test": {"text": "rules: []", "events": []}, "ApprovalService/Create": {"method": "ProcessService/Run", "request": b""},
}
# About the broker itself: no policy applies to them.
HARMLESS = re.compile(r"(System|Health|Reflection|Policy)Service/.*|TokenService/ListSigningKeys")
# Fields that name nothing that another tenant can have.
NEW = "the name of something new, or a key of an object of the caller itself"
OTHERWISE = {
    "SandboxService/Create": {"name": NEW}, "ProcessService/Run": {"name": NEW}, "SnapshotService/Create": {"name": NEW},
    "VolumeService/Create": {"name": NEW}, "RulesService/Set": {"name": NEW}, "RulesService/Check": {"name": NEW},
    "TemplateService/Create": {"name": NEW}, "ProcessService/RunBatch": {"key": NEW}, "ProcessService/AddToBatch": {"jobs.key": NEW},
    "CodeService/CheckpointContext": {"name": NEW}, "TemplateService/Load": {"name": NEW},
    "AnomalyService/CreateSilence": {"sandbox_id": "which of the caller's findings; nothing is looked up", "template": "likewise"},
    "CodeService/DeleteCheckpoint": {"name": "of the sandbox"}, "CodeService/RestoreContext": {"checkpoint": "of the context's sandbox"},
    "CodeService/ForkContext": {"checkpoint": "of the context's sandbox"},
    "TokenService/Revoke": {"block_id": "any block can be revoked by who knows its id, and nothing is looked up"},
    "AdminService/RotateMasterKey": {"key": "for operators alone"},
    **{f"AnomalyService/{m}": {"template": "of the host, for operators alone"} for m in
       ("ListRules", "ListProfiles", "ExportProfile", "ImportProfile", "ResetProfile", "FreezeProfile")},
    "PolicyService/Diff": {"files.files.name": "of a text", "files.rules.name": "of a text"},
    "RulesService/Test": {"events.sandbox": "of an invented event", "events.name": "of an invented event", "events.rule": "of an invented event",
                          "events.template": "of an invented event"},
}
KEYS_OF_TEXTS = re.compile(r"(.*\.)?(metadata|labels)\.key|(.*\.)?env\.name")  # pairs of the caller


def fields_about(descriptor, prefix="", depth=0):
    for f in descriptor.fields:
        if f.type == f.TYPE_MESSAGE and depth < 3 and not f.message_type.full_name.startswith("google."):
            yield from fields_about(f.message_type, f"{prefix}{f.name}.", depth + 1)
        elif f.type in (f.TYPE_STRING, f.TYPE_BYTES) and ABOUT.fullmatch(f.name) and not KEYS_OF_TEXTS.fullmatch(prefix + f.name):
            yield prefix + f.name


def methods():
    for name in ("Sandbox", "File", "Snapshot", "Transaction", "Process", "Health", "Reflection", "System", "Anomaly", "Telemetry", "Metrics", "Template",
                 "Code", "Volume", "Key", "Token", "Admin", "Approval", "Policy", "Rules", "Audit"):
        yield from sp._pool.FindServiceByName(f"stockade.v1.{name}Service").methods


def services():
    found = set()
    for file in {m.containing_service.file.name for m in methods()}:
        found |= set(sp._pool.FindFileByName(file).services_by_name)
    return found


class World:
    """What the owner has, and what nobody has but looks alike."""

    def __init__(self, b):
        with sp.as_user(OWNER):
            self.owner = connect(b)
        with sp.as_user(OTHER):
            self.other = connect(b)
        with sp.as_user(CLOSED):
            self.closed = connect(b)
        o = self.owner
        box = o.unary(SERVICE % "SandboxService/Create", {"name": "theirs", "network": {"mode": NONE, "inbound": [{"first": 8000}]}}).sandbox.id
        self.mine = self.other.unary(SERVICE % "SandboxService/Create", {"name": "mine"}).sandbox.id
        o.unary(SERVICE % "SnapshotService/Create", {"sandbox": box, "name": "their-files"})
        o.unary(SERVICE % "TemplateService/Create", {"sandbox": box, "name": "theirs"})
        self.other.unary(SERVICE % "SnapshotService/Create", {"sandbox": self.mine, "name": "mine"})
        key = b.cli("key", "create", "--tenant", f"uid:{OTHER}", "--scopes", "approval.answer,approval.read").stdout.decode().strip()
        self.approver = {"authorization": f"Bearer {key}"}
        job = o.start(box, "sleep 1000").id
        rules = "rules: [{id: their-rule, severity: notice, response: log, match: {kinds: [exec]}, message: m}]"
        o.unary(SERVICE % "RulesService/Set", {"name": "theirs", "text": rules})
        quiet = o.unary(SERVICE % "SandboxService/Create", {}).sandbox.id
        run = sp.message("stockade.v1.RunRequest")(command={"args": ["true"]}).SerializeToString()
        self.has = {
            BOX: box, JOB: job, SNAPSHOT: "their-files", TEMPLATE: "theirs", RULES: "theirs", RULE: "their-rule", BATCH: self.batch(o),
            TRANSACTION: o.unary(SERVICE % "TransactionService/Begin", {"sandbox": quiet}).transaction.id,
            CONTEXT: o.unary(SERVICE % "CodeService/CreateContext", {"sandbox_id": box, "language": "bash"}).context.id,
            APPROVAL: o.unary(SERVICE % "ApprovalService/Create", {"method": "ProcessService/Run", "request": run}).approval.id,
            SILENCE: o.unary(SERVICE % "AnomalyService/CreateSilence", {"rule": "denied-fan-out", "reason": "x", "ttl_ms": 60000}).silence.id,
            KEY: o.unary(SERVICE % "KeyService/Create", {}).key.id,
            TRANSFER: self.first(o, "FileService/OpenWrite", {"sandbox_id": box, **FILE}).transfer_id,
            VOLUME: self.volume(o),
        }
        self.has[CONNECTION] = self.connection(o, box)

    def first(self, c, method, fields):
        """The first message of a stream that stays open."""
        id_ = c.begin(SERVICE % method, fields, credit=1000)
        frame = c.recv(id_)
        check(frame.kind == sp.DATA, f"{method}: {frame.status.message}")
        service, name = method.split("/")
        output = sp._pool.FindServiceByName(f"stockade.v1.{service}").FindMethodByName(name).output_type
        return sp.message(output.full_name).FromString(frame.payload)

    def batch(self, c):
        self.first(c, "ProcessService/RunBatch", {"key": "their-batch"})
        return "their-batch"

    def volume(self, c):
        c.unary(SERVICE % "VolumeService/Create", {"name": "theirs"})
        return "theirs"

    def connection(self, c, box):
        job = c.start(box, "exec python3 -c 'import socket,time; s=socket.create_server((\"127.0.0.1\", 8000)); print(1, flush=True); time.sleep(1000)'")
        c.until(job, lambda: job.output)
        return self.first(c, "SandboxService/Forward", {"id": box, "port": 8000}).connection_id

    def missing(self, what):
        id_ = self.has[what]
        if re.fullmatch(r"(.*-)?[0-9a-f]{16,}", id_):
            return id_[:-8] + "".join(random.choice("0123456789abcdef") for _ in range(8))
        return f"no{id_[2:]}"


def request_of(field, value, rest, kinds):
    out = {**rest}
    if "." not in field:
        out[field] = [value] if field.endswith("_ids") else value
    elif field == "volumes.volume":
        out["volumes"] = [{"volume": value, "path": b"/mnt"}]
    else:
        out[field.split(".")[0]] = {field.split(".")[1]: value}
    if field in ("name", "snapshot") and "sandbox" in kinds:
        out["sandbox"] = World.current.mine
    if field in ("first", "second"):
        out["sandbox_id"] = World.current.mine
    if field == "snapshot" and "id" in kinds:
        out["id"] = World.current.mine
    if field == "process_id" and "sandbox_ids" in kinds:
        out.pop("sandbox_ids", None)
    return out


def answer(w, method, request, name):
    """What the broker answers, without the name that was asked for."""
    c = w.other
    id_ = c.begin(SERVICE % method, request, w.approver if method in ("ApprovalService/Approve", "ApprovalService/Deny") else None, credit=1000)
    data = []
    frame = c.recv(id_)
    while frame.kind == sp.DATA:
        if method == "TelemetryService/Subscribe":  # whose first message is the number of the last event
            data.append(len(sp.message("stockade.v1.SubscribeResponse").FromString(frame.payload).events))
        else:
            data.append(frame.payload)
        check(len(data) < 100, f"{method} does not end")
        frame = c.recv(id_)
    check(frame.kind == sp.END, f"{method}: {frame.kind}")
    details = sorted(any_.value.replace(name.encode(), b"ID") for any_ in frame.status.details)
    return data, frame.payload, frame.status.code, frame.status.message.replace(name, "ID"), details


def every_method_and_field_has_a_row(_):
    check({m.containing_service.name for m in methods()} == services(), f"services without rows: {services()}")
    for m in methods():
        name = f"{m.containing_service.name}/{m.name}"
        rows, rest = set(ROWS.get(name, ({}, {}))[0]), set(OTHERWISE.get(name, {}))
        wanted = set(fields_about(m.input_type))
        check(wanted == rows | rest, f"{name} has {sorted(wanted)}, the rows have {sorted(rows | rest)}")


def what_is_not_yours_and_what_does_not_exist_get_the_same_answer(w):
    wrong = []
    for method, (kinds, rest) in ROWS.items():
        for field, what in kinds.items():
            got = []
            for value in (w.has[what], w.missing(what)):
                got.append(answer(w, method, request_of(field, value, rest, kinds), value))
            # The object is what is refused, not another part of the request.
            refused = got[0][2] not in (sp.OK, NOT_FOUND) and (field != "rule" or not method.startswith("AnomalyService/"))
            if refused or got[0] != got[1]:
                wrong.append(f"{method} {field}: {got[0]} {got[1]}")
    check(not wrong, "\n".join(wrong))
    for what, method, field in ((BOX, "SandboxService/Get", "id"), (KEY, "KeyService/List", None), (VOLUME, "VolumeService/Get", "name"),
                                (APPROVAL, "ApprovalService/Get", "id"), (TRANSACTION, "TransactionService/Get", "id"),
                                (TEMPLATE, "TemplateService/Get", "name"), (JOB, "TelemetryService/GetRecord", "process_id")):
        w.owner.unary(SERVICE % method, {field: w.has[what]} if field else {})  # nothing of them was harmed


def each_refusal_of_each_method_names_the_rule_and_what_to_do(w):
    wrong = []
    for m in methods():
        name = f"{m.containing_service.name}/{m.name}"
        kinds, rest = ROWS.get(name, ({}, OTHERS.get(name, {})))
        request = {**rest}
        for field, what in kinds.items():
            if "." not in field and field != "context_id":
                request[field] = [w.missing(what)] if field.endswith("_ids") else w.missing(what)
        if name.startswith("CodeService/") and "sandbox_id" not in kinds:
            request["context_id"] = w.missing(CONTEXT)
        explained = w.closed.unary(SERVICE % "PolicyService/Explain", {"call": {"method": name}})
        if HARMLESS.fullmatch(name):
            continue
        id_ = w.closed.begin(SERVICE % name, request, credit=1000)
        failed = sp.Failed(w.closed.recv(id_).status)
        info = failed.details.get("ErrorInfo")
        about = dict(info.metadata) if info is not None else {}
        complete = about.get("rule") and about.get("allowed") and about.get("hint")
        by_policy = failed.reason == "POLICY_DENIED" and about["rule"] == "closed/nothing" and "nobody may" in failed.message
        by_rights = failed.reason == "SCOPE_MISSING" and about["rule"].startswith("rights/")
        same = explained.rule == about.get("rule") or (by_rights and explained.rule in ("rights", ""))
        if failed.code != DENIED or not complete or not (by_policy or by_rights) or not same:
            wrong.append(f"{name}: {failed.code} {failed.message} {about}; explain: {explained.rule} {explained.verdict}")
    check(not wrong, "\n".join(wrong))


def they_take_the_same_time(w):
    """In pairs, in random order: neither is the slower one more often than chance makes it. 6 standard deviations."""
    wrong = []
    pairs = 300 if sp.sanitized() else 1500
    for method, field, what in (("SandboxService/Get", "id", BOX), ("ApprovalService/Get", "id", APPROVAL), ("ProcessService/Wait", "process_id", JOB),
                                ("VolumeService/Get", "name", VOLUME), ("TransactionService/Get", "id", TRANSACTION), ("KeyService/Revoke", "id", KEY)):
        slower, took, nobodys = 0, {True: [], False: []}, w.missing(what)
        for _ in range(pairs):
            for foreign in random.sample((True, False), 2):
                value = w.has[what] if foreign else nobodys
                begun = time.perf_counter_ns()
                w.other.fails(SERVICE % method, {field: value})
                took[foreign].append(time.perf_counter_ns() - begun)
            slower += took[True][-1] > took[False][-1]
        share, bound = slower / pairs, 6 * 0.5 / pairs ** 0.5
        print(f"     {method}: {statistics.median(took[True]) / 1000:.1f} us of another tenant, {statistics.median(took[False]) / 1000:.1f} us of nobody; "
              f"the first is slower in {share:.3f} of {pairs} pairs", flush=True)
        if abs(share - 0.5) >= bound:
            wrong.append(f"{method}: {share:.3f}, not within 0.5 +- {bound:.3f}")
    check(not wrong, wrong)


def main():
    folder = tempfile.mkdtemp(prefix="stockade-ids-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with open(f"{folder}/closed.yaml", "w", encoding="utf-8") as f:
        f.write(POLICY)
    with Broker(config=CONFIG % folder) as b:
        World.current = World(b)
        status = run_cases([every_method_and_field_has_a_row, what_is_not_yours_and_what_does_not_exist_get_the_same_answer, each_refusal_of_each_method_names_the_rule_and_what_to_do, they_take_the_same_time],
                           lambda case: case(World.current))
    sys.exit(status)


main()
