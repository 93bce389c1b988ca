// SPDX-License-Identifier: Apache-2.0
// An invalid configuration is refused with the position of the error; the shipped file shows the defaults.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/detect.h"
#include "proto/validate.h"
#include "server/config/config.h"
#include "server/telemetry/finding.h"

struct refusal {
    const char *yaml;
    const char *text_part; // part of the text
};

static const struct refusal refusals[] = {
    {"nonsense: 1\n", "f:1:11: nonsense: there is no such key"},
    {"pool: 1\npool: 2\n", "f:2:1: pool: a duplicate key"},
    {"a: &x 1\n", "anchors are not allowed"},
    {"encryption: {key_file: key}\n", "f:1:24: key_file: "},
    {"encryption: {credential: a/b}\n", "f:1:26: credential: "},
    {"encryption:\n  key_file: /k\n  credential: k\n", "f:3:15: encryption has a key_file already"},
    {"encryption: {required: true}\n", "f:1:24: encryption is required, and has no key"},
    {"encryption: {required: true, key_file: /k}\ntemplates: [{name: a, storage: disk}]\n",
     "template \"a\" has storage: disk, whose files are on the disk in clear"},
    {"listen: [ipc:///a/b]\ncgroup: *x\n", "aliases are not allowed"},
    {"pool: !!int 3\n", "tags are not allowed"},
    {"--- {pool: 1}\n--- {pool: 2}\n", "a second document"},
    {"- pool\n", "f:1:1: must be a mapping"},
    {"? [pool]\n: 1\n", "a key must be plain text"},
    {"a: {b: {c: {d: {e: {f: {g: {h: {i: {j: {k: 1}}}}}}}}}}\n", "nested too deeply"},
    {"pool: \"1\\0002\"\n", "a control byte in a value"},
    {"pool: [1\n", "f:2:1:"},
    {"pool: 1\n# \xc3\xa9 \xe9\n", "f:2:5: must be UTF-8"},
    {"pool: -1\n", "must be a whole number, such as 100, without a unit"},
    {"pool: 1.5\n", "must be a whole number"},
    {"pool: 1025\n", "must be from 0 to 1024"},
    {"pool: 99999999999999999999\n", "must be from 0 to 1024"},
    {"pool: 12M\n", "must be a whole number"},
    {"pool: {}\n", "must be a whole number"},
    {"listen: []\n", "must have at least one address"},
    {"listen: ipc:///run/x/y\n", "must be a list of addresses"},
    {"listen: [/run/x]\n", "must be an address"},
    {"state_dir: var/lib\n", "must be an absolute path"},
    {"state_dir: /var/../etc\n", "must be an absolute path"},
    {"state_dir: /var/./etc\n", "must be an absolute path"},
    {"cgroup: /a/b\n", "f:1:9: cgroup: must be / and one name"},
    {"cgroup: /\n", "must be / and one name"},
    {"cgroup: \"/a b\"\n", "must be / and one name"},
    {"socket: {mode: 0888}\n", "octal digits"},
    {"socket: {mode: 1777}\n", "at most 0777"},
    {"log: {level: loud}\n", "must be debug, info, warning or error"},
    {"log: {format: xml}\n", "must be text or json"},
    {"limits_max: {memory: 4X}\n", "memory: must be a size, such as 4096, 64K, 256M or 1.5G"},
    {"limits_max: {timeout: 5x}\n", "must be a time, such as 300ms, 5s, 1.5m, 2h or 1d"},
    {"limits_max: {cpus: two}\n", "must be a number of CPUs, such as 0.5 or 2"},
    {"limits_max: {memory: 1M}\n", "must be from 4M to 1T"},
    {"limits_max: {ram: 1G}\n", "ram: there is no such limit"},
    {"limits_default: {memorys: 1G}\n", "memorys: there is no such limit; did you mean memory?"},
    {"limits_default: {time_out: 5s}\n", "there is no such limit; did you mean timeout?"},
    {"limit_max: {memory: 1G}\n", "limit_max: there is no such key; did you mean limits_max?"},
    {"socket: {mod: 0660}\n", "mod: there is no such key; did you mean mode?"},
    {"limits_max: {timeout: 0}\n", "must be from 1ms to 365d"},
    {"limits_max: {wall_ms: 60000}\n",
     "a number without a unit is in seconds: write timeout: 60000ms"},
    {"limits_max: {cpu_time_ms: 60000}\n", "write cpu_time: 60000ms"},
    {"limits_max: {memory: 1G, memory_bytes: 2G}\n", "set twice, as memory and as memory_bytes"},
    {"limits_max: {pids: 1.5}\n", "must be a whole number"},
    {"limits_max: {cpus: 1025}\n", "must be from 0.01 to 1024"},
    {"limits_max: {output: 1K}\nlimits_default: {output: 2K}\n",
     "f:2:26: limits_default.output is 2K, above limits_max.output of 1K"},
    {"pool: 1\nlimits_max: {disk_bytes: 1M}\n",
     "f:2:26: limits_default.disk is 256M, above limits_max.disk of 1M"},
    {"templates: [{name: a, limits_max: {output: 2K}}]\nlimits_max: {output: 1K}\n",
     "f:1:44: template \"a\": limits_max.output is 2K, above the host's limits_max.output of 1K"},
    {"drain: 601\n", "must be from 0s to 10m"},
    {"limits_default: {pids: 5000}\n",
     "f:1:24: limits_default.pids is 5000, above limits_max.pids of 4096"},
    {"network: {dns: 192.0.2.1}\n", "must be a list of name servers"},
    {"network: {dns: [dns.example]}\n", "must be an address"},
    {"network: {dns: [\"192.0.2.1:0\"]}\n", "must be an address"},
    {"network: {dns: [\"192.0.2.1:65536\"]}\n", "must be an address"},
    {"network: {dns: [\"192.0.2.1:\"]}\n", "must be an address"},
    {"network: {dns: [\"[2001:db8::1\"]}\n", "must be an address"},
    {"network: {dns: [\"[2001:db8::1]x\"]}\n", "must be an address"},
    {"network: {dns: [\"\"]}\n", "must be an address"},
    {"network: {dns: [1.1.1.1, 1.1.1.1, 1.1.1.1, 1.1.1.1, 1.1.1.1]}\n", "more than 4 name servers"},
    {"anomalies: {rules: {nothing: {}}}\n", "nothing: there is no such rule"},
    {"anomalies: {rules: {oom: {threshold: 0}}}\n", "must be from 1 to"},
    {"anomalies: {rules: {denied-fan-out: {threshold: 65}}}\n", "must be from 1 to 64"},
    {"anomalies: {rules: {mining: {window: 999ms}}}\n", "must be from 1s to"},
    {"anomalies: {rules: {oom: {response: shout}}}\n", "must be log, alert, throttle, pause or"},
    {"anomalies: {rules: {oom: {severity: bad}}}\n", "must be info, notice, warning or critical"},
    {"anomalies: {rules: {oom: {enabled: maybe}}}\n", "must be true or false"},
    {"anomalies: {learn: 1000001}\n", "must be from 0 to 1000000"},
    {"anomalies: {sensitive_paths: .netrc}\n", "must be a list of paths"},
    {"anomalies: {sensitive_paths: [a/b/c]}\n", "must begin with / or have one or two components"},
    {"anomalies: {sensitive_paths: [/a/../b]}\n", "must not have"},
    {"anomalies: {sensitive_paths: [/a/]}\n", "without a trailing /"},
    {"anomalies: {not_sensitive_paths: [/a]}\n", "must be one of the built-in sensitive paths"},
    {"templates: [{name: a, anomalies: {sensitive_paths: [/a]}}]\n", "sensitive_paths"},
    {"templates: [{name: a, anomalies: {rules: [oom]}}]\n", "must be a mapping of rules"},
    {"templates: [{name: a, warm: [pandas]}]\n", "must be a mapping of a language"},
    {"templates: [{name: a, warm: {bash: []}}]\n", "bash cannot be kept warm"},
    {"templates: [{name: a, warm: {python: pandas}}]\n", "must be a list of modules"},
    {"templates: [{name: a, warm: {python: [os.]}}]\n", "must be the name of a module"},
    {"templates: [{name: a, warm: {python: [.os]}}]\n", "must be the name of a module"},
    {"templates: [{name: a, warm: {python: [3d]}}]\n", "must be the name of a module"},
    {"templates: [{name: a, warm: {python: [\"a b\"]}}]\n", "must be the name of a module"},
    {"templates: [{name: a, warm: {python: [\"os;x\"]}}]\n", "must be the name of a module"},
    {"templates: [{name: a, warm: {python: [\"\"]}}]\n", "must be the name of a module"},
    {"templates: [{pool: 1}]\n", "a template must have a name"},
    {"templates: [{name: A}]\n", "lower-case"},
    {"templates: [{name: a}, {name: a}]\n", "a second template with the name"},
    {"templates: [{name: a, paths: [opt]}]\n", "must be an absolute path"},
    {"templates: [{name: a, env: {\"A=B\": c}}]\n", "not the name of an environment variable"},
    {"templates: [{name: a, env: {1A: c}}]\n", "not the name of an environment variable"},
    {"templates: [{name: a, limits_max: {pids: 5000}}]\n",
     "above the host's limits_max.pids of 4096"},
    {"templates: [{name: a, limits: {pids: 9}, limits_max: {pids: 8}}]\n",
     "f:1:38: template \"a\": limits.pids is 9, above its limits_max.pids of 8"},
    {"templates: [{name: a, network: 1}]\n", "must be a mapping of keys to values"},
    {"templates: [{name: a, network: {mode: some}}]\n", "must be none, allowlist, open or off"},
    {"templates: [{name: a, network: {port: 1}}]\n", "there is no such key"},
    {"templates: [{name: a, network: {outbound: example.com}}]\n", "a list of destinations"},
    {"templates: [{name: a, network: {outbound: [\"192.0.2.1/24\"]}}]\n", "beyond the prefix"},
    {"templates: [{name: a, network: {outbound: [\"a.example:0\"]}}]\n", "f:1:44: a.example:0"},
    {"templates: [{name: a, network: {outbound: [{bytes_max: 1}]}}]\n", "must have \"to\""},
    {"templates: [{name: a, network: {outbound: [{to: a.example, x: 1}]}}]\n", "no such key"},
    {"templates: [{name: a, network: {mode: none, outbound: [a.example]}}]\n",
     "f:1:32: network: has rules, but its mode is none"},
    {"templates: [{name: a, network: {inbound: [80-70]}}]\n", "must be a port, or a range A-B"},
    {"templates: [{name: a, network: {egress_rate: 999}}]\n", "must be 0, or from 1000"},
    {"templates: [{name: a, network: {egress_bytes_max: 1X}}]\n", "must be a size"},
    {"templates: [{name: a, network: {queries_per_minute: 60001}}]\n", "to 60000"},
    {"telemetry: {syscalls: never}\n", "must be on-demand, off or always"},
    {"network: {unenforced: maybe}\n", "must be refuse or allow"},
    {"quotas: {tenants: []}\n", "f:1:19: tenants: must be a mapping of tenants to their quotas"},
    {"quotas: {tenants: {A: {}}}\n", "f:1:23: A: must be the name of a tenant"},
    {"quotas: {tenants: {a: 5}}\n", "f:1:23: a: must be a mapping of quotas"},
    {"quotas: {tenants: {a: {weight: 0}}}\n", "f:1:32: weight: must be from 1 to 100"},
    {"quotas: {tenants: {a: {weight: 101}}}\n", "f:1:32: weight: must be from 1 to 100"},
    {"quotas: {tenants: {a: {memos: 1}}}\n",
     "f:1:31: memos: there is no such quota; did you mean memory?"},
    {"quotas: {tenants: {a: {sandboxes: 0}}}\n", "f:1:35: sandboxes: must be from 1 to 4095"},
    {"quotas: {memory_per_caller: -1}\n", "f:1:29: memory_per_caller: must be a size"},
    {"quotas: {sandboxes: 2049}\n", "f:1:21: quotas.sandboxes is 2049, above ids.slots of 2048"},
    {"ids:\n  slots: 20\n", "f:2:10: quotas.sandboxes is 1200, above ids.slots of 20"},
    {"ids: {base: 2147000000}\n", "f:1:13: ids.base is 2147000000: ids.slots + 1"},
    {"quotas: {sandboxes: 5}\n",
     "f:1:21: the pools keep 8 sandboxes ready, above quotas.sandboxes of 5"},
    {"ttl: {default: 2d, max: 1d}\n", "f:1:16: ttl.default is 2d, above ttl.max of 1d"},
    {"rpc: {queue_pause: 8M, queue_kill: 4M}\n",
     "f:1:20: rpc.queue_pause is 8M, above rpc.queue_kill of 4M"},
    {"listen: [\"ws://127.0.0.1:80/x\"]\n", "rpc.websocket enables them"},
    {"listen: [\"tcp://0.0.0.0:80\"]\n",
     "f:1:10: listen: listen on tcp://0.0.0.0:80: callers over tcp"},
    {"listen: [\"tcp://127.0.0.1\"]\n", "needs a port"},
    {"listen: [\"tcp://127.0.0.1:80\"]\n", "may use ports from 1024"},
    {"listen: [ipc:///a/b, ipc:///a/b]\n",
     "f:1:22: listen: the address ipc:///a/b is in the list twice"},
    {"telemetry: {feed: \"tcp://0.0.0.0:80\"}\n", "f:1:19: telemetry.feed: listen on"},
    {"ids: {slots: 5000}\n", "must be from 2 to 4095"},
};

