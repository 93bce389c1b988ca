// SPDX-License-Identifier: Apache-2.0
// Shared by config.c, keys.c and finish.c: the table of keys, and the checks of values that depend on each other.
#pragma once

#include "config.h"
#include "proto/config_read.h"
#include "proto/yaml_tree.h"

// The file that the values come from.
struct config_source {
    const char *name;
    struct yaml_node *root; // NULL: empty, or no file
};

// templates[].warm (warm.c), and the tenants of uids and groups: of struct principal_map (principals.c).
config_read_fn config_read_warm, config_read_principals;

// templates[].mounts and .volumes (mounts.c).
config_read_fn config_read_hosts, config_read_volumes;

// A quota of every tenant, of struct config; and the rows of tenants with others, of struct quotas. quotas.c.
config_read_fn config_read_quota, config_read_tenant_quotas;

// Reads a list of rights as bits of enum scope; and the name of a tenant.
int config_scopes(const struct config_reader *r, const struct yaml_node *n, uint32_t *out);
int config_tenant(const struct config_reader *r, const struct yaml_node *n,
                  char out[PRINCIPAL_TENANT]);

config_read_fn config_read_issuers; // of a struct issuer_settings: issuers.c

// The section "anomalies", of the host (struct config) or of a template (struct anomaly_config): see anomaly.c.
extern const struct config_key config_host_anomaly_keys[], config_anomaly_keys[];

// The network of a template: the keys of stockade.v1.NetworkPolicy, destinations as on the command line
// (proto/target.h). The field is a struct network *, owned. network.c.
config_read_fn config_read_network;

config_read_fn config_read_tls; // tls, of a struct config: tls.c

// Reads the file's keys into *c. Templates in the file replace all earlier ones.
int config_read_keys(struct config *c, const struct config_source *file, struct err *e);

// Sets defaults for missing values and checks values that depend on each other. An error names file, line and column of
// the key that the file sets.
int config_finish(struct config *c, const struct config_source *file, struct err *e);
