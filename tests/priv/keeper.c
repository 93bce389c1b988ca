// SPDX-License-Identifier: Apache-2.0
// stockade-keeper, ADOPT and UNSEAL through the real spawner: layers go to the state directory, and come back as they were, in clear and
// encrypted; damaged ones are found.
#include <sys/mman.h>

#include "proto/fdpass.h"
#include "server/keeper/keep.h"
#include "server/sandbox/spawn.h"
#include "tests/harness/folder.h"
#include "tests/harness/swaps.h"

static char folder[128];       // of layers
static struct sealed_key used; // without an id: layers are not sealed

static int
start_keeping(void **state)
{
    int r = start_core(state);
    (void)snprintf(folder, sizeof folder, "%s/stockade-test-%d-swap/" KEEP_FOLDER, test_folder(),
                   (int)getpid());
    return r;
}

static struct sealed_key
key_of(uint8_t tenant)
{
    struct sealed_key k;
    memset(k.id, tenant, sizeof k.id);
    memset(k.contents, tenant, sizeof k.contents);
    memset(k.names, tenant, sizeof k.names);
    return k;
}

static int
make_sealing_box(void **state)
{
    used = key_of(1);
    return make_box(state);
}

static int
remove_sealing_box(void **state)
{
    used = (struct sealed_key){0};
    return remove_box(state);
}

static bool
seals(void)
{
    return !sealed_id_is_none(used.id);
}

// ---- one keeper

static int
keeper_for(uint32_t layer)
{
    struct err e;
    struct wait w = {.called = 0};
    int r = layer != 0 ? spawn_keep(srv.spawn, box->slot, box->generation, layer, on_done, &w, &e)
                       : spawn_keeper(srv.spawn, on_done, &w, &e);
    assert_int_equal(r, 0);
    until(w.called > 0);
    if (w.reply.ok == 0)
        fail_msg("%s", w.reply.err.text);
    return w.fds[0];
}

static struct keep_answer
give(int fd, const struct keep_order *order, int list_fd)
{
    struct keep_answer a = {.ok = 0};
    const struct fdpass m = {(void *)(uintptr_t)order, sizeof *order, &list_fd, list_fd >= 0};
    assert_int_equal(fdpass_send(fd, &m, 0), 0);
    assert_int_equal(recv(fd, &a, sizeof a, 0), sizeof a);
    assert_true(readable(fd, BROKER_WAIT_MS)); // it has ended
    (void)close(fd);
    return a;
}

static struct keep_answer
put(uint32_t layer, uint64_t bytes_max)
{
    const struct keep_order o = {.op = KEEP_PUT, .bytes_max = bytes_max, .key = used};
    return give(keeper_for(layer), &o, -1);
}

static struct keep_answer
put_well(uint32_t layer)
{
    struct keep_answer a = put(layer, 1 << 30);
    if (a.ok == 0)
        fail_msg("%s", a.err.text);
    return a;
}

static struct keep_answer
with_digest(enum keep_op op, const struct keep_answer *of)
{
    struct keep_order o = {.op = op, .key = used};
    memcpy(o.digest, of->digest, sizeof o.digest);
    return give(keeper_for(0), &o, -1);
}

static void
path_of(const struct keep_answer *a, const char *more, char out[PATH_MAX])
{
    size_t n = (size_t)snprintf(out, PATH_MAX, "%s/", folder);
    for (size_t i = 0; i < SPAWN_DIGEST_BYTES; i++)
        n += (size_t)snprintf(out + n, 3, "%02x", a->digest[i]);
    (void)snprintf(out + n, PATH_MAX - n, "%s", more);
}

static struct keep_answer
sweep(const struct keep_answer *but)
{
    const struct keep_order o = {.op = KEEP_SWEEP};
    int list_fd = memfd_create("list", MFD_CLOEXEC);
    if (but != NULL)
        assert_int_equal(write(list_fd, but->digest, SPAWN_DIGEST_BYTES), SPAWN_DIGEST_BYTES);
    struct keep_answer a = give(keeper_for(0), &o, list_fd);
    (void)close(list_fd);
    assert_true(a.ok != 0);
    return a;
}

