// SPDX-License-Identifier: Apache-2.0
// See options.h.
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "proto/auto.h"

static const char usage[] =
    "stockaded - runs jobs in sandboxes for its clients\n"
    "\n"
    "Usage: stockaded [OPTION]...\n"
    "\n"
    "Start it as root. It starts one small process that stays root, which creates sandboxes, and\n"
    "then drops its own privileges. It stays in the foreground and logs to stderr. By default it\n"
    "reads " CONFIG_FILE_DEFAULT " if it exists, listens on\n"
    "" CONFIG_LISTEN_DEFAULT " and keeps its state below\n"
    "" CONFIG_STATE_DIR_DEFAULT ".\n"
    "\n"
    "  --config FILE      read this YAML file instead of " CONFIG_FILE_DEFAULT ";\n"
    "                     the shipped stockaded.yaml lists every key\n"
    "  --listen ADDRESS   listen on this address instead of those in the configuration:\n"
    "                     ipc:///PATH or tcp://HOST:PORT (repeatable)\n"
    "  --state-dir DIR    keep state in this folder: a new or an empty one, or that of an earlier start\n"
    "  --cgroup PATH      keep sandboxes in this cgroup, below the root of cgroup v2\n"
    "  --log-level LEVEL  debug, info, warning or error\n"
    "  --check-config     print which configuration file is read, check it, check that this host\n"
    "                     has what it needs, and exit\n"
    "  --help             print this text\n"
    "  --version          print the version\n"
    "\n"
    "SIGTERM and SIGINT shut down: the broker refuses new jobs, lets running jobs continue for the\n"
    "configured `drain` time, and removes all sandboxes. A second signal ends the wait. SIGHUP\n"
    "reloads limits, quotas, rules and templates; if the file has an error, nothing changes.\n";

enum flag { CONFIG = 256, LISTEN, STATE_DIR, CGROUP, LOG_LEVEL, CHECK, HELP, VERSION };

static const struct option flags[] = {
    {"config", required_argument, NULL, CONFIG},
    {"listen", required_argument, NULL, LISTEN},
    {"state-dir", required_argument, NULL, STATE_DIR},
    {"cgroup", required_argument, NULL, CGROUP},
    {"log-level", required_argument, NULL, LOG_LEVEL},
    {"check-config", no_argument, NULL, CHECK},
    {"help", no_argument, NULL, HELP},
    {"version", no_argument, NULL, VERSION},
    {NULL, 0, NULL, 0},
};

// Options that override the configuration; NULL or 0: not set.
struct overrides {
    const char *listen[CONFIG_LISTEN_MAX];
    uint32_t listen_n;
    const char *state_dir, *cgroup, *log_level;
};

static int
take_flag(int flag, const char *value, struct options *o, struct overrides *over, struct err *e)
{
    switch (flag) {
    case CONFIG:
        o->config_file = value;
        return 0;
    case LISTEN:
        if (over->listen_n == CONFIG_LISTEN_MAX)
            return err_set(e, ERR_INVALID_ARGUMENT, "--listen: more than %d addresses",
                           CONFIG_LISTEN_MAX);
        over->listen[over->listen_n++] = value;
        return 0;
    case STATE_DIR:
        over->state_dir = value;
        return 0;
    case CGROUP:
        over->cgroup = value;
        return 0;
    case LOG_LEVEL:
        over->log_level = value;
        return 0;
    case CHECK:
        o->check_only = true;
        return 0;
    case HELP:
        o->exit_now = true;
        (void)fputs(usage, stdout);
        return 0;
    case VERSION:
        o->exit_now = true;
        (void)puts("stockaded " STOCKADE_VERSION);
        return 0;
    default:
        return err_set(e, ERR_INVALID_ARGUMENT, "see stockaded --help");
    }
}

static int
copy(char *to, size_t n, const char *from, const char *flag, struct err *e)
{
    if (strlen(from) >= n)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: longer than %zu bytes", flag, n - 1);
    memcpy(to, from, strlen(from) + 1);
    return 0;
}

