// SPDX-License-Identifier: Apache-2.0
// See policy.h; and the command `network`.
#include "policy.h"

#include <stdio.h>

#include "proto/quantity.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "text.h"
#include "units.h"

enum { CELL_MAX = 320, LIMITS_N = 5 };

struct limit {
    const char *name, *option;
    uint64_t value;
};

static void
limits_of(const struct stockade_policy *p, struct limit out[LIMITS_N])
{
    const struct limit all[LIMITS_N] = {
        {"egress_bytes_max", "egress-bytes", p->egress_bytes_max},
        {"ingress_bytes_max", "ingress-bytes", p->ingress_bytes_max},
        {"egress_rate", "egress-rate", p->egress_rate},
        {"ingress_rate", "ingress-rate", p->ingress_rate},
        {"queries_per_minute", "dns-queries", p->queries_per_minute},
    };
    for (int i = 0; i < LIMITS_N; i++)
        out[i] = all[i];
}

void
cli_print_policy(const struct stockade_policy *p)
{
    char text[CELL_MAX];
    struct limit limits[LIMITS_N];
    limits_of(p, limits);
    (void)printf("network   %s\n", cli_network_name(p->mode));
    for (size_t i = 0; i < p->allow_n; i++)
        (void)printf("  allow            %s\n", text_clean(p->allow[i], text, sizeof text));
    for (size_t i = 0; i < p->inbound_n; i++)
        (void)printf("  allow inbound    %s\n", text_clean(p->inbound[i], text, sizeof text));
    for (int i = 0; i < LIMITS_N; i++)
        if (limits[i].value != 0)
            (void)printf("  %-16s %s\n", limits[i].option,
                         quantity_show(limits[i].name, limits[i].value, text, sizeof text));
}

static json_t *
strings(const char *const *items, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) {
        char text[CELL_MAX];
        (void)json_array_append_new(a, json_string(text_clean(items[i], text, sizeof text)));
    }
    return a;
}

json_t *
json_of_policy(const struct stockade_policy *p)
{
    json_t *o = json_object();
    struct limit limits[LIMITS_N];
    limits_of(p, limits);
    (void)json_object_set_new(o, "mode", json_string(cli_network_name(p->mode)));
    (void)json_object_set_new(o, "outbound", strings(p->allow, p->allow_n));
    (void)json_object_set_new(o, "inbound", strings(p->inbound, p->inbound_n));
    for (int i = 0; i < LIMITS_N; i++)
        (void)json_object_set_new(o, limits[i].name, json_integer((json_int_t)limits[i].value));
    return o;
}

int
cli_network(const struct command *c, const struct options *o)
{
    struct stockade_error e;
    struct stockade_policy policy;
    const struct stockade_sandbox *box = NULL;
    char id[65];
    int code = 0;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    if (cli_find_sandbox(s, c, o->args[0], id, &code)) {
        int rc = options_policy(o, &policy) ? stockade_set_policy(s, id, &policy, &box, &e)
                                            : stockade_get(s, id, &box, &e);
        if (rc < 0)
            code = cli_fail_sandbox(s, c, o->args[0], &e);
        else if (o->json)
            code = json_put(json_of_policy(&box->policy));
        else
            cli_print_policy(&box->policy);
    }
    stockade_free(box);
    stockade_close(s);
    return code;
}