static void
errors_are_refused_with_their_position(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct err e = {0};
        struct config *c = config_default();
        int r = config_parse(c, "f", refusals[i].yaml, strlen(refusals[i].yaml), &e);
        if (r >= 0 || strstr(e.text, refusals[i].text_part) == NULL)
            fail_msg("%s: %d \"%s\", expected \"%s\"", refusals[i].yaml, r, e.text,
                     refusals[i].text_part);
        config_free(c);
    }
}

static void
each_slot_may_have_a_sandbox(void **state)
{
    (void)state;
    static const char yaml[] = "\xef\xbb\xbfids: {slots: 20}\nquotas: {sandboxes: 20}\n";
    struct err e = {0};
    struct config *c = config_default();
    if (config_parse(c, "f", yaml, sizeof yaml - 1, &e) < 0)
        fail_msg("%s", e.text);
    config_free(c);
}

static void
paths_lose_slashes_that_mean_nothing(void **state)
{
    (void)state;
    char out[16];
    assert_true(config_clean_path("/a//b/", out, sizeof out));
    assert_string_equal(out, "/a/b");
    assert_true(config_clean_path("//", out, sizeof out));
    assert_string_equal(out, "/");
    assert_true(config_clean_path("/..a/.b", out, sizeof out));
    assert_string_equal(out, "/..a/.b");
    assert_true(config_clean_path("/45678901234567", out, sizeof out));
    assert_false(config_clean_path("/456789012345678", out, sizeof out));
    assert_false(config_clean_path("/a/..", out, sizeof out));
    assert_false(config_clean_path("/./a", out, sizeof out));
    assert_false(config_clean_path("a", out, sizeof out));
    assert_false(config_clean_path("", out, sizeof out));
}

