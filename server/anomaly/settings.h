// SPDX-License-Identifier: Apache-2.0
// The settings of the detectors, filled by config/. As those of the sandboxes (server/sandbox/template.h), they are
// filled again in place.
#pragma once

#include "rules.h"
#include "sensitive.h"
#include "server/sandbox/template.h"

struct detect;

struct anomaly_settings {
    struct anomaly_config host;
    struct anomaly_config of_template[TEMPLATES_MAX]; // by template.number; complete
    struct sensitive_config sensitive;
    struct detect *rules; // that users have written; owned by the configuration. NULL: none
};
