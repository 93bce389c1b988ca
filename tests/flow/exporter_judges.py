# SPDX-License-Identifier: Apache-2.0
"""What judges the outputs of stockade-exporter: the messages of OTLP, and the published schema of OCSF."""

import fcntl
import os
import re
import shutil
import subprocess
import sys

from broker import BUILD, INSTALLED
from runner import Skipped

JUDGES = ("jsonschema==4.26.0", "ocsf-json-schema==1.2.0")


def messages(folder):
    """The requests of the three signals: logs, traces, metrics."""
    try:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest as logs
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest as metrics
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest as traces
        return logs, traces, metrics
    except ImportError:
        pass
    if INSTALLED or not shutil.which("protoc"):
        raise Skipped("neither opentelemetry-proto nor protoc with the .proto files is here")
    source = os.path.join(os.environ["STOCKADE_SOURCE"], "client/exporter")
    names = [os.path.relpath(os.path.join(at, f), source) for at, _, files in os.walk(f"{source}/opentelemetry") for f in files]
    subprocess.run(["protoc", "-I", source, f"--python_out={folder}", *names], check=True)
    with open(f"{folder}/requests.proto", "w", encoding="utf-8") as f:
        f.write('syntax = "proto3"; package requests;\n')
        for signal in ("logs", "trace", "metrics"):
            f.write(f'import "opentelemetry/proto/{signal}/v1/{signal}.proto";\n')
        for name, of in (("Logs", "logs.v1.ResourceLogs"), ("Traces", "trace.v1.ResourceSpans"), ("Metrics", "metrics.v1.ResourceMetrics")):
            field = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", of.rsplit(".", 1)[1]).lower()
            f.write(f"message {name} {{ repeated opentelemetry.proto.{of} {field} = 1; }}\n")
    subprocess.run(["protoc", "-I", source, "-I", folder, f"--python_out={folder}", "requests.proto"], check=True)
    sys.path.insert(0, folder)
    import requests_pb2
    return requests_pb2.Logs, requests_pb2.Traces, requests_pb2.Metrics


def packages_of_judges():
    """Puts them on the path; installs them first where that was not done yet. Several tests may ask at a time."""
    if INSTALLED:
        return
    folder = os.path.join(BUILD, "judges")
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(f"{folder}/jsonschema"):
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--root-user-action=ignore", "--target", folder, *JUDGES], check=False)
    sys.path.append(folder)


def ocsf_judge():
    """The published schema: the packages ocsf-json-schema and jsonschema, installed in the build folder. The package ocsf-validator is no
    judge of events: its only argument is the folder of a schema repository (categories, objects, extensions), and Stockade has no
    extension of the schema."""
    packages_of_judges()
    try:
        from jsonschema import Draft202012Validator
        from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema
    except ImportError as why:
        raise Skipped(f"the schema is not here: {why}") from why
    schema, made = OcsfJsonSchemaEmbedded(get_ocsf_schema(version="1.8.0")), {}

    def complaints(event):
        key = (event["class_uid"], *event["metadata"]["profiles"])
        if key not in made:
            name = schema.lookup_class_name_from_uid(class_uid=event["class_uid"])
            made[key] = Draft202012Validator(schema.get_class_schema(class_name=name, profiles=event["metadata"]["profiles"]))
        return [e.message for e in made[key].iter_errors(event)]

    return complaints