static void
modules_to_keep_warm_are_one_list(void **state)
{
    (void)state;
    static const char yaml[] = "templates: [{name: a, warm: {python: [a.b, _c]}}, "
                               "{name: b, warm: {python: []}}, {name: c}]\n"
                               "quotas: {warm_memory: 10M}\n";
    struct err e = {0};
    struct config *c = config_default();
    if (config_parse(c, "f", yaml, sizeof yaml - 1, &e) < 0)
        fail_msg("%s", e.text);
    const struct template *t = c->sandbox.template;
    assert_true(t[0].warm && t[1].warm && !t[2].warm);
    assert_string_equal(t[0].imports, "a.b _c");
    assert_string_equal(t[1].imports, "");
    assert_int_equal(c->sandbox.quotas.warm_memory, 10 << 20);
    config_free(c);
}

static void
refuse_modules(const char *yaml)
{
    struct err e = {0};
    struct config *c = config_default();
    assert_true(config_parse(c, "f", yaml, strlen(yaml), &e) < 0);
    assert_non_null(strstr(e.text, "more than 32 modules"));
    config_free(c);
}

static void
modules_beyond_their_bounds_are_refused(void **state)
{
    (void)state;
    char many[32 * 3 + 1];
    char yaml[4096];
    for (size_t i = 0; i < 32; i++)
        memcpy(many + 3 * i, "m, ", 4);
    (void)snprintf(yaml, sizeof yaml, "templates: [{name: a, warm: {python: [%sm]}}]\n", many);
    refuse_modules(yaml);
    (void)snprintf(yaml, sizeof yaml, "templates: [{name: a, warm: {python: [%01500d]}}]\n", 0);
    memset(strchr(yaml, '0'), 'm', 1500);
    refuse_modules(yaml);
}

