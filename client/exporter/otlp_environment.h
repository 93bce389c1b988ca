// SPDX-License-Identifier: Apache-2.0
// The environment variables of OpenTelemetry (opentelemetry.io/docs/specs/otel/protocol/exporter), for settings that the file does not
// have:
//
//   OTEL_SDK_DISABLED, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_METRIC_EXPORT_INTERVAL,
//   OTEL_{LOGS,TRACES,METRICS}_EXPORTER: otlp or none,
//   OTEL_EXPORTER_OTLP_{ENDPOINT,HEADERS,COMPRESSION,TIMEOUT,PROTOCOL,CERTIFICATE,CLIENT_KEY,CLIENT_CERTIFICATE}, and the same with
//   _LOGS, _TRACES or _METRICS behind OTLP, which are for one signal and stand above the file.
//
// Without an endpoint there is no export: the exporter is a daemon, and http://localhost:4318 is the default of programs that are
// instrumented. Errors name the variable, never its value, which may be secret.
#pragma once

#include "proto/err.h"
#include "settings.h"

// Before the file is read.
int otlp_environment(struct otlp_settings *s, struct err *e);

// Replaces "%41" by "A", in place. False: it is malformed, or has a NUL.
bool otlp_percent_decode(char *text);

// Afterwards: makes s->signal.
int otlp_environment_of_signals(struct otlp_settings *s, struct err *e);
