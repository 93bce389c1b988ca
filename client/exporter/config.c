// SPDX-License-Identifier: Apache-2.0
// See config.h.
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/config_read.h"
#include "proto/host_port.h"
#include "client/stockade.h"
#include "stockade/v1/telemetry_service.pb-c.h"
#include "otlp_environment.h"
#include "queue.h"

enum { TIMEOUT_MAX_MS = 600000 };
#define QUEUE_MAX (UINT64_C(16) << 30)

// ---- Readers

static int
read_broker(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    static const char *const schemes[] = {"ipc:///", "unix:/", "tcp://"};
    for (size_t i = 0; n->kind == YAML_TEXT && i < sizeof schemes / sizeof schemes[0]; i++)
        if (strncmp(n->text, schemes[i], strlen(schemes[i])) == 0)
            return config_read_text(r, k, n, to);
    return config_fail(r, n, "must be an address, such as ipc:///run/stockade/stockade.sock");
}

static int
read_listen(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    struct host_port at;
    uint16_t port = 0;
    if (n->kind == YAML_TEXT && n->text[0] == '\0')
        return config_read_text(r, k, n, to);
    if (n->kind != YAML_TEXT || !host_port_split(n->text, &at) || at.host[0] == '\0' ||
        at.port == NULL || !host_port_number(at.port, &port))
        return config_fail(r, n, "must be HOST:PORT, such as 127.0.0.1:9477, or empty");
    return config_read_text(r, k, n, to);
}

// Names of hosts, which become one text with blanks between them.
static int
read_hosts(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    static const char bytes[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:";
    char *out = config_field(k, to);
    size_t used = 0;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of host names");
    out[0] = '\0';
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next) {
        const size_t length = it->kind == YAML_TEXT ? strlen(it->text) : 0;
        if (length == 0 || it->text[strspn(it->text, bytes)] != '\0')
            return config_fail(r, it, "must be a name or an address without its port");
        if (used + length + 2 > k->size)
            return config_fail(r, it, "are too many");
        used += (size_t)snprintf(out + used, k->size - used, "%s%s", used > 0 ? " " : "", it->text);
    }
    return 0;
}

enum { KIND_BYTES = 48 };

// The name of an event kind in upper case, or "all". False: it is neither.
static bool
kind_of(const char *word, char out[KIND_BYTES])
{
    char name[KIND_BYTES + 16];
    (void)snprintf(out, KIND_BYTES, "%s", word);
    if (strcmp(word, "all") == 0)
        return true;
    for (char *c = out; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    (void)snprintf(name, sizeof name, "EVENT_KIND_%s", out);
    const ProtobufCEnumValue *found =
        protobuf_c_enum_descriptor_get_value_by_name(&stockade__v1__event_kind__descriptor, name);
    return found != NULL && found->value != 0;
}

// Kinds of events, which become one text with blanks around them.
static int
read_kinds(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    char *out = config_field(k, to), kind[KIND_BYTES];
    size_t used = 1;
    if (n->kind != YAML_LIST || n->child == NULL)
        return config_fail(r, n, "must be a list of event kinds, such as [finding, denied]");
    (void)snprintf(out, k->size, " ");
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (it->kind != YAML_TEXT || !kind_of(it->text, kind))
            return config_fail(r, it,
                               "must be an event kind, such as finding or job_ended, or all");
        if (used + strlen(kind) + 2 > k->size)
            return config_fail(r, it, "are too many");
        used += (size_t)snprintf(out + used, k->size - used, "%s ", kind);
    }
    return 0;
}

static int
read_severity(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
              void *to)
{
    static const char *const words[] = {"info", "notice", "warning", "critical", NULL};
    return config_read_word(r, k, n, to, words, STOCKADE_SEVERITY_INFO);
}

// Credentials in it would be in `ps`, in logs and in this file.
static int
read_url(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    const char *host = n->kind != YAML_TEXT                   ? NULL
                       : strncmp(n->text, "http://", 7) == 0  ? n->text + 7
                       : strncmp(n->text, "https://", 8) == 0 ? n->text + 8
                                                              : NULL;
    if (host == NULL || host[0] == '\0' || host[strcspn(host, " \t\"<>")] != '\0')
        return config_fail(r, n, "must be a URL, such as https://collector.example:4318");
    if (memchr(host, '@', strcspn(host, "/?#")) != NULL)
        return config_fail(r, n, "must not have a user or a password: see headers_file");
    return config_read_text(r, k, n, to);
}