static void
seventeen_templates_are_refused(void **state)
{
    (void)state;
    char yaml[1024] = "pool: 0\ntemplates:\n";
    for (int i = 0; i < 17; i++)
        (void)snprintf(yaml + strlen(yaml), sizeof yaml - strlen(yaml), "  - {name: t%d}\n", i);
    struct err e;
    struct config *c = config_default();
    assert_true(config_parse(c, "f", yaml, strlen(yaml), &e) < 0);
    assert_non_null(strstr(e.text, "more than 16 templates"));
    config_free(c);
}

static void
a_file_above_its_size_is_refused(void **state)
{
    (void)state;
    struct err e;
    struct config *c = config_default();
    char *big = malloc(CONFIG_FILE_MAX + 1);
    memset(big, '#', CONFIG_FILE_MAX + 1);
    assert_true(config_parse(c, "f", big, CONFIG_FILE_MAX + 1, &e) < 0);
    assert_true(config_parse(c, "f", big, CONFIG_FILE_MAX, &e) == 0);
    free(big);
    config_free(c);
}

static void
a_file_that_others_may_write_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/stockade-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "pool: 3\n", 8), 8);
    struct err e;
    char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(fchmod(fd, 0666), 0);
    assert_true(config_file(path, &bytes, &n, &e) < 0);
    assert_int_equal(e.code, ERR_PERMISSION_DENIED);
    assert_true(config_file("/dev/null", &bytes, &n, &e) < 0);
    assert_true(config_file("/nonexistent", &bytes, &n, &e) < 0);
    assert_null(bytes);
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(config_file(path, &bytes, &n, &e), 0);
    assert_int_equal(n, 8);
    assert_memory_equal(bytes, "pool: 3\n", n);
    free(bytes);
    (void)close(fd);
    (void)unlink(path);
}

