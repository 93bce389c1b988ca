// SPDX-License-Identifier: Apache-2.0
// See etc.h. The source is the host's own /etc, which only root can change. Still, no link is followed, and each file
// is checked after it was opened.
#include "etc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

enum {
    FILE_BYTES_MAX = 4 << 20,
    ALL_BYTES_MAX = 64 << 20,
    ENTRIES_MAX = 20000,
    DEPTH_MAX = 8,
};

// What programs need in order to run, and nothing that may contain a password: no passwd or shadow (the skeleton has
// its own), no ssh, environment, gitconfig, npmrc, pip.conf, wgetrc, maven or machine-id. A row is a name directly
// below /etc, or, with '/', a name in a folder whose other files are not copied.
static const char *const allowed[] = {
    "ImageMagick-*",
    "R",
    "alternatives",
    "bash.bashrc",
    "bindresvport.blacklist",
    "crypto-policies",
    "debian_version",
    "ethertypes",
    "fonts",
    "gai.conf",
    "groff",
    "host.conf",
    "inputrc",
    "java",
    "java-*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "manpath.config",
    "matplotlibrc",
    "mime.types",
    "networks",
    "nodejs",
    "openmpi",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/java",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "protocols",
    "python3",
    "python3.*",
    "redhat-release",
    "rpc",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vim",
    "xattr.conf",
};
enum { ALLOWED_N = sizeof allowed / sizeof allowed[0] };

// Of apt and dpkg, and of what the scripts of packages call; not apt/auth.conf, which has passwords.
static const char *const of_packages[] = {
    "adduser.conf",       "apt/apt.conf.d",
    "apt/keyrings",       "apt/preferences",
    "apt/preferences.d",  "apt/sources.list",
    "apt/sources.list.d", "apt/trusted.gpg",
    "apt/trusted.gpg.d",  "ca-certificates.conf",
    "debconf.conf",       "default/useradd",
    "deluser.conf",       "dpkg",
    "login.defs",         "skel",
    "ucf.conf",
};
enum { OF_PACKAGES_N = sizeof of_packages / sizeof of_packages[0] };

struct budget {
    size_t bytes;
    size_t entries;
    bool packages;
};

static bool
is_in(const char *const *list, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(list[i], path, FNM_PATHNAME | FNM_PERIOD) == 0)
            return true;
    return false;
}

bool
etc_allowed(const char *path, bool packages)
{
    return is_in(allowed, ALLOWED_N, path) || (packages && is_in(of_packages, OF_PACKAGES_N, path));
}

static bool
leads_into(const char *const *list, size_t list_n, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < list_n; i++)
        if (strncmp(list[i], path, n) == 0 && list[i][n] == '/')
            return true;
    return false;
}

// Whether a folder contains something that is allowed: "ssl" for "ssl/certs".
static bool
leads_to_allowed(const char *path, bool packages)
{
    return leads_into(allowed, ALLOWED_N, path) ||
           (packages && leads_into(of_packages, OF_PACKAGES_N, path));
}

// "https://user:password@host": of a proxy, or of a private repository.
static bool
has_password(const char *bytes, size_t n)
{
    const char *end = bytes + n;
    for (const char *at = bytes; (at = memmem(at, (size_t)(end - at), "://", 3)) != NULL;) {
        bool colon = false;
        for (at += 3; at < end && strchr("/ \t\r\n\"';", *at) == NULL; at++) {
            if (*at == '@' && colon)
                return true;
            colon = colon || *at == ':';
        }
    }
    return false;
}

static int
write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0)
            return -errno;
        bytes += done;
        n -= (size_t)done;
    }
    return 0;
}

static int
read_all(int fd, char *bytes, size_t n)
{
    size_t have = 0;
    while (have < n) {
        ssize_t done = read(fd, bytes + have, n - have);
        if (done < 0)
            return -errno;
        if (done == 0)
            break;
        have += (size_t)done;
    }
    return (int)have;
}

// Copies an opened and checked file, through a buffer of its size. Skips files that contain a private key or a password.
static int
copy_bytes(int in, char *bytes, size_t size, mode_t mode, int to, const char *name, struct err *e)
{
    int n = read_all(in, bytes, size);
    if (n < 0)
        return err_sys(e, -n, "read %s", name);
    if (memmem(bytes, (size_t)n, "PRIVATE KEY-----", 16) != NULL || has_password(bytes, (size_t)n))
        return 0;
    int auto_close out =
        openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (out < 0)
        return err_sys(e, errno, "create %s", name);
    int rc = write_all(out, bytes, (size_t)n);
    if (rc == 0 && fchmod(out, mode) < 0)
        rc = -errno;
    return rc < 0 ? err_sys(e, -rc, "write %s", name) : 0;
}