static int
read_compression(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    static const char *const words[] = {"none", "gzip", NULL};
    return config_read_word(r, k, n, to, words, 0);
}

// ---- Keys

static const struct config_key target_keys[] = {
    {"url", read_url, AT(target_settings, post.url), 0, 0, NULL},
    {"headers_file", config_read_path, AT(target_settings, post.headers_file), 0, 0, NULL},
    {"ca_file", config_read_path, AT(target_settings, post.ca_file), 0, 0, NULL},
    {"certificate_file", config_read_path, AT(target_settings, post.certificate_file), 0, 0, NULL},
    {"key_file", config_read_path, AT(target_settings, post.key_file), 0, 0, NULL},
    {"timeout", config_read_ms, AT(target_settings, post.timeout_ms), 100, TIMEOUT_MAX_MS, NULL},
    {"compression", read_compression, AT(target_settings, post.gzip), 0, 0, NULL},
    {"queue", config_read_size, AT(target_settings, queue_bytes), QUEUE_BYTES_MIN, QUEUE_MAX, NULL},
    {0},
};

// A receiver.
static int
read_target(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    return config_read_map(r, target_keys, n, config_field(k, to));
}

static const struct config_key prometheus_keys[] = {
    {"listen", read_listen, AT(exporter_config, prometheus.listen), 0, 0, NULL},
    {"connections", config_read_count, AT(exporter_config, prometheus.connections), 2, 10000, NULL},
    {"timeout", config_read_ms, AT(exporter_config, prometheus.timeout_ms), 100, 600000, NULL},
    {"exemplars", config_read_bool, AT(exporter_config, prometheus.exemplars), 0, 0, NULL},
    {0},
};
static const struct config_key dashboard_keys[] = {
    {"listen", read_listen, AT(exporter_config, dashboard.listen), 0, 0, NULL},
    {"hosts", read_hosts, AT(exporter_config, dashboard.hosts), 0, 0, NULL},
    {"open", config_read_bool, AT(exporter_config, dashboard.open), 0, 0, NULL},
    {"connections", config_read_count, AT(exporter_config, dashboard.connections), 2, 10000, NULL},
    {"streams", config_read_count, AT(exporter_config, dashboard.streams), 1, 64, NULL},
    {"timeout", config_read_ms, AT(exporter_config, dashboard.timeout_ms), 100, 600000, NULL},
    {0},
};
static const struct config_key ocsf_keys[] = {
    {"file", config_read_path, AT(exporter_config, ocsf.file), 0, 0, NULL},
    {"size", config_read_size, AT(exporter_config, ocsf.size_max), 65536, UINT64_C(1) << 40, NULL},
    {"keep", config_read_count, AT(exporter_config, ocsf.keep), 0, 1000, NULL},
    {"severity", read_severity, AT(exporter_config, ocsf.severity), 0, 0, NULL},
    {"stdout", config_read_bool, AT(exporter_config, ocsf.to_stdout), 0, 0, NULL},
    {"http", read_target, AT(exporter_config, ocsf.http), 0, 0, NULL},
    {0},
};
static const struct config_key otlp_keys[] = {
    {"http", read_target, AT(exporter_config, otlp.base), 0, 0, NULL},
    {"logs", config_read_bool, AT(exporter_config, otlp.enabled[OTLP_LOGS]), 0, 0, NULL},
    {"traces", config_read_bool, AT(exporter_config, otlp.enabled[OTLP_TRACES]), 0, 0, NULL},
    {"metrics", config_read_bool, AT(exporter_config, otlp.enabled[OTLP_METRICS]), 0, 0, NULL},
    {"interval", config_read_ms, AT(exporter_config, otlp.interval_ms), 1000, 3600000, NULL},
    {"severity", read_severity, AT(exporter_config, otlp.severity), 0, 0, NULL},
    {"service", config_read_text, AT(exporter_config, otlp.service), 0, 0, NULL},
    {0},
};
static const struct config_key approvals_keys[] = {
    {"secret_file", config_read_path, AT(exporter_config, approvals.secret_file), 0, 0, NULL},
    {"http", read_target, AT(exporter_config, approvals), 0, 0, NULL},
    {0},
};
static const struct config_key cloudevents_keys[] = {
    {"kinds", read_kinds, AT(exporter_config, cloudevents.kinds), 0, 0, NULL},
    {"severity", read_severity, AT(exporter_config, cloudevents.severity), 0, 0, NULL},
    {"secret_file", config_read_path, AT(exporter_config, cloudevents.http.secret_file), 0, 0,
     NULL},
    {"http", read_target, AT(exporter_config, cloudevents.http), 0, 0, NULL},
    {0},
};
static const struct config_key falco_keys[] = {
    {"file", config_read_path, AT(exporter_config, falco.file), 0, 0, NULL},
    {"size", config_read_size, AT(exporter_config, falco.size_max), 65536, UINT64_C(1) << 40, NULL},
    {"keep", config_read_count, AT(exporter_config, falco.keep), 0, 1000, NULL},
    {"severity", read_severity, AT(exporter_config, falco.severity), 0, 0, NULL},
    {"http", read_target, AT(exporter_config, falco.http), 0, 0, NULL},
    {0},
};
static const struct config_key top_keys[] = {
    {"broker", read_broker, AT(exporter_config, broker), 0, 0, NULL},
    {"state", config_read_path, AT(exporter_config, state), 0, 0, NULL},
    SECTION("prometheus", prometheus_keys),
    SECTION("dashboard", dashboard_keys),
    SECTION("ocsf", ocsf_keys),
    SECTION("otlp", otlp_keys),
    SECTION("approvals", approvals_keys),
    SECTION("cloudevents", cloudevents_keys),
    SECTION("falco", falco_keys),
    {0},
};

