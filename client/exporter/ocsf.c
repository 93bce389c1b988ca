// SPDX-License-Identifier: Apache-2.0
// See ocsf.h. A table has the class and the activity of each kind of event; each class has a function that fills in what
// belongs to it. Strings come from jobs: jansson escapes control characters and all beyond ASCII.
#include "ocsf.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host_port.h"
#include "proto/plural.h"
#include "stockade/v1/telemetry_service.pb-c.h"
#include "facts.h"
#include "members.h"

enum {
    CLASS_BASE = 0,
    CLASS_FILE = 1001,
    CLASS_PROCESS = 1007,
    CLASS_FINDING = 2004,
    CLASS_AUTHENTICATION = 3002,
    CLASS_NETWORK = 4001,
    CLASS_DNS = 4003,
    CLASS_API = 6003,
    ACTIVITY_OTHER = 99,
    NS_PER_MS = 1000000,
    CLASS_PER_CATEGORY = 1000,
    ACTIVITY_PER_CLASS = 100,
};

// Values of the schema.
enum { ACTION_ALLOWED = 1, ACTION_DENIED = 2, DISPOSITION_ALLOWED = 1, DISPOSITION_BLOCKED = 2 };
enum { STATUS_SUCCESS = 1, STATUS_FAILURE = 2, DEVICE_VIRTUAL = 6 };
enum { STATUS_NEW = 1, STATUS_SUPPRESSED = 3 }; // of findings
enum { FILE_UNKNOWN = 0, FILE_REGULAR = 1 };
enum { DIRECTION_INBOUND = 1, DIRECTION_OUTBOUND = 2 };

// ---- Members

static json_t *
process(uint64_t pid, const char *name)
{
    json_t *o = json_object();
    put_number(o, "pid", pid);
    put_text(o, "name", name);
    return o;
}

// The process of the event if there is one, and the owner of the sandbox.
static json_t *
actor(const struct stockade_event *event)
{
    json_t *o = json_object();
    json_t *user = json_object();
    if (event->pid != 0)
        put(o, "process", process(event->pid, event->comm));
    put_text(user, "uid", event->tenant[0] != '\0' ? event->tenant : "none");
    put(o, "user", user);
    return o;
}

static json_t *
file(const char *path, unsigned type)
{
    json_t *o = json_object();
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
    put(o, "name", json_string(name[0] != '\0' ? name : "unknown"));
    put_text(o, "path", path);
    put_number(o, "type_id", type);
    return o;
}

