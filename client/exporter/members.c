// SPDX-License-Identifier: Apache-2.0
// See members.h.
#include "members.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stockade/v1/telemetry_service.pb-c.h"

enum { NAME_BYTES = 256, SECOND_NS = 1000000000 };

// As a number where every reader of JSON can hold it, otherwise as text.
static json_t *
json_of(const struct stockade_fact *f)
{
    enum { EXACT_BITS = 53 };
    char digits[24];
    if (f->type == STOCKADE_FACT_TEXT)
        return json_string(f->text);
    if (f->type == STOCKADE_FACT_REAL)
        return json_real(f->real);
    if (f->type == STOCKADE_FACT_BOOL)
        return json_boolean(f->number != 0);
    if (f->type == STOCKADE_FACT_SIGNED || f->number >> EXACT_BITS == 0)
        return json_integer((json_int_t)f->number);
    (void)snprintf(digits, sizeof digits, "%" PRIu64, f->number);
    return json_string(digits);
}

json_t *
members_of_facts(const struct stockade_event *event, const char *prefix)
{
    char name[NAME_BYTES];
    json_t *o = json_object();
    for (size_t i = 0; i < event->facts_n; i++) {
        (void)snprintf(name, sizeof name, "%s%s", prefix, event->facts[i].name);
        put(o, name, json_of(&event->facts[i]));
    }
    return o;
}

void
members_put_labels(json_t *to, const struct stockade_event *event, const char *prefix)
{
    char name[NAME_BYTES];
    const Stockade__V1__Event *m = event->message;
    for (size_t i = 0; m != NULL && i < m->n_metadata; i++) {
        (void)snprintf(name, sizeof name, "%s%s", prefix, m->metadata[i]->key);
        put(to, name, json_string(m->metadata[i]->value));
    }
}

const char *
members_sandbox_name(const struct stockade_event *event)
{
    const Stockade__V1__Event *m = event->message;
    return m != NULL ? m->sandbox_name : "";
}

void
members_time(int64_t time_ns, char out[MEMBERS_TIME])
{
    struct tm tm;
    const time_t seconds = (time_t)(time_ns / SECOND_NS);
    const size_t n =
        gmtime_r(&seconds, &tm) != NULL ? strftime(out, MEMBERS_TIME, "%FT%T", &tm) : 0;
    if (n == 0)
        out[0] = '\0';
    else
        (void)snprintf(out + n, MEMBERS_TIME - n, ".%09" PRId64 "Z", time_ns % SECOND_NS);
}

char *
members_line(json_t *o)
{
    char *json = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(o);
    size_t n = json != NULL ? strlen(json) : 0;
    char *line = json != NULL ? realloc(json, n + 2) : NULL;
    if (line == NULL) {
        free(json);
        return NULL;
    }
    line[n] = '\n';
    line[n + 1] = '\0';
    return line;
}