#define TARGET_DEFAULT                                                                             \
    {                                                                                              \
        .post = {.timeout_ms = 10000}, .queue_bytes = UINT64_C(64) << 20,                          \
        .severity = STOCKADE_SEVERITY_INFO                                                         \
    }

void
exporter_config_default(struct exporter_config *c)
{
    *c = (struct exporter_config){
        .prometheus = {.listen = "127.0.0.1:9477",
                       .connections = 64,
                       .timeout_ms = 10000,
                       .exemplars = true},
        .dashboard = {.connections = 64, .streams = 16, .timeout_ms = 10000},
        .state = "/var/lib/stockade-exporter",
        .ocsf = {.size_max = UINT64_C(100) << 20,
                 .keep = 5,
                 .severity = STOCKADE_SEVERITY_INFO,
                 .http = TARGET_DEFAULT},
        .otlp = {.base = TARGET_DEFAULT,
                 .enabled = {true, true, true},
                 .interval_ms = 60000,
                 .severity = STOCKADE_SEVERITY_INFO},
        .approvals = TARGET_DEFAULT,
        .cloudevents = {.kinds = " FINDING ",
                        .severity = STOCKADE_SEVERITY_INFO,
                        .http = TARGET_DEFAULT},
        .falco = {.size_max = UINT64_C(100) << 20,
                  .keep = 5,
                  .severity = STOCKADE_SEVERITY_INFO,
                  .http = TARGET_DEFAULT},
    };
}

int
exporter_config_parse(struct exporter_config *c, const char *name, const void *bytes, size_t n,
                      struct err *e)
{
    if (n > CONFIG_FILE_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: larger than %d bytes", name, CONFIG_FILE_MAX);
    struct yaml *y = NULL;
    struct yaml_node *root = NULL;
    int r = yaml_tree_read(name, bytes, n, false, &y, &root, e);
    if (r < 0)
        return r;
    const struct config_reader reader = {.name = name, .e = e};
    if (root != NULL && !(root->kind == YAML_TEXT && root->text[0] == '\0'))
        r = config_read_map(&reader, top_keys, root, c);
    yaml_tree_free(y);
    return r;
}

int
exporter_config_read(struct exporter_config *c, const char *path, struct err *e)
{
    char *auto_free bytes = NULL;
    size_t n = 0;
    int r = otlp_environment(&c->otlp, e);
    if (path == NULL && access(EXPORTER_CONFIG_DEFAULT, F_OK) == 0)
        path = EXPORTER_CONFIG_DEFAULT;
    if (r == 0 && path != NULL)
        r = config_file(path, &bytes, &n, e);
    if (r == 0 && path != NULL)
        r = exporter_config_parse(c, path, bytes, n, e);
    return r < 0 ? r : otlp_environment_of_signals(&c->otlp, e);
}