static bool
is_address(const char *host)
{
    uint8_t bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

// "192.0.2.1:443", "[2001:db8::1]:53", "example.com:443", or whatever else was refused: "/run/x.sock", "device 10:200".
static json_t *
endpoint(const char *destination, const char *name)
{
    json_t *o = json_object();
    struct host_port at;
    uint16_t port = 0;
    bool split = host_port_split(destination, &at) && at.host[0] != '\0' && at.port != NULL &&
                 host_port_number(at.port, &port) && strpbrk(at.host, " /") == NULL;
    if (split && is_address(at.host))
        put_text(o, "ip", at.host);
    else if (is_address(destination))
        put_text(o, "ip", destination);
    else
        put(o, "name",
            json_string(split                    ? at.host
                        : destination[0] != '\0' ? destination
                                                 : "unknown"));
    if (split)
        put_number(o, "port", port);
    put_text(o, "domain", name);
    return o;
}

static void
put_verdict(json_t *o, bool allowed)
{
    put_number(o, "action_id", allowed ? ACTION_ALLOWED : ACTION_DENIED);
    put_number(o, "disposition_id", allowed ? DISPOSITION_ALLOWED : DISPOSITION_BLOCKED);
}

// ---- Classes

static void
fill_process(json_t *o, const struct stockade_event *event)
{
    const struct stockade_fact *parent = fact(event, "parent_pid");
    json_t *p = process(event->pid, event->comm);
    if (fact_text(event, "path")[0] != '\0')
        put(p, "file", file(fact_text(event, "path"), FILE_REGULAR));
    put_text(p, "cmd_line", fact_text(event, "arguments"));
    put_text(p, "working_directory", fact_text(event, "cwd"));
    if (parent != NULL)
        put(p, "parent_process", process(parent->number, ""));
    put(o, "process", p);
    put(o, "actor", actor(event));
    if (strcmp(event->kind, "EXIT") == 0)
        put_number(o, "exit_code", fact_number(event, "code"));
    put_text(o, "message", fact_text(event, "name"));
}

static void
fill_file(json_t *o, const struct stockade_event *event)
{
    static const struct {
        const char *operation;
        unsigned activity;
    } activities[] = {{"open", 14},    {"stat", 8}, {"rename", 5}, {"unlink", 4},
                      {"truncate", 3}, {"link", 1}, {"symlink", 1}};
    const char *resolved = fact_text(event, "resolved");
    put(o, "file", file(resolved[0] != '\0' ? resolved : fact_text(event, "path"), FILE_UNKNOWN));
    put(o, "actor", actor(event));
    put_number(o, "status_id", fact_number(event, "error") != 0 ? STATUS_FAILURE : STATUS_SUCCESS);
    for (size_t i = 0; i < sizeof activities / sizeof activities[0]; i++)
        if (strcmp(fact_text(event, "operation"), activities[i].operation) == 0)
            put_number(o, "activity_id", activities[i].activity);
}

static void
fill_network(json_t *o, const struct stockade_event *event)
{
    const bool denied = strcmp(event->kind, "DENIED") == 0;
    const bool listens = strcmp(event->kind, "LISTEN") == 0;
    const char *reason = fact_text(event, "reason");
    json_t *connection = json_object();
    put(o, listens ? "src_endpoint" : "dst_endpoint",
        endpoint(fact_text(event, "destination"), fact_text(event, "name")));
    put_text(connection, "protocol_name", fact_text(event, "protocol"));
    put_number(connection, "direction_id", listens ? DIRECTION_INBOUND : DIRECTION_OUTBOUND);
    put(o, "connection_info", connection);
    put(o, "actor", actor(event));
    put_verdict(o, !denied);
    put_text(o, "status_detail", reason);
    if (denied) {
        json_t *rule = json_object();
        put_text(rule, "name", reason[0] != '\0' ? reason : "unknown");
        put(o, "firewall_rule", rule);
        put_text(o, "message", fact_text(event, "hint"));
    } else if (strcmp(event->kind, "FLOW_ENDED") == 0) {
        json_t *traffic = json_object();
        put_number(traffic, "bytes_out", fact_number(event, "out_bytes"));
        put_number(traffic, "bytes_in", fact_number(event, "in_bytes"));
        put(o, "traffic", traffic);
        put_number(o, "status_id", reason[0] != '\0' ? STATUS_FAILURE : STATUS_SUCCESS);
    }
}

// A name that was resolved, or refused.
static void
fill_dns(json_t *o, const struct stockade_event *event)
{
    enum { RCODE_NO_ERROR = 0, RCODE_NO_NAME = 3, RESPONSE = 2 };
    const bool denied = strcmp(event->kind, "DENIED") == 0;
    const char *name = fact_text(event, denied ? "destination" : "name");
    json_t *query = json_object();
    put(query, "hostname", json_string(name[0] != '\0' ? name : "unknown"));
    put(o, "query", query);
    put(o, "src_endpoint", endpoint(event->sandbox_id, ""));
    put(o, "actor", actor(event));
    put_number(o, "rcode_id", denied ? RCODE_NO_NAME : RCODE_NO_ERROR);
    put_verdict(o, !denied);
    put_text(o, "status_detail", fact_text(event, "reason"));
    if (!denied && fact_text(event, "destination")[0] != '\0') {
        json_t *answer = json_object();
        json_t *answers = json_array();
        put_text(answer, "rdata", fact_text(event, "destination"));
        (void)json_array_append_new(answers, answer);
        put(o, "answers", answers);
    }
}

// "T1059.004" and "T1059": a technique of MITRE ATT&CK, with its part, if it has one. Other tags are labels.
static json_t *
attack_of(const char *tag, size_t n)
{
    const size_t digits = n > 1 && tag[0] == 'T' ? strspn(tag + 1, "0123456789") : 0;
    const bool part = digits == 4 && n == 9 && tag[5] == '.';
    if (digits != 4 || (n != 5 && !part) || (part && strspn(tag + 6, "0123456789") < 3))
        return NULL;
    json_t *o = json_object();
    json_t *technique = json_object();
    put(technique, "uid", json_stringn(tag, 5));
    put(o, "technique", technique);
    if (!part)
        return o;
    technique = json_object();
    put(technique, "uid", json_stringn(tag, n));
    put(o, "sub_technique", technique);
    return o;
}

static void
put_tags(json_t *info, const char *tags)
{
    json_t *attacks = json_array();
    json_t *labels = json_array();
    for (size_t n; *(tags += strspn(tags, " ")) != '\0'; tags += n) {
        n = strcspn(tags, " ");
        json_t *attack = attack_of(tags, n);
        (void)json_array_append_new(attack != NULL ? attacks : labels,
                                    attack != NULL ? attack : json_stringn(tags, n));
    }
    if (json_array_size(attacks) > 0)
        put(info, "attacks", json_incref(attacks));
    if (json_array_size(labels) > 0)
        put(info, "types", json_incref(labels));
    json_decref(attacks);
    json_decref(labels);
}

// The rule that found it.
static json_t *
analytic(const char *rule)
{
    enum { ANALYTIC_RULE = 1 };
    json_t *o = json_object();
    put_number(o, "type_id", ANALYTIC_RULE);
    put_text(o, "type", "Rule");
    put_text(o, "uid", rule);
    put_text(o, "name", rule);
    return o;
}

static void
fill_finding(json_t *o, const struct stockade_event *event)
{
    char uid[64];
    json_t *info = json_object();
    json_t *evidence = json_object();
    json_t *evidences = json_array();
    (void)snprintf(uid, sizeof uid, "%s-%" PRIu64, event->instance, fact_number(event, "sequence"));
    put_text(info, "uid", uid);
    put_text(info, "title", fact_text(event, "rule"));
    put_text(info, "desc", fact_text(event, "text"));
    put(info, "analytic", analytic(fact_text(event, "rule")));
    put_tags(info, fact_text(event, "tags"));
    put(o, "finding_info", info);
    put_text(o, "message", fact_text(event, "text"));
    put(evidence, "actor", actor(event));
    (void)json_array_append_new(evidences, evidence);
    put(o, "evidences", evidences);
    const bool silenced = fact_number(event, "silenced") != 0;
    put(o, "is_alert", json_boolean(!silenced && strcmp(fact_text(event, "response"), "log") != 0));
    put_number(o, "status_id", silenced ? STATUS_SUPPRESSED : STATUS_NEW);
}

static void
fill_api(json_t *o, const struct stockade_event *event)
{
    json_t *api = json_object();
    json_t *service = json_object();
    json_t *source = json_object();
    json_t *resource = json_object();
    json_t *resources = json_array();
    put_text(service, "name", "stockade");
    put_text(api, "operation", event->kind);
    put(api, "service", service);
    put(o, "api", api);
    put(o, "actor", actor(event));
    put_text(source, "svc_name", "stockaded");
    put(o, "src_endpoint", source);
    const bool job = event->process_id[0] != '\0';
    put(resource, "uid", json_string(job ? event->process_id : event->sandbox_id));
    put_text(resource, "type", job ? "job" : "sandbox");
    (void)json_array_append_new(resources, resource);
    put(o, "resources", resources);
    put_text(o, "message",
             fact_text(event, "note")[0] != '\0' ? fact_text(event, "note")
                                                 : fact_text(event, "reason"));
}

// A logon that failed. Who it was is not known.
static void
fill_authentication(json_t *o, const struct stockade_event *event)
{
    const char *address = fact_text(event, "address");
    json_t *user = json_object();
    json_t *service = json_object();
    json_t *source = json_object();
    put_text(user, "name", "unknown");
    put(o, "user", user);
    put_text(service, "name", "stockade");
    put(o, "service", service);
    put_text(source, is_address(address) ? "ip" : "name", address[0] != '\0' ? address : "unknown");
    put_text(source, "svc_name", fact_text(event, "transport"));
    put(o, "src_endpoint", source);
    put_number(o, "status_id", STATUS_FAILURE);
    put_text(o, "status_detail", fact_text(event, "reason"));
    put_text(o, "message", fact_text(event, "text"));
    put_number(o, "count", fact_number(event, "left_out") + 1);
}

static void
fill_base(json_t *o, const struct stockade_event *event)
{
    char message[128];
    const uint64_t n = fact_number(event, "events");
    (void)snprintf(message, sizeof message, "%" PRIu64 " %s of class %.32s %s lost", n,
                   plural(n, "event", "events"), fact_text(event, "event_class"),
                   plural(n, "was", "were"));
    put_text(o, "message", message);
}

static const struct kind {
    const char *kind;
    unsigned class_uid, activity;
    void (*fill)(json_t *o, const struct stockade_event *event);
} kinds[] = {
    {"EXEC", CLASS_PROCESS, 1, fill_process},
    {"EXIT", CLASS_PROCESS, 2, fill_process},
    {"SIGNAL", CLASS_PROCESS, ACTIVITY_OTHER, fill_process},
    {"DANGEROUS_CALL", CLASS_PROCESS, ACTIVITY_OTHER, fill_process},
    {"IO_URING", CLASS_PROCESS, ACTIVITY_OTHER, fill_process},
    {"OUT_OF_MEMORY", CLASS_PROCESS, 2, fill_process},
    {"REMOTE_TERMINAL", CLASS_PROCESS, ACTIVITY_OTHER, fill_process},
    {"PROFILE", CLASS_PROCESS, ACTIVITY_OTHER, fill_process},
    {"SENSITIVE_OPEN", CLASS_FILE, ACTIVITY_OTHER, fill_file},
    {"CONNECT", CLASS_NETWORK, 1, fill_network},
    {"FLOW", CLASS_NETWORK, 1, fill_network},
    {"FLOW_ENDED", CLASS_NETWORK, 2, fill_network},
    {"DENIED", CLASS_NETWORK, 5, fill_network},
    {"LISTEN", CLASS_NETWORK, 7, fill_network},
    {"LOOKUP", CLASS_DNS, 2, fill_dns},
    {"FINDING", CLASS_FINDING, 1, fill_finding},
    {"GAP", CLASS_BASE, ACTIVITY_OTHER, fill_base},
    {"SANDBOX_CREATED", CLASS_API, 1, fill_api},
    {"SANDBOX_DELETED", CLASS_API, 4, fill_api},
    {"SANDBOX_PAUSED", CLASS_API, 3, fill_api},
    {"SANDBOX_RESUMED", CLASS_API, 3, fill_api},
    {"SANDBOX_ASLEEP", CLASS_API, 3, fill_api},
    {"SANDBOX_AWAKE", CLASS_API, 3, fill_api},
    {"POLICY_CHANGED", CLASS_API, 3, fill_api},
    {"JOB_STARTED", CLASS_API, 1, fill_api},
    {"CREDENTIAL_REFUSED", CLASS_AUTHENTICATION, 1, fill_authentication},
    {"HANDSHAKE_REFUSED", CLASS_AUTHENTICATION, 1, fill_authentication},
};
static const struct kind refused_query = {"DENIED", CLASS_DNS, 2, fill_dns};
static const struct kind other = {"", CLASS_API, ACTIVITY_OTHER, fill_api};

static const struct kind *
kind_of(const struct stockade_event *event)
{
    if (strcmp(event->kind, "DENIED") == 0 && strcmp(fact_text(event, "operation"), "dns") == 0)
        return &refused_query;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].kind, event->kind) == 0)
            return &kinds[i];
    return &other; // JOB_ENDED, LIMIT_HIT, and kinds of a later broker
}

