// SPDX-License-Identifier: Apache-2.0
// See vault_box.h.
#include "vault_box.h"

#include <errno.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct vault_box vault_box;

int
vault_box_set_up(void **unused)
{
    (void)unused;
    (void)snprintf(vault_box.folder, sizeof vault_box.folder, "/tmp/stockade-vault-XXXXXX");
    return mkdtemp(vault_box.folder) != NULL ? 0 : -1;
}

const char *
vault_box_path_of(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", vault_box.folder, name);
    return path;
}

int
vault_box_tear_down(void **unused)
{
    static const char *const names[] = {"stockade.db", "stockade.db-wal", "stockade.db-journal"};
    (void)unused;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(vault_box_path_of(names[i]));
    return rmdir(vault_box.folder);
}

static uint8_t *
master(uint8_t byte)
{
    uint8_t *key = byte != 0 ? sodium_malloc(VAULT_MASTER) : NULL;
    if (key != NULL)
        memset(key, byte, VAULT_MASTER);
    return key;
}

// With the master key of these bytes; 0: none.
int
vault_box_begin(uint8_t byte, struct err *e)
{
    assert_int_equal(state_open(vault_box.folder, &vault_box.state, e), 0);
    int r = vault_open(vault_box.state, master(byte), &vault_box.vault, e);
    if (r < 0) {
        state_close(vault_box.state);
        vault_box.state = NULL;
    }
    return r;
}

static void
never(uv_timer_t *t)
{
    (void)t;
}

void
vault_box_start(uint8_t byte)
{
    struct err e;
    assert_int_equal(vault_box_begin(byte, &e), 0);
    assert_int_equal(uv_loop_init(&vault_box.loop), 0);
    assert_int_equal(state_start(vault_box.state, &vault_box.loop, &e), 0);
    assert_int_equal(uv_timer_init(&vault_box.loop, &vault_box.alive), 0);
    assert_int_equal(uv_timer_start(&vault_box.alive, never, 3600000, 0), 0);
}

void
vault_box_stop(void)
{
    state_close(vault_box.state);
    uv_close((uv_handle_t *)&vault_box.alive, NULL);
    (void)uv_run(&vault_box.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&vault_box.loop), 0);
    vault_free(vault_box.vault);
    vault_box.state = NULL;
    vault_box.vault = NULL;
}

void
vault_box_close_only(void)
{
    state_close(vault_box.state);
    vault_free(vault_box.vault);
    vault_box.state = NULL;
    vault_box.vault = NULL;
}

void
vault_box_on_done(void *cookie, const struct err *e)
{
    struct err *out = cookie;
    if (e != NULL)
        *out = *e;
    else
        out->code = ERR_OK;
}

void
vault_box_wait_for(const struct err *e)
{
    while (e->code == ERR_UNKNOWN)
        (void)uv_run(&vault_box.loop, UV_RUN_ONCE);
    assert_int_equal(e->code, ERR_OK);
}
