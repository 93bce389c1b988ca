// SPDX-License-Identifier: Apache-2.0
// See falco.h. Readers refuse an alert without output, rule, priority or time.
#include "falco.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/plural.h"
#include "facts.h"
#include "members.h"

static const char *
priority_name(uint32_t severity)
{
    static const char *const names[] = {"Debug", "Informational", "Notice", "Warning", "Critical"};
    return severity < sizeof names / sizeof names[0] ? names[severity] : names[0];
}

// In place. One '?' for each character that is not printable ASCII: escapes of terminals, and characters that turn a line around.
static void
make_printable(char *text)
{
    enum { CONTINUATION_MASK = 0xc0, CONTINUATION = 0x80 };
    char *to = text;
    for (const char *c = text; *c != '\0'; c++)
        if (*c >= ' ' && *c <= '~')
            *to++ = *c;
        else if (((unsigned char)*c & CONTINUATION_MASK) != CONTINUATION)
            *to++ = '?';
    *to = '\0';
}

static json_t *
alert(const char *rule, const char *priority, int64_t time_ns, const char *hostname)
{
    char at[MEMBERS_TIME];
    json_t *o = json_object();
    members_time(time_ns, at);
    put_text(o, "hostname", hostname);
    put_text(o, "priority", priority);
    put(o, "rule", json_string(rule[0] != '\0' ? rule : "unknown"));
    put_text(o, "source", "stockade");
    put_text(o, "time", at);
    return o;
}

// "TIME: PRIORITY TEXT", as Falco writes it.
static void
put_output(json_t *o, const char *text)
{
    char output[FALCO_OUTPUT_MAX];
    const char *at = json_string_value(json_object_get(o, "time"));
    const char *clock = at != NULL ? strchr(at, 'T') : NULL;
    (void)snprintf(output, sizeof output, "%.18s: %s %s", clock != NULL ? clock + 1 : "",
                   json_string_value(json_object_get(o, "priority")), text);
    make_printable(output);
    put(o, "output", json_string(output));
}

static json_t *
fields_of(const struct stockade_event *event)
{
    json_t *o = members_of_facts(event, "stockade.");
    members_put_labels(o, event, "stockade.label.");
    put_number(o, "evt.time", (uint64_t)event->time_ns);
    put_text(o, "proc.name", event->comm);
    if (event->pid != 0)
        put_number(o, "proc.pid", event->pid);
    put_text(o, "container.id", event->sandbox_id);
    put_text(o, "container.name", members_sandbox_name(event));
    put_text(o, "stockade.process_id", event->process_id);
    put_text(o, "stockade.tenant", event->tenant);
    put_text(o, "stockade.template", event->template_name);
    put_text(o, "stockade.instance", event->instance);
    put_number(o, "stockade.event", event->sequence);
    return o;
}

char *
falco_line(const struct stockade_event *finding, const char *hostname)
{
    char text[FALCO_OUTPUT_MAX];
    json_t *tags = json_array();
    json_t *o = alert(fact_text(finding, "rule"), priority_name(finding->severity),
                      finding->time_ns, hostname);
    (void)snprintf(text, sizeof text, "(sandbox=%.64s job=%.64s tenant=%.64s process=%.64s) %s",
                   finding->sandbox_id, finding->process_id, finding->tenant, finding->comm,
                   fact_text(finding, "text"));
    put_output(o, text);
    (void)json_array_append_new(tags, json_string("stockade"));
    const char *at = fact_text(finding, "tags");
    for (size_t n; *(at += strspn(at, " ")) != '\0'; at += n) {
        n = strcspn(at, " ");
        (void)json_array_append_new(tags, json_stringn(at, n));
    }
    put(o, "tags", tags);
    put(o, "output_fields", fields_of(finding));
    return members_line(o);
}

char *
falco_gap_line(uint64_t count, const char *reason, int64_t time_ns, const char *hostname)
{
    char text[FALCO_OUTPUT_MAX];
    json_t *fields = json_object();
    json_t *tags = json_array();
    json_t *o = alert("Stockade internal: events were missed", "Warning", time_ns, hostname);
    if (count == 0)
        (void)snprintf(text, sizeof text, "an unknown number of events was missed: %.32s", reason);
    else
        (void)snprintf(text, sizeof text, "%" PRIu64 " %s missed: %.32s", count,
                       plural(count, "event was", "events were"), reason);
    put_output(o, text);
    (void)json_array_append_new(tags, json_string("stockade"));
    put(o, "tags", tags);
    put_text(fields, "stockade.reason", reason);
    if (count != 0)
        put_number(fields, "stockade.missed", count);
    put(o, "output_fields", fields);
    return members_line(o);
}
