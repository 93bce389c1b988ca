// SPDX-License-Identifier: Apache-2.0
// The options of commands for keys, tokens, approvals and the audit log. Help, completion and the manual show their texts.
#include "option_tables.h"

static const char *const key_forms[] = {"stk", "e2b", NULL};

const struct option_row key_options[] = {
    {"label", 0, OPTION_TEXT, AT(name), "TEXT", "with create: what the key is for", NULL},
    {"scopes", 0, OPTION_TEXT, AT(scopes), "RIGHT,...",
     "with create: its rights, such as sandbox.write,process.run (default: yours, without those of operators and those to make "
     "keys)",
     NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "with create: time after which it expires (default: never)", NULL},
    {"form", 0, OPTION_FORM, AT(form), "FORM", "with create: how it begins (default: stk)",
     key_forms},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "with create and ls: another tenant, such as team-a; with ls '*' for all (root only)", NULL},
    {0},
};

const struct option_row approvals_options[] = {
    {"for", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "with approve: as often as the call is made in this time (default: once)", NULL},
    {"pattern", 0, OPTION_TEXT, AT(glob), "TEXT",
     "with approve: command lines like this one, in which * stands for any text, for the time of --for (default: 8h)",
     NULL},
    {"comment", 0, OPTION_TEXT, AT(name), "TEXT", "with approve and deny: why", NULL},
    {"all", 'a', OPTION_FLAG, AT(all), NULL, "with ls: also those that have ended", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "with ls and watch: another tenant, such as team-a, or '*' for all (root only)", NULL},
    {0},
};

static const char *const none_only[] = {"none", NULL};

const struct option_row token_options[] = {
    {"scopes", 0, OPTION_TEXT, AT(scopes), "RIGHT,...",
     "with mint: its rights (default: yours, without those of operators and those to make credentials); with exchange: its rights "
     "(default: all that are granted); with attenuate: the rights that stay",
     NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "it expires after this time; with rotate: how long tokens of the key before stay valid (default: not at all)",
     NULL},
    {"not-before", 0, OPTION_DURATION, AT(not_before_ms), "TIME", "it is valid after this time",
     NULL},
    {"uses", 0, OPTION_COUNT, AT(uses), "N", "number of calls, with --ttl", NULL},
    {"methods", 0, OPTION_TEXT, AT(methods), "METHOD,...",
     "only these methods, such as ProcessService/Run or FileService/*", NULL},
    {"sandboxes", 0, OPTION_TEXT, AT(sandboxes), "SANDBOX,...",
     "only these sandboxes, by id or name", NULL},
    {"templates", 0, OPTION_TEXT, AT(templates), "NAME,...", "only sandboxes of these templates",
     NULL},
    {"tool", 0, OPTION_TOOL, AT(tools), "'PROGRAM [PATTERN]... [...]'",
     "run only this program, with arguments that match the patterns, in which * stands for any text (repeatable)",
     NULL},
    {"network", 0, OPTION_NETWORK, AT(network), "none", "only sandboxes without a network",
     none_only},
    {"allow", 0, OPTION_ALLOW, AT(allow), "HOST[:PORT[-PORT]][/tcp|/udp]|@SET",
     "only sandboxes that reach nothing but these destinations (repeatable)", NULL},
    {"memory", 'm', OPTION_BYTES, LIMIT(memory_bytes), "SIZE", "highest memory of a sandbox", NULL},
    {"cpus", 0, OPTION_CPUS, LIMIT(cpu_millis), "N", "highest number of CPUs of a sandbox", NULL},
    {"pids", 0, OPTION_COUNT, LIMIT(pids), "N", "highest number of processes and threads", NULL},
    {"timeout", 0, OPTION_DURATION, LIMIT(wall_ms), "TIME", "longest time of a job", NULL},
    {"audience", 0, OPTION_TEXT, AT(audience), "NAME,...",
     "only brokers with one of these names (access.audience)", NULL},
    {"seal", 0, OPTION_FLAG, AT(seal), NULL, "with attenuate: nobody can narrow it further", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME", "with mint: another tenant (root only)", NULL},
    {0},
};

const struct option_row admin_options[] = {
    {"names", 0, OPTION_TEXT, AT(names), "NAME,...",
     "with cert: names and addresses of the broker (default: localhost,127.0.0.1,::1)", NULL},
    {"client", 0, OPTION_TEXT, AT(client), "NAME,...",
     "with cert: for a caller of this name, such as ci or spiffe://example.org/ci, instead of a broker",
     NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "with cert: how long the certificate is valid (default: 365d)", NULL},
    {"new-key", 0, OPTION_TEXT, AT(new_key), "FILE",
     "with encryption rotate: the new master key, 32 bytes", NULL},
    {"yes", 0, OPTION_FLAG, AT(yes), NULL,
     "with encryption forget: what the tenant has kept is to be unreadable for ever", NULL},
    {0},
};

const struct option_row audit_options[] = {
    {"public-key", 0, OPTION_TEXT, AT(key), "KEY",
     "with verify: 64 hex digits, or a file with them (audit.pub)", NULL},
    {"proof", 0, OPTION_TEXT, AT(path), "FILE", "with verify: check one record by this proof",
     NULL},
    {"follow", 'f', OPTION_FLAG, AT(follow), NULL, "with tail: continue with new records", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "with tail: another tenant, such as team-a, or '*' for all (root only)", NULL},
    {0},
};