static void
units_and_templates_are_understood(void **state)
{
    (void)state;
    static const char yaml[] =
        "limits_default: {memory_bytes: 64MB, timeout: 1.5, cpu_time_ms: 2m, cpus: 0.5}\n"
        "limits_max: {memory: 1GiB}\n"
        "drain: 7\n"
        "ttl: {default: 90s}\n"
        "socket: {mode: 0600, group: adm}\n"
        "pool: 2\n"
        "templates:\n"
        "  - name: py\n"
        "    hostname: snake\n"
        "    paths: [/opt, /srv/data]\n"
        "    env: {LANG: C, EMPTY: ''}\n"
        "    limits_max: {memory: 32M, output: 4K}\n"
        "    pool: 0\n";
    struct err e;
    struct config *c = config_default();
    assert_int_equal(config_parse(c, "f", yaml, sizeof yaml - 1, &e), 0);
    const struct template *usual = config_template(c, "");
    const struct template *py = config_template(c, "py");
    assert_non_null(usual);
    assert_int_equal(usual->limits.v[LIMIT_MEMORY_BYTES], 64 << 20);
    assert_int_equal(usual->limits.v[LIMIT_WALL_MS], 1500);
    assert_int_equal(usual->limits.v[LIMIT_CPU_TIME_MS], 120000);
    assert_int_equal(usual->limits.v[LIMIT_CPU_MILLIS], 500);
    assert_int_equal(usual->limits.v[LIMIT_OUTPUT_BYTES], 0);
    assert_int_equal(usual->limits_max.v[LIMIT_MEMORY_BYTES], 1 << 30);
    assert_int_equal(py->limits.v[LIMIT_OUTPUT_BYTES], 4096); // none was lowered to its maximum
    assert_int_equal(c->drain_ms, 7000);
    assert_int_equal(c->ttl_default_ms, 90000);
    assert_int_equal(usual->pool, 2);
    assert_int_equal(py->pool, 0);
    assert_int_equal(py->limits.v[LIMIT_MEMORY_BYTES], 32 << 20); // was lowered to its maximum
    assert_string_equal(py->paths[1], "/srv/data");
    assert_string_equal(py->env[1].name, "EMPTY");
    assert_string_equal(py->workdir, "/home/agent");
    assert_int_equal(c->socket_mode, 0600);
    assert_null(config_template(c, "other"));
    config_free(c);
}

