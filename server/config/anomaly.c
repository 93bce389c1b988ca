// SPDX-License-Identifier: Apache-2.0
// The section "anomalies" of the configuration: settings of the rules, and responses. See anomaly/rules.h.
#include <string.h>

#include "proto/config_read.h"
#include "private.h"
#include "server/telemetry/finding.h"

// 1: yes, 2: no; 0: not set.
static int
read_switch(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    static const char *const words[] = {"true", "false", NULL};
    return config_read_word(r, k, n, to, words, 1);
}

static int
read_severity(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
              void *to)
{
    uint32_t v = n->kind == YAML_TEXT ? finding_severity_find(n->text) : 0;
    if (v == 0)
        return config_fail(r, n, "must be info, notice, warning or critical");
    config_store(k, to, v);
    return 0;
}

static int
read_response(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
              void *to)
{
    uint32_t v = n->kind == YAML_TEXT ? finding_response_find(n->text) : 0;
    if (v == 0)
        return config_fail(r, n, "must be log, alert, throttle, pause or kill");
    config_store(k, to, v);
    return 0;
}

// Rules by name; threshold and window have their own bounds in each.
static int
read_rules(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    struct anomaly_config *c = config_field(k, to);
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping of rules to settings");
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        int i = anomaly_rule_find(it->key);
        if (i < 0)
            return config_fail(r, it, "there is no such rule");
        const struct anomaly_rule_row *row = &anomaly_rule_table[i];
        const struct config_key keys[] = {
            {"enabled", read_switch, AT(anomaly_policy, enabled), 0, 0, NULL},
            {"severity", read_severity, AT(anomaly_policy, severity), 0, 0, NULL},
            {"response", read_response, AT(anomaly_policy, response), 0, 0, NULL},
            {"threshold", config_read_count, AT(anomaly_policy, threshold), row->threshold_min,
             row->threshold_max, NULL},
            {"window", config_read_ms, AT(anomaly_policy, window_ms), row->window_min_ms,
             row->window_max_ms, NULL},
            {0},
        };
        int err = config_read_map(r, keys, it, &c->rule[i]);
        if (err < 0)
            return err;
    }
    return 0;
}

static int
read_learn(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    uint64_t runs = 0;
    int err = config_number(r, n, quantity_count, 0, CONFIG_LEARN_MAX, &runs);
    if (err == 0)
        config_store(k, to, runs + 1); // 0 means not set
    return err;
}

static int
read_sensitive(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
               void *to)
{
    struct sensitive_config *c = config_field(k, to);
    struct err e;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of paths");
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (it->kind != YAML_TEXT || anomaly_sensitive_check(it->text, &e) < 0)
            return config_fail(r, it, "%s", it->kind != YAML_TEXT ? "must be a path" : e.text);
        if (c->own_n == SENSITIVE_OWN_MAX)
            return config_fail(r, it, "more than %d paths", SENSITIVE_OWN_MAX);
        memcpy(c->own[c->own_n++], it->text, strlen(it->text) + 1);
    }
    return 0;
}

// Built-in paths that are disabled.
static int
read_not_sensitive(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                   void *to)
{
    struct sensitive_config *c = config_field(k, to);
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of built-in sensitive paths");
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        int i = it->kind == YAML_TEXT ? anomaly_sensitive_find(it->text) : -1;
        if (i < 0)
            return config_fail(r, it, "must be one of the built-in sensitive paths");
        c->without[i] = true;
    }
    return 0;
}

const struct config_key config_host_anomaly_keys[] = {
    {"learn", read_learn, AT(config, anomaly.host.learn), 0, 0, NULL},
    {"syscalls", read_switch, AT(config, anomaly.host.syscalls), 0, 0, NULL},
    {"rules", read_rules, AT(config, anomaly.host), 0, 0, NULL},
    {"sensitive_paths", read_sensitive, AT(config, anomaly.sensitive), 0, 0, NULL},
    {"not_sensitive_paths", read_not_sensitive, AT(config, anomaly.sensitive), 0, 0, NULL},
    {0},
};

const struct config_key config_anomaly_keys[] = {
    {"learn", read_learn, AT(anomaly_config, learn), 0, 0, NULL},
    {"syscalls", read_switch, AT(anomaly_config, syscalls), 0, 0, NULL},
    {"rules", read_rules, 0, 0, 0, 0, NULL},
    {0},
};
