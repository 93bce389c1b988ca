// SPDX-License-Identifier: Apache-2.0
// The configuration of the exporter: a YAML file, read by the same rules as the broker's (proto/config_read.h). Unknown and
// duplicate keys, wrong types and values out of range are errors with line and column. It has no secrets: they stand in files
// that it names (headers_file.h).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "settings.h"

#define EXPORTER_CONFIG_DEFAULT "/etc/stockade/exporter.yaml"

struct exporter_config {
    char broker[EXPORTER_TEXT_MAX]; // address; "": the default of libstockade
    char state[EXPORTER_TEXT_MAX];  // folder of the queues
    struct prometheus_settings prometheus;
    struct dashboard_settings dashboard;
    struct ocsf_settings ocsf;
    struct otlp_settings otlp;
    struct cloudevents_settings cloudevents;
    struct falco_settings falco;
    struct target_settings approvals; // the webhook
};

void exporter_config_default(struct exporter_config *c);

// Reads the file over the defaults and the environment (otlp_environment.h). path NULL: EXPORTER_CONFIG_DEFAULT if it exists,
// else only these.
int exporter_config_read(struct exporter_config *c, const char *path, struct err *e);

// Reads bytes. `name` is the file's name for messages.
int exporter_config_parse(struct exporter_config *c, const char *name, const void *bytes, size_t n,
                          struct err *e);