static void
name_servers_are_addresses_with_a_port_or_without(void **state)
{
    (void)state;
    static const uint8_t v4[16] = {[10] = 0xff, 0xff, 192, 0, 2, 1};
    static const uint8_t v6[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1};
    static const char text[] = "network: {dns: [192.0.2.1, \"192.0.2.1:5353\", \"2001:db8::1\", "
                               "\"[2001:db8::1]:54\"]}\n";
    struct err e = {0};
    struct config *c = config_default();
    assert_non_null(c);
    assert_int_equal(c->network.dns.n, 0);
    assert_int_equal(config_parse(c, "f", text, strlen(text), &e), 0);
    assert_int_equal(c->network.dns.n, 4);
    static const uint16_t ports[] = {53, 5353, 53, 54};
    for (uint32_t i = 0; i < c->network.dns.n; i++) {
        assert_memory_equal(c->network.dns.server[i].address, i < 2 ? v4 : v6, sizeof v4);
        assert_int_equal(c->network.dns.server[i].port, ports[i]);
    }
    config_free(c);
}

// Uncomments every key: a line that starts with '#' and not a single space after it.
static char *
shipped_with_every_key(void)
{
    char path[512];
    const char *source = getenv("STOCKADE_SOURCE");
    (void)snprintf(path, sizeof path, "%s/deploy/stockaded.yaml", source != NULL ? source : ".");
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return NULL;
    char *all = calloc(1, CONFIG_FILE_MAX);
    char line[512];
    while (fgets(line, sizeof line, f) != NULL) {
        bool key = line[0] == '#' && line[1] != '\n' && (line[1] != ' ' || line[2] == ' ');
        strcat(all, key ? line + 1 : line); // NOLINT: shorter than CONFIG_FILE_MAX
    }
    (void)fclose(f);
    return all;
}

static void
assert_rpc_equal(const struct rpc_limits *a, const struct rpc_limits *b)
{
    assert_int_equal(a->connections_max, b->connections_max);
    assert_int_equal(a->connections_per_uid_max, b->connections_per_uid_max);
    assert_int_equal(a->calls_max, b->calls_max);
    assert_int_equal(a->streams_max, b->streams_max);
    assert_int_equal(a->calls_per_uid_max, b->calls_per_uid_max);
    assert_int_equal(a->bytes_per_uid_max, b->bytes_per_uid_max);
    assert_int_equal(a->handshake_ms, b->handshake_ms);
    assert_int_equal(a->queue_bytes_pause, b->queue_bytes_pause);
    assert_int_equal(a->queue_bytes_kill, b->queue_bytes_kill);
    assert_int_equal(a->keepalive_idle_ms, b->keepalive_idle_ms);
    assert_int_equal(a->idempotency_ms, b->idempotency_ms);
    assert_int_equal(a->idempotency_keys_max, b->idempotency_keys_max);
    assert_int_equal(a->idempotency_bytes_max, b->idempotency_bytes_max);
    assert_int_equal(a->shared_cpu, b->shared_cpu);
}

// Compares two policies and frees both.
static void
assert_network_equal(struct network **a, struct network **b)
{
    assert_int_equal((*a)->mode, (*b)->mode);
    assert_int_equal((*a)->rules_n, (*b)->rules_n);
    assert_int_equal((*a)->inbound_n, (*b)->inbound_n);
    assert_memory_equal((*a)->inbound, (*b)->inbound, sizeof(*a)->inbound);
    assert_memory_equal((*a)->limit, (*b)->limit, sizeof(*a)->limit);
    network_unref(*a);
    network_unref(*b);
    *a = *b = NULL;
}