// ---- What all have

static json_t *
metadata(const char *uid, const char *tenant)
{
    json_t *o = json_object();
    json_t *product = json_object();
    json_t *profiles = json_array();
    put_text(product, "name", "Stockade");
    put_text(product, "vendor_name", "Stockade");
    put_text(product, "version", STOCKADE_VERSION);
    put(o, "product", product);
    put_text(o, "version", "1.8.0");
    put_text(o, "uid", uid);
    put_text(o, "log_name", "events");
    put_text(o, "tenant_uid", tenant);
    (void)json_array_append_new(profiles, json_string("host"));
    (void)json_array_append_new(profiles, json_string("security_control"));
    put(o, "profiles", profiles);
    return o;
}

static void
put_class(json_t *o, unsigned class_uid)
{
    const json_int_t activity = json_integer_value(json_object_get(o, "activity_id"));
    put_number(o, "class_uid", class_uid);
    put_number(o, "category_uid", class_uid / CLASS_PER_CATEGORY);
    put(o, "type_uid", json_integer((json_int_t)class_uid * ACTIVITY_PER_CLASS + activity));
}

static void
put_device(json_t *o, const struct stockade_event *event)
{
    json_t *device = json_object();
    put_number(device, "type_id", DEVICE_VIRTUAL);
    put(device, "uid", json_string(event->sandbox_id[0] != '\0' ? event->sandbox_id : "none"));
    if (event->message != NULL)
        put_text(device, "name", ((const Stockade__V1__Event *)event->message)->sandbox_name);
    put(o, "device", device);
}

