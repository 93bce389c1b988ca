// The section "anomalies" of the configuration: which rules hold, and what is done. See anomaly_rules.h.
#include "config_read.h"

static int
read_switch(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    bool yes = n->kind == YAML_TEXT && strcmp(n->text, "true") == 0;
    if (!yes && (n->kind != YAML_TEXT || strcmp(n->text, "false") != 0))
        return fail(r, n, "must be true or false");
    store(k, to, yes ? 1 : 2);
    return 0;
}

static int
read_severity(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    uint32_t v = n->kind == YAML_TEXT ? anomaly_severity_find(n->text) : 0;
    if (v == 0)
        return fail(r, n, "must be info, notice, warning or critical");
    store(k, to, v);
    return 0;
}

static int
read_response(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    uint32_t v = n->kind == YAML_TEXT ? anomaly_response_find(n->text) : 0;
    if (v == 0)
        return fail(r, n, "must be log, alert, throttle, pause or kill");
    store(k, to, v);
    return 0;
}

// Rules of anomalies by name; threshold and window have bounds of their own in each.
static int
read_rules(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    struct anomaly_config *c = to;
    (void)k;
    if (n->kind != YAML_MAP)
        return fail(r, n, "must be a mapping of rules to settings");
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        int i = anomaly_rule_find(it->key);
        if (i < 0)
            return fail(r, it, "there is no such rule");
        const struct anomaly_rule_row *row = &anomaly_rule_table[i];
        const struct key keys[] = {
            {"enabled", read_switch, AT(anomaly_policy, enabled), 0, 0, NULL},
            {"severity", read_severity, AT(anomaly_policy, severity), 0, 0, NULL},
            {"response", read_response, AT(anomaly_policy, response), 0, 0, NULL},
            {"threshold", read_count, AT(anomaly_policy, threshold), row->threshold_min,
             row->threshold_max, NULL},
            {"window", read_ms, AT(anomaly_policy, window_ms), row->window_min_ms,
             row->window_max_ms, NULL},
            {0},
        };
        int err = read_map(r, keys, it, &c->rule[i]);
        if (err < 0)
            return err;
    }
    return 0;
}

static int
read_learn(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    uint64_t runs = 0;
    int err = number_of(r, n, none, 0, CONFIG_LEARN_MAX, &runs);
    if (err == 0)
        store(k, to, runs + 1); // 0: not said
    return err;
}

const struct key config_anomaly_keys[] = {
    {"learn", read_learn, AT(anomaly_config, learn), 0, 0, NULL},
    {"syscalls", read_switch, AT(anomaly_config, syscalls), 0, 0, NULL},
    {"rules", read_rules, 0, 0, 0, 0, NULL},
    {0},
};