static void
the_shipped_file_shows_the_defaults(void **state)
{
    (void)state;
    struct err e = {0};
    char *yaml = shipped_with_every_key();
    if (yaml == NULL) {
        (void)printf("skipped: deploy/stockaded.yaml is not here\n");
        skip();
        return;
    }
    struct config *without = config_default();
    struct config *with = config_default();
    if (config_parse(with, "stockaded.yaml", yaml, strlen(yaml), &e) < 0)
        fail_msg("%s", e.text);
    // The file shows two principals, an issuer, certificates, a node name, the account's group and the readers' account, which may be missing, and a path, which
    // means "decide" if omitted.
    assert_string_equal(with->sandbox.node, "eu1");
    memset(with->sandbox.node, 0, sizeof with->sandbox.node);
    memset(with->socket_group, 0, sizeof with->socket_group);
    memset(with->metrics_reader, 0, sizeof with->metrics_reader);
    memset(with->cgroup, 0, sizeof with->cgroup);
    assert_int_equal(with->access.principals.n, 2);
    assert_string_equal(with->access.principals.row[1].tenant, "ci");
    memset(&with->access.principals, 0, sizeof with->access.principals);
    assert_string_equal(with->access.issuers.issuer[0].grants[0].tenant, "ci");
    memset(&with->access.issuers, 0, sizeof with->access.issuers);
    assert_string_equal(with->policy_files.path[0], CONFIG_POLICY_DEFAULT);
    memset(&with->policy_files, 0, sizeof with->policy_files);
    assert_string_equal(with->rules_files.path[0], CONFIG_RULES_DEFAULT);
    memset(&with->rules_files, 0, sizeof with->rules_files);
    assert_string_equal(with->tls.clients[0].tenant, "ci");
    memset(&with->tls, 0, sizeof with->tls);
    assert_string_equal(with->vault.key_file, "/etc/stockade/encryption.key");
    memset(&with->vault, 0, sizeof with->vault);
    assert_non_null(with->text); // a template in it has a policy
    free(with->text);
    with->text = NULL;
    memset(with->text_name, 0, sizeof with->text_name);
    free(with->sandbox.template[0].env);
    with->sandbox.template[0].env = NULL;
    assert_network_equal(&with->sandbox.template[0].network, &without->sandbox.template[0].network);
    assert_network_equal(&with->sandbox.template[0].network_max,
                         &without->sandbox.template[0].network_max);
    assert_rpc_equal(&with->rpc, &without->rpc);
    memcpy(&with->rpc, &without->rpc, sizeof with->rpc); // including its padding
    assert_memory_equal(with, without, sizeof *with);
    config_free(with);
    config_free(without);
    free(yaml);
}