// A label of the sandbox; "": it has no such.
static const char *
label(const Stockade__V1__Event *m, const char *key)
{
    for (size_t i = 0; i < m->n_metadata; i++)
        if (strcmp(m->metadata[i]->key, key) == 0)
            return m->metadata[i]->value;
    return "";
}

// The profile ai_operation, which the schema has for two of the classes: the model is what the labels say, by the names of
// OpenTelemetry's conventions. The broker itself knows of none.
static void
put_model(json_t *o, const Stockade__V1__Event *m, unsigned class_uid)
{
    const char *name = label(m, "gen_ai.request.model");
    const char *provider = label(m, "gen_ai.provider.name");
    if (name[0] == '\0' || (class_uid != CLASS_PROCESS && class_uid != CLASS_API))
        return;
    json_t *model = json_object();
    put_text(model, "name", name);
    put_text(model, "ai_provider", provider[0] != '\0' ? provider : "unknown");
    put(o, "ai_model", model);
    json_t *profiles = json_object_get(json_object_get(o, "metadata"), "profiles");
    (void)json_array_append_new(profiles, json_string("ai_operation"));
}

// The labels of the sandbox.
static void
put_labels(json_t *o, const struct stockade_event *event, unsigned class_uid)
{
    const Stockade__V1__Event *m = event->message;
    if (m == NULL || m->n_metadata == 0)
        return;
    json_t *tags = json_array();
    for (size_t i = 0; i < m->n_metadata; i++) {
        json_t *tag = json_object();
        put(tag, "name", json_string(m->metadata[i]->key));
        put(tag, "value", json_string(m->metadata[i]->value));
        (void)json_array_append_new(tags, tag);
    }
    put(json_object_get(o, "metadata"), "tags", tags);
    put_model(o, m, class_uid);
}