static int
copy_state_dir(struct config *c, const char *from, struct err *e)
{
    if (config_clean_path(from, c->state_dir, sizeof c->state_dir))
        return 0;
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "--state-dir: must be an absolute path without \".\" and \"..\", of at most %zu "
                   "bytes",
                   sizeof c->state_dir - 1);
}

static int
copy_cgroup(struct config *c, const char *from, struct err *e)
{
    if (config_cgroup_ok(from))
        return copy(c->cgroup, sizeof c->cgroup, from, "--cgroup", e);
    return err_set(e, ERR_INVALID_ARGUMENT, "--cgroup: " CONFIG_CGROUP_FORM);
}

static int
apply(const struct overrides *over, struct config *c, struct err *e)
{
    static const char *const levels[] = {"debug", "info", "warning", "error"};
    int r = 0;
    for (uint32_t i = 0; i < over->listen_n && r == 0; i++) {
        c->listen_n = i + 1;
        r = copy(c->listen[i], sizeof c->listen[i], over->listen[i], "--listen", e);
        if (r == 0)
            r = rpc_check_address(&c->rpc, c->listen[i], e);
    }
    if (r == 0 && over->state_dir != NULL)
        r = copy_state_dir(c, over->state_dir, e);
    if (r == 0 && over->cgroup != NULL)
        r = copy_cgroup(c, over->cgroup, e);
    if (r < 0 || over->log_level == NULL)
        return r;
    for (uint32_t i = 0; i < 4; i++)
        if (strcmp(over->log_level, levels[i]) == 0) {
            c->log_level = i;
            return 0;
        }
    return err_set(e, ERR_INVALID_ARGUMENT, "--log-level: must be debug, info, warning or error");
}

static int
read_flags(int argc, char **argv, struct options *out, struct overrides *over, struct err *e)
{
    *out = (struct options){0};
    optind = 0; // from the beginning
    for (int flag = 0; (flag = getopt_long(argc, argv, "", flags, NULL)) != -1 && !out->exit_now;) {
        int r = take_flag(flag, optarg, out, over, e);
        if (r < 0)
            return r;
    }
    if (!out->exit_now && optind < argc)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: stockaded takes no arguments", argv[optind]);
    return 0;
}

// Applies the file's bytes to the defaults.
static int
read_values(const char *file, const void *bytes, size_t n, struct config **config, struct err *e)
{
    struct config *c = config_default();
    if (c == NULL)
        return err_sys(e, ENOMEM, "read the configuration");
    int r = file != NULL ? config_parse(c, file, bytes, n, e) : 0;
    if (r < 0)
        config_free(c);
    else
        *config = c;
    return r;
}

// And then the flags.
static int
override(const struct overrides *over, struct config **config, struct err *e)
{
    int r = apply(over, *config, e);
    if (r < 0) {
        config_free(*config);
        *config = NULL;
    }
    return r;
}

int
options_parse(int argc, char **argv, const char *file, const void *bytes, size_t n,
              struct config **config, struct err *e)
{
    struct overrides over = {0};
    struct options ignored;
    int r = read_flags(argc, argv, &ignored, &over, e);
    if (r == 0)
        r = read_values(file, bytes, n, config, e);
    return r < 0 ? r : override(&over, config, e);
}

int
options_read(int argc, char **argv, struct options *out, struct config **config, struct err *e)
{
    struct overrides over = {0};
    char *auto_free bytes = NULL;
    size_t n = 0;
    int r = read_flags(argc, argv, out, &over, e);
    out->status = EX_USAGE;
    if (r < 0 || out->exit_now)
        return r;
    if (out->config_file == NULL && (access(CONFIG_FILE_DEFAULT, F_OK) == 0 || errno != ENOENT))
        out->config_file = CONFIG_FILE_DEFAULT;
    if (out->config_file != NULL)
        r = config_file(out->config_file, &bytes, &n, e);
    if (r == 0)
        r = read_values(out->config_file, bytes, n, config, e);
    if (r < 0)
        out->status = EX_CONFIG;
    return r < 0 ? r : override(&over, config, e);
}

int
options_end_output(int status)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return status;
    (void)fprintf(stderr, "stockaded: cannot write to stdout: %s\n", strerror(errno));
    return EX_IOERR;
}
