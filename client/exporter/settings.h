// SPDX-License-Identifier: Apache-2.0
// The settings of the exporter, as plain data: the file (config.h) and the environment (otlp_environment.h) fill them in.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "post.h"

enum { EXPORTER_TEXT_MAX = 256, OTLP_TEXT_MAX = 4096 };

struct prometheus_settings {
    char listen[EXPORTER_TEXT_MAX]; // HOST:PORT; "": no server
    uint32_t connections;           // at most, half of them from one address
    uint64_t timeout_ms; // of a request, from its first byte or the connection's start to its end
    bool exemplars;
};

// The page for people (dashboard.h).
struct dashboard_settings {
    char listen[EXPORTER_TEXT_MAX]; // HOST:PORT; "": none
    char hosts[EXPORTER_TEXT_MAX];  // further names of this server, between blanks
    bool open;                      // may be read without a credential
    uint32_t connections;           // at most, half of them from one address
    uint32_t streams;               // pages that are open
    uint64_t timeout_ms;            // as prometheus_settings
};

// A receiver over HTTP, with a queue on disk in front of it.
struct target_settings {
    struct post_settings post; // url "": none
    uint64_t queue_bytes;
    uint32_t severity;                   // at least: enum stockade_severity
    char secret_file[EXPORTER_TEXT_MAX]; // key of the signature; "": none
};

enum { EXPORTER_KINDS_MAX = 512 };

// Events as CloudEvents.
struct cloudevents_settings {
    char kinds[EXPORTER_KINDS_MAX]; // as in struct stockade_event, between blanks, or "all"
    uint32_t severity;              // at least: enum stockade_severity
    struct target_settings http;    // without a key in secret_file nothing is signed
};

// Findings as Falco's alerts.
struct falco_settings {
    char file[EXPORTER_TEXT_MAX]; // as ocsf_settings
    uint64_t size_max;
    uint32_t keep;
    uint32_t severity;
    struct target_settings http;
};

// Events as OCSF.
struct ocsf_settings {
    char file[EXPORTER_TEXT_MAX]; // "": none (lines.h)
    uint64_t size_max;            // bytes
    uint32_t keep;
    uint32_t severity; // at least: enum stockade_severity
    bool to_stdout;
    struct target_settings http;
};

enum otlp_signal { OTLP_LOGS, OTLP_TRACES, OTLP_METRICS, OTLP_SIGNALS };

// OTLP over HTTP. The URLs of the signals are made of the endpoint when everything was read.
struct otlp_settings {
    struct target_settings base;                 // post.url: the endpoint, without "v1/logs"
    struct target_settings signal[OTLP_SIGNALS]; // url "": none
    bool enabled[OTLP_SIGNALS];
    uint64_t interval_ms; // of metrics
    uint32_t severity;    // of logs: at least
    char service[EXPORTER_TEXT_MAX];
    char attributes[OTLP_TEXT_MAX]; // of the resource
};
