// SPDX-License-Identifier: Apache-2.0
// The configuration of the exporter: a YAML file, read by the same rules as the broker's (proto/config_read.h). Unknown and
// duplicate keys, wrong types and values out of range are errors with line and column. It has no secrets: they stand in files
// that it names (headers_file.h).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "post.h"

#define EXPORTER_CONFIG_DEFAULT "/etc/stockade/exporter.yaml"

enum { EXPORTER_TEXT_MAX = 256 };

struct prometheus_settings {
    char listen[EXPORTER_TEXT_MAX]; // HOST:PORT; "": no server
    uint32_t connections;           // at most, half of them from one address
    uint64_t timeout_ms; // of a request, from its first byte or the connection's start to its end
    bool exemplars;
};

// A receiver over HTTP, with a queue on disk in front of it.
struct target_settings {
    struct post_settings post; // url "": none
    uint64_t queue_bytes;
    uint32_t severity;                   // at least: enum stockade_severity
    char secret_file[EXPORTER_TEXT_MAX]; // key of the signature; "": none
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

struct exporter_config {
    char broker[EXPORTER_TEXT_MAX]; // address; "": the default of libstockade
    char state[EXPORTER_TEXT_MAX];  // folder of the queues
    struct prometheus_settings prometheus;
    struct ocsf_settings ocsf;
};

void exporter_config_default(struct exporter_config *c);

// Reads the file over the defaults. path NULL: EXPORTER_CONFIG_DEFAULT if it exists, else only the defaults.
int exporter_config_read(struct exporter_config *c, const char *path, struct err *e);

// Reads bytes. `name` is the file's name for messages.
int exporter_config_parse(struct exporter_config *c, const char *name, const void *bytes, size_t n,
                          struct err *e);