// The file that is installed says what the broker does without it, of each tripwire; and a later one changes it.
static void
tripwires_that_ship_have_the_defaults_and_can_be_changed(void **state)
{
    (void)state;
    static char text[65536];
    char path[4096];
    static const char own[] = "rules:\n  - {id: fork-storm, tripwire: true, severity: critical, "
                              "aggregate: {threshold: 7, window: 3s}}\n  - {id: mining, tripwire: "
                              "true, severity: notice, disabled: true}\n";
    Stockade__V1__PolicyFile files[2], *list[] = {&files[0], &files[1]};
    Stockade__V1__PolicyFiles m = STOCKADE__V1__POLICY_FILES__INIT;
    struct anomaly_config usual;
    struct detect_view v;
    struct err e = {.text = ""};
    (void)snprintf(path, sizeof path, "%s/deploy/rules/tripwires.yaml", getenv("STOCKADE_SOURCE"));
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    (void)fclose(f);
    for (int i = 0; i < 2; i++)
        stockade__v1__policy_file__init(&files[i]);
    files[0].name = "a.yaml";
    files[0].text = text;
    files[1].name = "b.yaml";
    files[1].text = own;
    m.rules = list;
    m.n_rules = 1;
    anomaly_config_usual(&usual);
    assert_int_equal(validate_init(&e), 0);
    struct config *c = config_default();
    if (config_read_rules(c, &m, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(detect_count(c->anomaly.rules), ANOMALY_RULES);
    assert_memory_equal(&c->anomaly.host.rule, &usual.rule, sizeof usual.rule);
    for (uint32_t i = 0; detect_view(c->anomaly.rules, i, &v); i++) {
        const struct anomaly_policy *p = &usual.rule[anomaly_rule_find(v.rule->id)];
        assert_true(v.tripwire && v.enabled && v.threshold == p->threshold);
        assert_true(v.window_ms == p->window_ms && (uint32_t)v.rule->severity == p->severity);
        assert_int_equal(v.rule->response, p->response);
    }
    config_free(c);
    m.n_rules = 2;
    c = config_default();
    c->anomaly.host.rule[RULE_FORK_STORM].window_ms = 5000; // as the configuration says
    assert_int_equal(config_read_rules(c, &m, &e), 0);
    assert_int_equal(c->anomaly.host.rule[RULE_FORK_STORM].threshold, 7);
    assert_int_equal(c->anomaly.host.rule[RULE_FORK_STORM].severity, SEVERITY_CRITICAL);
    assert_int_equal(c->anomaly.host.rule[RULE_FORK_STORM].response, RESPONSE_ALERT);
    assert_int_equal(c->anomaly.host.rule[RULE_FORK_STORM].window_ms, 5000);
    assert_int_equal(c->anomaly.host.rule[RULE_MINING].enabled, 2);
    assert_int_equal(c->anomaly.of_template[0].rule[RULE_FORK_STORM].threshold, 7);
    config_free(c);
    static const char *const wrong[][2] = {
        {"rules: [{id: no-such, tripwire: true, severity: info}]", "there is no tripwire no-such"},
        {"rules: [{id: oom, severity: info, message: m, match: {kinds: [exec]}}]",
         "is the name of"},
        {"rules: [{id: fork-storm, tripwire: true, severity: info, aggregate: {threshold: 1}}]",
         "threshold must be from 2"},
        {"rules: [{id: mining, tripwire: true, severity: info, aggregate: {window: 25h}}]",
         "window in ms must be"},
        {"rules: [{id: oom, tripwire: true, severity: info, builtin: {condition: x}}]",
         "no built-in condition"},
        {"rules: [{id: mining, tripwire: true, severity: info, match: {kinds: [exec]}}]",
         "keeps its built-in condition, busy-without-work"},
        {"rules: [{id: oom, tripwire: true, severity: info, counter: x}]", "keeps its counter"},
        {"rules: [{id: oom, tripwire: true, severity: info, aggregate: {function: distinct, of: "
         "comm}}]",
         "keeps its function"},
        {"rules: [{id: mining, tripwire: true, severity: info, builtin: {condition: "
         "busy-without-work, parameters: [{name: x, value: 1}]}}]",
         "has no x"},
        {"rules: [{id: mining, tripwire: true, severity: info, builtin: {condition: "
         "busy-without-work, parameters: [{name: idle_bytes, value: 0}]}}]",
         "idle_bytes must be from 1"},
    };
    m.n_rules = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        files[0].text = wrong[i][0];
        c = config_default();
        assert_true(config_read_rules(c, &m, &e) < 0);
        if (strstr(e.text, wrong[i][1]) == NULL)
            fail_msg("%s", e.text);
        config_free(c);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_refused_with_their_position),
        cmocka_unit_test(each_slot_may_have_a_sandbox),
        cmocka_unit_test(paths_lose_slashes_that_mean_nothing),
        cmocka_unit_test(seventeen_templates_are_refused),
        cmocka_unit_test(modules_to_keep_warm_are_one_list),
        cmocka_unit_test(modules_beyond_their_bounds_are_refused),
        cmocka_unit_test(a_file_above_its_size_is_refused),
        cmocka_unit_test(a_file_that_others_may_write_is_refused),
        cmocka_unit_test(units_and_templates_are_understood),
        cmocka_unit_test(name_servers_are_addresses_with_a_port_or_without),
        cmocka_unit_test(the_shipped_file_shows_the_defaults),
        cmocka_unit_test(tripwires_that_ship_have_the_defaults_and_can_be_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
