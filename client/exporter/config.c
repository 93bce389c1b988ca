// SPDX-License-Identifier: Apache-2.0
// See config.h.
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/config_read.h"
#include "proto/host_port.h"
#include "client/stockade.h"

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

static int
read_severity(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
              void *to)
{
    static const char *const words[] = {"info", "notice", "warning", "critical", NULL};
    uint32_t i = 0;
    int err = config_word(r, n, words, &i);
    if (err == 0)
        config_store(k, to, i + STOCKADE_SEVERITY_INFO);
    return err;
}

// ---- Keys

static const struct config_key prometheus_keys[] = {
    {"listen", read_listen, AT(exporter_config, prometheus.listen), 0, 0, NULL},
    {"connections", config_read_count, AT(exporter_config, prometheus.connections), 2, 10000, NULL},
    {"timeout", config_read_ms, AT(exporter_config, prometheus.timeout_ms), 100, 600000, NULL},
    {"exemplars", config_read_bool, AT(exporter_config, prometheus.exemplars), 0, 0, NULL},
    {0},
};
static const struct config_key ocsf_keys[] = {
    {"file", config_read_path, AT(exporter_config, ocsf.file), 0, 0, NULL},
    {"size", config_read_size, AT(exporter_config, ocsf.size_max), 65536, UINT64_C(1) << 40, NULL},
    {"keep", config_read_count, AT(exporter_config, ocsf.keep), 0, 1000, NULL},
    {"severity", read_severity, AT(exporter_config, ocsf.severity), 0, 0, NULL},
    {0},
};
static const struct config_key top_keys[] = {
    {"broker", read_broker, AT(exporter_config, broker), 0, 0, NULL},
    SECTION("prometheus", prometheus_keys),
    SECTION("ocsf", ocsf_keys),
    {0},
};

void
exporter_config_default(struct exporter_config *c)
{
    *c = (struct exporter_config){
        .prometheus = {.listen = "127.0.0.1:9477",
                       .connections = 64,
                       .timeout_ms = 10000,
                       .exemplars = true},
        .ocsf = {.size_max = UINT64_C(100) << 20, .keep = 5, .severity = STOCKADE_SEVERITY_INFO},
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
    if (path == NULL && access(EXPORTER_CONFIG_DEFAULT, F_OK) < 0)
        return 0;
    if (path == NULL)
        path = EXPORTER_CONFIG_DEFAULT;
    int r = config_file(path, &bytes, &n, e);
    return r < 0 ? r : exporter_config_parse(c, path, bytes, n, e);
}
