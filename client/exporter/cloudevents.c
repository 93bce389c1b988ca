// SPDX-License-Identifier: Apache-2.0
// See cloudevents.h.
#include "cloudevents.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "facts.h"
#include "members.h"

enum { TYPE_BYTES = 64, ID_BYTES = 64 };

static const char *
severity_name(uint32_t severity)
{
    static const char *const names[] = {"unknown", "info", "notice", "warning", "critical"};
    return severity < sizeof names / sizeof names[0] ? names[severity] : names[0];
}

static json_t *
envelope(const char *id, const char *type, int64_t time_ns)
{
    char at[MEMBERS_TIME];
    json_t *o = json_object();
    members_time(time_ns, at);
    put_text(o, "specversion", "1.0");
    put_text(o, "id", id);
    put_text(o, "source", "/stockade/events");
    put_text(o, "type", type);
    put_text(o, "time", at);
    put_text(o, "datacontenttype", "application/json");
    return o;
}

static json_t *
data_of(const struct stockade_event *event)
{
    json_t *o = json_object();
    json_t *untrusted = json_object();
    json_t *labels = json_object();
    put_text(o, "kind", event->kind);
    put_text(o, "severity", severity_name(event->severity));
    put_text(o, "tenant", event->tenant);
    put_text(o, "template", event->template_name);
    put_text(o, "sandbox_id", event->sandbox_id);
    put_text(o, "process_id", event->process_id);
    if (event->pid != 0)
        put_number(o, "pid", event->pid);
    put_text(o, "rule", fact_text(event, "rule"));
    put_text(o, "response", fact_text(event, "response"));
    put_text(untrusted, "sandbox_name", members_sandbox_name(event));
    put_text(untrusted, "comm", event->comm);
    members_put_labels(labels, event, "");
    put(untrusted, "labels", labels);
    put(untrusted, "details", members_of_facts(event, ""));
    put(o, "untrusted", untrusted);
    return o;
}

char *
cloudevents_event(const struct stockade_event *event)
{
    char id[ID_BYTES], type[TYPE_BYTES];
    (void)snprintf(id, sizeof id, "%.32s-%" PRIu64, event->instance, event->sequence);
    (void)snprintf(type, sizeof type, "dev.stockade.event.%.32s", event->kind);
    for (char *c = type; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    json_t *o = envelope(id, type, event->time_ns);
    put_text(o, "subject", event->sandbox_id);
    put(o, "data", data_of(event));
    return members_line(o);
}

char *
cloudevents_gap(uint64_t count, const char *reason, int64_t time_ns)
{
    char id[ID_BYTES];
    (void)snprintf(id, sizeof id, "missed-%" PRId64, time_ns);
    json_t *o = envelope(id, "dev.stockade.events_missed", time_ns);
    json_t *data = json_object();
    if (count != 0)
        put_number(data, "count", count);
    put_text(data, "reason", reason);
    put(o, "data", data);
    return members_line(o);
}