static json_int_t
severity_id(uint32_t severity)
{
    static const json_int_t ids[] = {0, 1, 2, 3, 5}; // of enum stockade_severity
    return severity < sizeof ids / sizeof ids[0] ? ids[severity] : 0;
}

// What the class has no member for; `details` has all fields of the event.
static json_t *
unmapped(const struct stockade_event *event)
{
    json_t *o = json_object();
    put_text(o, "kind", event->kind);
    put_text(o, "template", event->template_name);
    put_text(o, "process_id", event->process_id);
    put(o, "details", members_of_facts(event, ""));
    return o;
}

char *
ocsf_line(const struct stockade_event *event)
{
    char uid[64];
    const struct kind *k = kind_of(event);
    json_t *o = json_object();
    (void)snprintf(uid, sizeof uid, "%s-%" PRIu64, event->instance, event->sequence);
    put(o, "time", json_integer(event->time_ns / NS_PER_MS));
    put(o, "severity_id", json_integer(severity_id(event->severity)));
    put(o, "metadata", metadata(uid, event->tenant));
    put_number(o, "activity_id", k->activity);
    put_device(o, event);
    k->fill(o, event);
    put_class(o, k->class_uid);
    put_labels(o, event, k->class_uid);
    put(o, "unmapped", unmapped(event));
    return members_line(o);
}

char *
ocsf_gap_line(uint64_t count, const char *reason, int64_t time_ns)
{
    char message[128];
    json_t *o = json_object();
    if (count == 0)
        (void)snprintf(message, sizeof message, "an unknown number of events was missed: %.32s",
                       reason);
    else
        (void)snprintf(message, sizeof message, "%" PRIu64 " %s missed: %.32s", count,
                       plural(count, "event was", "events were"), reason);
    put(o, "time", json_integer(time_ns / NS_PER_MS));
    put(o, "severity_id", json_integer(2));
    put(o, "metadata", metadata("", ""));
    put_number(o, "activity_id", ACTIVITY_OTHER);
    put_class(o, CLASS_BASE);
    put_text(o, "message", message);
    return members_line(o);
}