static int
copy_file(int from, const char *name, int to, struct budget *b, struct err *e)
{
    int auto_close in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (in < 0 || fstat(in, &st) < 0)
        return err_sys(e, errno, "open %s", name);
    if (!S_ISREG(st.st_mode) || (st.st_mode & S_IROTH) == 0 || st.st_size > FILE_BYTES_MAX)
        return 0;
    b->bytes += (size_t)st.st_size;
    if (b->bytes > ALL_BYTES_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "/etc holds more than %d bytes to copy",
                       ALL_BYTES_MAX);
    char *bytes = malloc((size_t)st.st_size + 1);
    if (bytes == NULL)
        return err_sys(e, ENOMEM, "read %s", name);
    mode_t mode = (st.st_mode & S_IXOTH) != 0 ? 0755 : 0644;
    int rc = copy_bytes(in, bytes, (size_t)st.st_size, mode, to, name, e);
    free(bytes);
    return rc;
}

static int
copy_link(int from, const char *name, int to, struct err *e)
{
    char target[4096];
    ssize_t n = readlinkat(from, name, target, sizeof target - 1);
    if (n < 0)
        return err_sys(e, errno, "read link %s", name);
    target[n] = '\0';
    return symlinkat(target, to, name) < 0 ? err_sys(e, errno, "create link %s", name) : 0;
}

static int copy_entry(int from, const char *name, int to, int depth, struct budget *b,
                      struct err *e);

// Calls copy_entry for each name in a folder; at the top only for allowed names.
static int
copy_folder(int from, const char *name, int to, int depth, struct budget *b, struct err *e)
{
    int auto_close in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0)
        return err_sys(e, errno, "open %s", name);
    if (mkdirat(to, name, 0755) < 0)
        return err_sys(e, errno, "create %s", name);
    int auto_close out = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (out < 0)
        return err_sys(e, errno, "open the copy of %s", name);
    DIR *dir = fdopendir(fcntl(in, F_DUPFD_CLOEXEC, 3));
    if (dir == NULL)
        return err_sys(e, errno, "list %s", name);
    int rc = 0;
    for (struct dirent *d = readdir(dir); rc == 0 && d != NULL; d = readdir(dir))
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            rc = copy_entry(in, d->d_name, out, depth + 1, b, e);
    (void)closedir(dir);
    return rc < 0 ? err_wrap(e, "%s", name) : 0;
}

static int
copy_entry(int from, const char *name, int to, int depth, struct budget *b, struct err *e)
{
    struct stat st;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "stat %s", name);
    if (++b->entries > ENTRIES_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "/etc holds more than %d entries to copy",
                       ENTRIES_MAX);
    if (S_ISLNK(st.st_mode))
        return copy_link(from, name, to, e);
    if (S_ISREG(st.st_mode))
        return (st.st_mode & S_IROTH) != 0 ? copy_file(from, name, to, b, e) : 0;
    if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX && (st.st_mode & 05) == 05)
        return copy_folder(from, name, to, depth, b, e);
    return 0;
}

// A folder of which only a part is allowed: /etc itself with prefix "", then "ssl".
static int
copy_allowed(int from, int to, const char *prefix, struct budget *b, struct err *e)
{
    DIR *dir = fdopendir(fcntl(from, F_DUPFD_CLOEXEC, 3));
    if (dir == NULL)
        return err_sys(e, errno, "list /etc/%s", prefix);
    int rc = 0;
    for (struct dirent *d = readdir(dir); rc == 0 && d != NULL; d = readdir(dir)) {
        char path[600];
        (void)snprintf(path, sizeof path, "%s%s%s", prefix, *prefix != '\0' ? "/" : "", d->d_name);
        if (etc_allowed(path, b->packages)) {
            rc = copy_entry(from, d->d_name, to, 1, b, e);
            continue;
        }
        if (!leads_to_allowed(path, b->packages))
            continue;
        int auto_close in =
            openat(from, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (in < 0 || mkdirat(to, d->d_name, 0755) < 0)
            continue;
        int auto_close out = openat(to, d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = out < 0 ? err_sys(e, errno, "open %s", path) : copy_allowed(in, out, path, b, e);
    }
    (void)closedir(dir);
    return rc;
}

int
etc_copy(int from_etc, int to_etc, bool packages, struct err *e)
{
    struct budget b = {.packages = packages};
    int rc = copy_allowed(from_etc, to_etc, "", &b, e);
    return rc < 0 ? err_wrap(e, "copy from /etc") : 0;
}
