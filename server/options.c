// See options.h.
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "stockaded - runs jobs in sandboxes for its clients\n"
    "\n"
    "Usage: stockaded [OPTION]...\n"
    "\n"
    "Started as root; it keeps one small process with root that makes sandboxes, and gives root\n"
    "up itself. It stays in the foreground and logs to stderr. Without any option it reads\n"
    "" CONFIG_FILE_DEFAULT " where that is there, listens on\n"
    "" CONFIG_LISTEN_DEFAULT " and keeps its state below\n"
    "" CONFIG_STATE_DIR_DEFAULT ".\n"
    "\n"
    "  --config FILE      read this configuration (YAML; the shipped stockaded.yaml has every key)\n"
    "                     instead of " CONFIG_FILE_DEFAULT "\n"
    "  --listen ADDRESS   listen here instead of where the configuration says: ipc:///PATH or\n"
    "                     tcp://HOST:PORT; may be given several times\n"
    "  --state-dir DIR    keep state here\n"
    "  --cgroup PATH      keep sandboxes in this cgroup, below the root of cgroup v2\n"
    "  --log-level LEVEL  debug, info, warning or error\n"
    "  --check-config     say which configuration that is, check it and what it needs of this\n"
    "                     host, and leave\n"
    "  --help             this text\n"
    "  --version          the version\n"
    "\n"
    "SIGTERM and SIGINT: no new calls, running jobs get the configured `drain` time, then every\n"
    "sandbox is removed. A second signal does not wait. SIGHUP: the configuration is read again:\n"
    "limits, quotas, rules, and what templates give; all of it or, where it is wrong, nothing.\n";

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

// What the flags say about the configuration; NULL or 0: nothing.
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
copy_path(char *to, size_t n, const char *from, const char *flag, struct err *e)
{
    if (from[0] != '/' || strstr(from, "/..") != NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: must be an absolute path without \"..\"",
                       flag);
    return copy(to, n, from, flag, e);
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
        r = copy_path(c->state_dir, sizeof c->state_dir, over->state_dir, "--state-dir", e);
    if (r == 0 && over->cgroup != NULL)
        r = copy_path(c->cgroup, sizeof c->cgroup, over->cgroup, "--cgroup", e);
    if (r < 0 || over->log_level == NULL)
        return r;
    for (uint32_t i = 0; i < 4; i++)
        if (strcmp(over->log_level, levels[i]) == 0) {
            c->log_level = i;
            return 0;
        }
    return err_set(e, ERR_INVALID_ARGUMENT, "--log-level: must be debug, info, warning or error");
}

int
options_read(int argc, char **argv, struct options *out, struct config **config, struct err *e)
{
    struct overrides over = {0};
    *out = (struct options){0};
    optind = 0; // from the beginning
    for (int flag = 0; (flag = getopt_long(argc, argv, "", flags, NULL)) != -1 && !out->exit_now;) {
        int r = take_flag(flag, optarg, out, &over, e);
        if (r < 0)
            return r;
    }
    if (out->exit_now)
        return 0;
    if (optind < argc)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: stockaded takes no arguments", argv[optind]);
    struct config *c = config_default();
    if (c == NULL)
        return err_sys(e, ENOMEM, "read the configuration");
    if (out->config_file == NULL && (access(CONFIG_FILE_DEFAULT, F_OK) == 0 || errno != ENOENT))
        out->config_file = CONFIG_FILE_DEFAULT;
    int r = out->config_file != NULL ? config_load(c, out->config_file, e) : 0;
    if (r == 0)
        r = apply(&over, c, e);
    if (r < 0) {
        config_free(c);
        return r;
    }
    *config = c;
    return 0;
}
