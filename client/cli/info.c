// SPDX-License-Identifier: Apache-2.0
// The broker: info and version.
#include <inttypes.h>
#include <stdio.h>

#include "cli.h"
#include "bill.h"
#include "commands.h"
#include "json.h"
#include "proto/plural.h"
#include "proto/quantity.h"
#include "text.h"
#include "units.h"

enum { TEXT_MAX = 600 };

static void
print_strings(const char *title, const char *const *values, size_t n)
{
    char text[TEXT_MAX];
    for (size_t i = 0; i < n; i++)
        (void)printf("%-10s %s\n", i == 0 ? title : "", text_clean(values[i], text, sizeof text));
}

static void
print_warm(const struct stockade_template *m)
{
    char name[TEXT_MAX], why[TEXT_MAX], each[32];
    (void)text_clean(m->name, name, sizeof name);
    if (m->warm_bytes > 0)
        (void)printf("%s: %u warm with python, %s each\n", name, m->pool_warm,
                     units_show_bytes(m->warm_bytes, each, sizeof each));
    if (m->warm_failed[0] != '\0')
        (void)printf("%s: not warm as configured: %s\n", name,
                     text_clean(m->warm_failed, why, sizeof why));
}

static void
print_storage(const struct stockade_template *m)
{
    char name[TEXT_MAX], size[32];
    if (m->on_disk && m->disabled[0] == '\0')
        (void)printf("%s: files on disk, %s for each sandbox\n",
                     text_clean(m->name, name, sizeof name),
                     units_show_bytes(m->limits.disk_bytes, size, sizeof size));
}

static void
print_templates(const struct stockade_info *i)
{
    static const char *const head[] = {"TEMPLATE", "TIER", "READY", "MEMORY", "AT MOST", "TIMEOUT"};
    struct table *t = table_new(head, sizeof head / sizeof head[0]);
    for (size_t n = 0; t != NULL && n < i->templates_n; n++) {
        const struct stockade_template *m = &i->templates[n];
        char ready[32], memory[32], most[32], wall[32];
        if (m->disabled[0] != '\0')
            (void)snprintf(ready, sizeof ready, "disabled");
        else
            (void)snprintf(ready, sizeof ready, "%u of %u", m->pool_ready, m->pool_size);
        const char *cells[] = {m->name,
                               m->tier,
                               ready,
                               units_show_bytes(m->limits.memory_bytes, memory, sizeof memory),
                               units_show_bytes(m->limits_max.memory_bytes, most, sizeof most),
                               bill_show_limit("wall_ms", m->limits.wall_ms, wall, sizeof wall)};
        if (!table_row(t, cells))
            break;
    }
    if (t != NULL)
        table_print(t, stdout);
    table_free(t);
    for (size_t n = 0; n < i->templates_n; n++) {
        const struct stockade_template *m = &i->templates[n];
        char name[TEXT_MAX], why[TEXT_MAX];
        print_warm(m);
        print_storage(m);
        if (m->disabled[0] != '\0')
            (void)printf("%s is disabled: %s\n", text_clean(m->name, name, sizeof name),
                         text_clean(m->disabled, why, sizeof why));
    }
}

static void
print_quotas(const struct stockade_info *i)
{
    static const char *const head[] = {"QUOTA", "USED", "AT MOST"};
    struct table *t = table_new(head, sizeof head / sizeof head[0]);
    for (size_t n = 0; t != NULL && n < i->quotas_n; n++) {
        const struct stockade_quota *q = &i->quotas[n];
        char used[QUANTITY_TEXT], most[QUANTITY_TEXT];
        const char *cells[] = {q->name, quantity_show(q->name, q->used, used, sizeof used),
                               q->unlimited ? "-"
                                            : quantity_show(q->name, q->limit, most, sizeof most)};
        if (!table_row(t, cells))
            break;
    }
    if (t != NULL)
        table_print(t, stdout);
    table_free(t);
}

static void
print_info(const struct stockade_info *i)
{
    char text[TEXT_MAX], detail[TEXT_MAX];
    (void)printf("version    %s, up %s\n", text_clean(i->version, text, sizeof text),
                 units_show_age(i->uptime_ms > INT64_MAX ? INT64_MAX : (int64_t)i->uptime_ms,
                                detail, sizeof detail));
    (void)printf("kernel     %s, ", text_clean(i->kernel, text, sizeof text));
    (void)printf("cgroups %s, nng %s\n", text_clean(i->cgroups, text, sizeof text),
                 i->nng_version[0] == '\0' ? "none (built without websockets)"
                                           : text_clean(i->nng_version, detail, sizeof detail));
    print_strings("listens on", i->listeners, i->listeners_n);
    print_strings("tiers", i->tiers, i->tiers_n);
    (void)printf("sandboxes  %u of yours, %u in total; %u %s\n\n", i->sandboxes_own, i->sandboxes,
                 i->processes, plural(i->processes, "process", "processes"));
    print_templates(i);
    (void)printf("\nquotas of %s, weight %u\n", text_clean(i->tenant, text, sizeof text),
                 i->weight);
    print_quotas(i);
    (void)printf("\nfeatures\n");
    for (size_t n = 0; n < i->features_n; n++) {
        (void)printf("  %-3s %-22s ", i->features[n].available ? "yes" : "NO",
                     text_clean(i->features[n].name, text, sizeof text));
        (void)printf("%s\n", text_clean(i->features[n].detail, detail, sizeof detail));
    }
    if (i->degraded_n > 0)
        (void)printf("\nweakened protection\n");
    for (size_t n = 0; n < i->degraded_n; n++)
        (void)printf("  - %s\n", text_clean(i->degraded[n], text, sizeof text));
}

int
cli_info(const struct command *c, const struct options *o)
{
    struct stockade_error e;
    const struct stockade_info *info = NULL;
    int code = 0;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    if (stockade_info_of(s, o->tenant, &info, &e) < 0)
        code = cli_fail(c, o->tenant != NULL ? o->tenant : "", &e);
    else if (o->json)
        code = json_put(json_of_info(info));
    else
        print_info(info);
    stockade_free(info);
    stockade_close(s);
    return code;
}

int
cli_version(const struct command *c, const struct options *o)
{
    struct stockade_error e;
    const struct stockade_info *info = NULL;
    char text[TEXT_MAX];
    int code = 0;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    bool there = stockade_info(s, &info, &e) == 0;
    if (o->json) {
        json_t *v = json_object();
        (void)json_object_set_new(v, "client", json_string(stockade_version()));
        (void)json_object_set_new(v, "broker", there ? json_string(info->version) : json_null());
        code = json_put(v);
    } else {
        (void)printf("stockade  %s\n", stockade_version());
        (void)printf("broker    %s\n", there ? text_clean(info->version, text, sizeof text)
                                             : text_clean(e.text, text, sizeof text));
    }
    stockade_free(info);
    stockade_close(s);
    return code;
}
