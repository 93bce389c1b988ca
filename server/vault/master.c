// SPDX-License-Identifier: Apache-2.0
// See vault.h: vault_read_master(). As root, because nobody else should be able to read the file.
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "vault.h"

#define HOW "make one with: (umask 077; head -c 32 /dev/urandom > FILE)"

static int
refuse(struct err *e, const char *path, const char *what)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "the key of encryption, %s, %s", path, what);
    err_detail(e, "ENCRYPTION_KEY", "encryption", HOW);
    return r;
}

static int
find_path(const struct vault_settings *s, char *path, size_t room, struct err *e)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    if (s->key_file[0] != '\0') {
        (void)snprintf(path, room, "%s", s->key_file);
        return 0;
    }
    if (folder == NULL || folder[0] != '/') {
        int r = err_set(e, ERR_FAILED_PRECONDITION,
                        "encryption.credential is set, and CREDENTIALS_DIRECTORY is not");
        err_detail(e, "ENCRYPTION_KEY", "encryption.credential",
                   "set LoadCredentialEncrypted= in the unit (systemd.exec(5))");
        return r;
    }
    (void)snprintf(path, room, "%s/%s", folder, s->credential);
    return 0;
}

// systemd gives its credentials the mode 0440 and an access control list.
static int
check_file(const struct vault_settings *s, const char *path, int fd, struct err *e)
{
    struct stat st;
    const mode_t others = s->key_file[0] != '\0' ? 077 : 037;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size != VAULT_MASTER)
        return refuse(e, path, "is not a file of 32 bytes");
    if (st.st_uid != 0)
        return refuse(e, path, "does not belong to root");
    return (st.st_mode & others) != 0 ? refuse(e, path, "can be read by others: chmod 0400") : 0;
}

int
vault_read_master(const struct vault_settings *s, uint8_t **master, struct err *e)
{
    char path[512];
    *master = NULL;
    if (s->key_file[0] == '\0' && s->credential[0] == '\0')
        return 0;
    int r = find_path(s, path, sizeof path, e);
    if (r < 0)
        return r;
    int auto_close fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT  ? refuse(e, path, "does not exist")
               : errno == ELOOP ? refuse(e, path, "is a symbolic link")
                                : err_sys(e, errno, "open %s", path);
    r = check_file(s, path, fd, e);
    if (r < 0)
        return r;
    uint8_t *key = sodium_malloc(VAULT_MASTER); // locked in memory, and left out of core dumps
    if (key == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    if (pread(fd, key, VAULT_MASTER, 0) != VAULT_MASTER)
        r = err_sys(e, EIO, "read %s", path);
    else if (sodium_is_zero(key, VAULT_MASTER) == 1)
        r = refuse(e, path, "has nothing but zeros");
    if (r < 0)
        sodium_free(key);
    else
        *master = key;
    return r;
}