static unsigned
entries_of(const char *path)
{
    unsigned n = 0;
    DIR *d = opendir(path);
    for (const struct dirent *it = d == NULL ? NULL : readdir(d); it != NULL; it = readdir(d))
        n += it->d_name[0] != '.';
    if (d != NULL)
        (void)closedir(d);
    return n;
}

// ---- back into a sandbox

static struct spawn_reply
adopt(const struct keep_answer *a, uint32_t below)
{
    struct err e;
    struct wait w = {.called = 0};
    const struct spawn_kept kept = {below, a->digest};
    assert_int_equal(spawn_adopt(srv.spawn, box->slot, box->generation, &kept, on_done, &w, &e), 0);
    until(w.called > 0);
    return w.reply;
}

// UNSEAL, and what the keeper says.
static struct keep_answer
unseal(const struct keep_answer *a, uint32_t below, uint32_t *layer)
{
    struct err e;
    struct wait w = {.called = 0};
    struct keep_order o = {.op = KEEP_COPY, .bytes_max = UINT64_MAX, .key = used};
    const struct spawn_unsealing u = {below, a->digest, 32 << 20, 1000};
    memcpy(o.digest, a->digest, sizeof o.digest);
    assert_int_equal(spawn_unseal(srv.spawn, box->slot, box->generation, &u, on_done, &w, &e), 0);
    until(w.called > 0);
    if (w.reply.ok == 0)
        return (struct keep_answer){.err = w.reply.err};
    *layer = w.reply.layer;
    struct keep_answer answer = give(w.fds[0], &o, -1);
    const uint32_t layers[2] = {*layer, 0};
    w = (struct wait){.called = 0};
    if (answer.ok != 0)
        assert_int_equal(
            spawn_copied(srv.spawn, box->slot, box->generation, layers, on_done, &w, &e), 0);
    else
        assert_int_equal(spawn_drop(srv.spawn, box->slot, box->generation, *layer, on_done, &w, &e),
                         0);
    until(w.called > 0);
    assert_true(w.reply.ok != 0);
    return answer;
}

static uint32_t
adopt_well(const struct keep_answer *a, uint32_t below)
{
    uint32_t layer = 0;
    if (seals()) {
        struct keep_answer answer = unseal(a, below, &layer);
        if (answer.ok == 0)
            fail_msg("%s", answer.err.text);
        assert_memory_equal(answer.digest, a->digest, SPAWN_DIGEST_BYTES);
        return layer;
    }
    struct spawn_reply r = adopt(a, below);
    if (r.ok == 0)
        fail_msg("%s", r.err.text);
    return r.layer;
}

// Everything that a job can see of a tree but inode numbers and the sizes of folders.
static const char LOOK[] =
    "exec 2> /dev/null\n"
    "find . \\( -type d -printf '%p %y %m %U %G %T@ %n\\0' \\) -o"
    " -printf '%p %l %y %m %U %G %T@ %s %n\\0' | LC_ALL=C sort -z | tr '\\0' '\\n'\n"
    "find . -type f -exec cksum {} + | LC_ALL=C sort; true";

static void
same_as_before(const char *before)
{
    assert_int_equal(sh(LOOK), 0);
    assert_string_equal(text, before);
}

// ---- what is refused

