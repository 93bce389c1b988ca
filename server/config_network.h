// The network of a template, as the configuration file has it: the keys of stockade.v1.NetworkPolicy, destinations as on the
// command line (proto/target.h).
#pragma once

#include "network.h"
#include "yaml_tree.h"

enum { CONFIG_WHAT_MAX = 256 };

// *out: owned. False: `what` says what is wrong at *bad.
bool config_read_network(struct yaml_node *map, struct network **out, struct yaml_node **bad,
                         char what[CONFIG_WHAT_MAX]);
