// SPDX-License-Identifier: Apache-2.0
// admin cert: a private certificate authority, and certificates for a broker and for callers, for a first try.
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "actions.h"
#include "cert.h"
#include "client/channel.h"
#include "client/tls/certificates.h"

enum { TEXT = 1024 };

#define DAY_MS UINT64_C(86400000)
// At most a year, as browsers and curl(1) expect of servers.
enum { DAYS = 365 };

static int
fail(const struct acting *a, const struct err *why)
{
    struct stockade_error e = {.code = why->code};
    (void)snprintf(e.text, sizeof e.text, "%s", why->text);
    (void)snprintf(e.reason, sizeof e.reason, "%s", why->reason);
    (void)snprintf(e.hint, sizeof e.hint, "%s", why->hint);
    return cli_fail(a->c, "", &e);
}

// The account of the broker, which exists where the package is installed, must be able to read the key of a server, and to enter a folder
// that is root's alone, as the one that was made here.
static void
give_key(const char *folder)
{
    char path[TEXT];
    struct stat st;
    const struct passwd *broker = geteuid() == 0 ? getpwnam("stockade") : NULL;
    (void)snprintf(path, sizeof path, "%.900s/server.key", folder);
    if (broker != NULL && lchown(path, broker->pw_uid, (gid_t)-1) < 0)
        (void)fprintf(stderr, "stockade admin: %s: give it to %s: %s\n", path, broker->pw_name,
                      strerror(errno));
    if (broker == NULL || lstat(folder, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != 0 ||
        (st.st_mode & 077) != 0)
        return;
    if (lchown(folder, (uid_t)-1, broker->pw_gid) < 0 || chmod(folder, 0710) < 0)
        (void)fprintf(stderr, "stockade admin: %s: let %s enter it: %s\n", folder, broker->pw_name,
                      strerror(errno));
}

static void
print_server(const char *folder, const char *name)
{
    (void)printf(
        "# for /etc/stockade/stockaded.yaml\n"
        "listen: [ipc:///run/stockade/stockade.sock, \"tls+tcp://0.0.0.0:7443\"]\n"
        "tls:\n  certificate: %s/server.pem\n  key: %s/server.key\n  client_ca: %s/ca.pem\n"
        "# for callers, with a credential (stockade key create)\n"
        "# STOCKADE_ADDRESS=tls+tcp://%s:7443 STOCKADE_CA_FILE=ca.pem STOCKADE_TOKEN=...\n",
        folder, folder, folder, name);
}

static void
print_client(const char *folder, const char *file, const char *name)
{
    (void)printf("# for tls.clients of /etc/stockade/stockaded.yaml\n"
                 "- {name: \"%s:%s\", tenant: %s}\n"
                 "# for the caller\n"
                 "# STOCKADE_CA_FILE=%s/ca.pem STOCKADE_CERTIFICATE_FILE=%s/%s.pem "
                 "STOCKADE_KEY_FILE=%s/%s.key\n",
                 strstr(name, "://") != NULL ? "URI" : "DNS", name, file, folder, folder, file,
                 folder, file);
}

// Splits a list at its commas, in place. 0: there are too many.
static size_t
split(char *list, const char *names[CERTIFICATES_NAMES_MAX])
{
    size_t n = 0;
    char *rest = NULL;
    for (char *one = strtok_r(list, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
        if (n == CERTIFICATES_NAMES_MAX)
            return 0;
        names[n++] = one;
    }
    return n;
}

// The file name of a caller's certificate: the last part of its name.
static const char *
file_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : name;
}

static int
check_client(const struct acting *a, const char *file, struct err *e)
{
    if (a->o->names != NULL)
        return err_field(e, "client", "has the name already: leave out --names");
    if (file[0] == '.' || file[0] == '-' || strchr(file, '/') != NULL)
        return err_field(e, "client", "%.64s cannot be the name of its files", file);
    return strcmp(file, "server") == 0 || strcmp(file, "ca") == 0
               ? err_field(e, "client", "the files of this name are not a caller's")
               : 0;
}

int
cert_make(const struct acting *a)
{
    struct err e;
    const char *names[CERTIFICATES_NAMES_MAX];
    const bool client = a->o->client != NULL;
    char *auto_free list = strdup(client                ? a->o->client
                                  : a->o->names != NULL ? a->o->names
                                                        : "localhost,127.0.0.1,::1");
    struct certificate_order o = {.folder = a->name, .names = names, .client = client};
    if (list == NULL) {
        (void)err_sys(&e, ENOMEM, "make a certificate");
        return fail(a, &e);
    }
    o.names_n = split(list, names); // NOLINT(clang-analyzer-unix.Malloc): auto_free
    o.file = client && o.names_n > 0 ? file_of(names[0]) : "server";
    o.ttl_ms = a->o->ttl_ms != 0 ? a->o->ttl_ms : DAYS * DAY_MS;
    if ((client && check_client(a, o.file, &e) < 0) || channel_certificates(&o, &e) < 0)
        return fail(a, &e);
    if (client) {
        print_client(a->name, o.file, names[0]);
    } else {
        give_key(a->name);
        print_server(a->name, names[0]);
    }
    return EXIT_OK;
}