static void
what_is_not_there_or_too_large_is_refused(void **state)
{
    (void)state;
    struct keep_answer none = {.ok = 0};
    assert_sh("head -c 100000 /dev/urandom > A", "");
    uint32_t layer = swap();
    struct keep_answer a = put(layer, 50000);
    assert_int_equal(a.ok, 0);
    assert_int_equal(a.err.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(a.err.reason, "KEPT_BYTES");
    assert_int_equal(entries_of(folder), 0);
    a = with_digest(KEEP_CHECK, &none);
    assert_int_equal(a.err.code, ERR_NOT_FOUND);
    assert_true(with_digest(KEEP_REMOVE, &none).ok != 0);
    struct spawn_reply r = adopt(&none, 0);
    assert_int_equal(r.err.code, ERR_NOT_FOUND);
    r = adopt(&none, 40);
    assert_int_equal(r.err.code, ERR_NOT_FOUND);
    const struct keep_order o = {.op = 9};
    a = give(keeper_for(0), &o, -1);
    assert_int_equal(a.err.code, ERR_INVALID_ARGUMENT);
    assert_sh("ls", "A\n");
}

static void
more_keepers_than_allowed_are_refused(void **state)
{
    (void)state;
    struct err e;
    int fd[SPAWN_KEEPERS_MAX];
    struct wait w = {.called = 0};
    for (size_t i = 0; i < SPAWN_KEEPERS_MAX; i++)
        fd[i] = keeper_for(0);
    assert_int_equal(spawn_keeper(srv.spawn, on_done, &w, &e), 0);
    until(w.called > 0);
    assert_int_equal(w.reply.err.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(w.reply.err.reason, "KEEPERS");
    for (size_t i = 0; i < SPAWN_KEEPERS_MAX; i++)
        (void)close(fd[i]);
    do {
        w.called = 0;
        assert_int_equal(spawn_keeper(srv.spawn, on_done, &w, &e), 0);
        until(w.called > 0);
    } while (w.reply.ok == 0);
    (void)close(w.fds[0]);
}

static void
each_flipped_bit_is_found(void **state)
{
    (void)state;
    static const char *const where[] = {"A", "d/S"};
    char path[PATH_MAX];
    assert_sh("echo abc > A; mkdir d; truncate -s 1000000 d/S; echo x >> d/S", "");
    struct keep_answer a = put_well(swap());
    assert_true(with_digest(KEEP_CHECK, &a).ok != 0);
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        char more[64], byte = 0;
        (void)snprintf(more, sizeof more, "/s/home/agent/%s", where[i]);
        path_of(&a, more, path);
        struct stat st;
        int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_int_equal(fstat(fd, &st), 0);
        const struct timespec times[2] = {st.st_mtim, st.st_mtim};
        for (unsigned bit = 0; bit < 2; bit++) { // there and back
            assert_int_equal(pread(fd, &byte, 1, 1), 1);
            byte = (char)(byte ^ 16);
            assert_int_equal(pwrite(fd, &byte, 1, 1), 1);
            assert_int_equal(futimens(fd, times), 0);
            struct keep_answer c = with_digest(KEEP_CHECK, &a);
            assert_int_equal(c.ok, bit);
            assert_true(bit == 1 || c.err.code == ERR_DATA_LOSS);
            assert_true(bit == 1 || strcmp(c.err.reason, "LAYER_DAMAGED") == 0);
        }
        (void)close(fd);
    }
    path_of(&a, "/s/home/agent/more", path); // and a file that is not the layer's
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    (void)close(fd);
    assert_int_equal(with_digest(KEEP_CHECK, &a).err.code, ERR_DATA_LOSS);
    assert_true(with_digest(KEEP_REMOVE, &a).ok != 0);
    assert_int_equal(entries_of(folder), 0);
}

static void
a_changed_cut_or_swapped_sealed_layer_is_refused(void **state)
{
    (void)state;
    char path[PATH_MAX], other[PATH_MAX];
    struct stat st;
    uint32_t layer = 0;
    assert_sh("head -c 200000 /dev/urandom > A", "");
    struct keep_answer a = put_well(swap());
    assert_sh("echo b > B", "");
    struct keep_answer b = put_well(swap());
    path_of(&a, "/sealed", path);
    path_of(&b, "/sealed", other);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    for (off_t at = 0; at < st.st_size; at += st.st_size / 23) {
        char byte = 0;
        for (unsigned bit = 0; bit < 2; bit++) { // there and back
            assert_int_equal(pread(fd, &byte, 1, at), 1);
            byte = (char)(byte ^ 64);
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
            struct keep_answer c = with_digest(KEEP_CHECK, &a);
            assert_int_equal(c.ok, bit);
            assert_true(bit == 1 || c.err.code == ERR_DATA_LOSS ||
                        strcmp(c.err.reason, "SEALED_NEWER") == 0);
        }
    }
    assert_int_equal(unseal(&a, 0, &layer).ok, 1);
    used = key_of(2); // of another tenant
    assert_string_equal(unseal(&a, 0, &layer).err.reason, "LAYER_DAMAGED");
    used = key_of(1);
    memset(used.contents, 2, sizeof used.contents); // which has the same number
    assert_string_equal(unseal(&a, 0, &layer).err.reason, "LAYER_DAMAGED");
    used = key_of(1);
    assert_int_equal(rename(other, path), 0); // of the same tenant
    assert_string_equal(unseal(&a, 0, &layer).err.reason, "LAYER_DAMAGED");
    assert_int_equal(unseal(&b, 0, &layer).err.code, ERR_NOT_FOUND);
    assert_int_equal(truncate(path, 100), 0);
    assert_string_equal(unseal(&a, 0, &layer).err.reason, "LAYER_DAMAGED");
    (void)close(fd);
    assert_sh("ls", "A\nB\n");
    assert_int_equal(sweep(NULL).removed, 2);
}

// A plain layer with a key, and a sealed one without.
static void
a_key_where_none_belongs_is_refused(void **state)
{
    (void)state;
    uint32_t layer = 0;
    assert_sh("echo a > A", "");
    struct keep_answer plain = put_well(swap());
    used = key_of(1);
    assert_int_equal(with_digest(KEEP_CHECK, &plain).err.code, ERR_NOT_FOUND);
    assert_int_equal(unseal(&plain, 0, &layer).err.code, ERR_NOT_FOUND);
    struct keep_answer sealed = put_well(1);
    assert_memory_not_equal(sealed.digest, plain.digest, SPAWN_DIGEST_BYTES);
    used = (struct sealed_key){0};
    assert_int_equal(with_digest(KEEP_CHECK, &sealed).ok, 0);
    assert_int_equal(unseal(&sealed, 0, &layer).err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(sweep(NULL).removed, 2);
}

static void
two_keys_make_different_digests_of_the_same_files(void **state)
{
    (void)state;
    assert_sh("echo a > A", "");
    struct keep_answer one = put_well(swap());
    assert_int_equal(put_well(1).known, 1);
    used = key_of(2);
    struct keep_answer two = put_well(1);
    assert_int_equal(two.known, 0);
    assert_memory_not_equal(one.digest, two.digest, SPAWN_DIGEST_BYTES);
    assert_int_equal(sweep(NULL).removed, 2);
}

// ---- what comes back

static void
hostile_files_come_back_as_they_were(void **state)
{
    (void)state;
    char *before = NULL;
    assert_sh(
        "mkdir -p d/e; echo x > d/e/x; chmod 4755 d/e/x; ln d/e/x hard; ln -s /etc/shadow ln\n"
        "mkfifo fifo; printf 'n' > \"$(printf 'a\\nb\\377')\"; truncate -s 5M big\n"
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'\n"
        "touch -d '1950-01-01' old; touch -d '2400-01-01' new; mkdir closed; chmod 0 closed\n"
        "chmod 3777 d; head -c 70000 /dev/urandom > r; chmod 000 r 2>&1; echo t > /tmp/T; "
        "echo s > /dev/shm/S",
        "");
    assert_int_equal(sh(LOOK), 0);
    before = strdup(text);
    struct keep_answer a = put_well(swap());
    assert_true(a.entries > 15 && a.bytes < (1 << 20)); // holes count nothing
    assert_true(with_digest(KEEP_CHECK, &a).ok != 0);
    char path[PATH_MAX];
    struct stat st;
    path_of(&a, seals() ? "/sealed" : "/s/home/agent/r", path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, seals() ? 0 : KEEP_ID_BASE + SANDBOX_UID_JOB);
    struct sandbox *first = box;
    (void)make_box(NULL);
    restore(adopt_well(&a, 0));
    same_as_before(before);
    assert_sh("cat /tmp/T /dev/shm/S hard; rm -rf d; ls", "t\ns\nx\na\nb\377\nbig\nclosed\n"
                                                          "fifo\nhard\nln\nnew\nold\nr\nsock\n");
    free(before);
    forget_box(first);
    assert_true(with_digest(KEEP_REMOVE, &a).ok != 0);
}

// Whiteouts and opaque marks of an upper layer, over a layer that is kept, too.
static void
removed_files_and_replaced_folders_stay_so(void **state)
{
    (void)state;
    assert_sh("mkdir d o; echo 1 > d/a; echo 2 > d/b; echo 3 > o/c; echo 4 > gone", "");
    uint32_t one = swap();
    assert_sh("rm d/a gone; rm -r o; mkdir o; echo 5 > o/new", "");
    uint32_t two = swap();
    struct keep_answer low = put_well(one);
    struct keep_answer high = put_well(two);
    struct sandbox *first = box;
    (void)make_box(NULL);
    struct sandbox *second = box;
    restore(adopt_well(&high, adopt_well(&low, 0)));
    assert_sh("ls d o; ls; cat o/new", "d:\nb\n\no:\nnew\nd\no\n5\n");
    assert_sh("echo 6 > o/more", "");
    uint32_t third = swap(); // and on, over kept layers
    struct keep_answer again = put_well(2);
    assert_int_equal(again.known, 1); // the same layer, from another sandbox
    assert_memory_equal(again.digest, high.digest, SPAWN_DIGEST_BYTES);
    if (can_fork()) {
        struct sandbox *fork = fork_of(box, third);
        assert_sh("ls o; cat d/b; stat -c %u d/b", "more\nnew\n2\n1000\n");
        forget_box(fork);
    } else {
        (void)puts("no fork of it: this kernel cannot share files in memory between sandboxes");
    }
    forget_box(first);
    box = second;
    assert_int_equal(sweep(&high).removed, 1);
    assert_true(with_digest(KEEP_CHECK, &high).ok != 0);
    assert_int_equal(sweep(NULL).removed, 1);
    assert_int_equal(entries_of(folder), 0);
}

static void
the_same_tree_has_the_same_digest_and_another_has_not(void **state)
{
    (void)state;
    assert_sh("echo a > A", "");
    struct keep_answer a = put_well(swap());
    struct keep_answer b = put_well(1);
    assert_int_equal(b.known, 1);
    assert_memory_equal(a.digest, b.digest, SPAWN_DIGEST_BYTES);
    assert_int_equal(entries_of(folder), 1);
    assert_sh("chmod 600 A", "");
    struct keep_answer c = put_well(swap());
    assert_memory_not_equal(a.digest, c.digest, SPAWN_DIGEST_BYTES);
    assert_int_equal(sweep(NULL).removed, 2);
}

static void
a_deep_tree_is_kept_and_removed_and_a_deeper_one_refused(void **state)
{
    (void)state;
    static const char deep[] = "python3 -c 'import os\nfor i in range(%d): os.mkdir(\"d\"); "
                               "os.chdir(\"d\")'";
    char script[200];
    (void)snprintf(script, sizeof script, deep, 300);
    assert_sh(script, "");
    struct keep_answer a = put_well(swap());
    assert_true(with_digest(KEEP_CHECK, &a).ok != 0);
    assert_int_equal(sweep(NULL).removed, 1);
}

int
main(void)
{
#define TAKEN(name) cmocka_unit_test_setup_teardown(name, make_box, remove_box)
#define SEALED(name)                                                                               \
    {                                                                                              \
#name ": sealed", name, make_sealing_box, remove_sealing_box, NULL                         \
    }
    const struct CMUnitTest tests[] = {
        TAKEN(what_is_not_there_or_too_large_is_refused),
        TAKEN(more_keepers_than_allowed_are_refused),
        TAKEN(each_flipped_bit_is_found),
        SEALED(what_is_not_there_or_too_large_is_refused),
        SEALED(a_changed_cut_or_swapped_sealed_layer_is_refused),
        TAKEN(a_key_where_none_belongs_is_refused),
        SEALED(two_keys_make_different_digests_of_the_same_files),
        SEALED(hostile_files_come_back_as_they_were),
        SEALED(removed_files_and_replaced_folders_stay_so),
        SEALED(the_same_tree_has_the_same_digest_and_another_has_not),
        SEALED(a_deep_tree_is_kept_and_removed_and_a_deeper_one_refused),
        TAKEN(hostile_files_come_back_as_they_were),
        TAKEN(removed_files_and_replaced_folders_stay_so),
        TAKEN(the_same_tree_has_the_same_digest_and_another_has_not),
        TAKEN(a_deep_tree_is_kept_and_removed_and_a_deeper_one_refused),
    };
    return cmocka_run_group_tests(tests, start_keeping, stop_core);
}
