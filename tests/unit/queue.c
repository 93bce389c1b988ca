// SPDX-License-Identifier: Apache-2.0
// client/exporter/queue.c: records on disk: what a restart, damage, a full queue and a full disk leave.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/exporter/queue.h"

enum { MIB = 1024 * 1024, RECORD = 1000 };

struct place {
    char folder[64];
    struct queue *q;
};

static struct queue *
opened(struct place *p)
{
    struct err e = {0};
    p->q = queue_open(p->folder, MIB, &e);
    if (p->q == NULL)
        fail_msg("%s", e.text);
    return p->q;
}

static int
set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    (void)snprintf(p->folder, sizeof p->folder, "/tmp/queue-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    (void)opened(p);
    *state = p;
    return 0;
}

static int
tear_down(void **state)
{
    struct place *p = *state;
    char path[400];
    queue_close(p->q);
    DIR *d = opendir(p->folder);
    assert_non_null(d);
    for (const struct dirent *it = NULL; (it = readdir(d)) != NULL;) {
        (void)snprintf(path, sizeof path, "%s/%s", p->folder, it->d_name);
        (void)unlink(path);
    }
    (void)closedir(d);
    (void)rmdir(p->folder);
    free(p);
    return 0;
}

static struct queue *
again(struct place *p)
{
    queue_close(p->q);
    return opened(p);
}

// A record that begins with its number.
static int
put(struct queue *q, unsigned number)
{
    char bytes[RECORD];
    memset(bytes, 'x', sizeof bytes);
    (void)snprintf(bytes, sizeof bytes, "%u", number);
    return queue_put(q, bytes, sizeof bytes, (int64_t)number + 1);
}

// Takes at most `n` records, checks that they are numbered from *next on, and returns how many came.
static size_t
take(struct queue *q, size_t n, unsigned *next)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    size_t got = queue_take(q, n, SIZE_MAX / 2, &bytes, &size);
    assert_int_equal(size, got * RECORD);
    for (size_t i = 0; i < got; i++)
        assert_int_equal(strtoul((const char *)bytes + i * RECORD, NULL, 10), (*next)++);
    free(bytes);
    return got;
}

static void
deliver_all(struct queue *q, unsigned *next)
{
    while (take(q, 7, next) > 0)
        queue_done(q);
    assert_int_equal(queue_numbers(q)->records, 0);
    assert_int_equal(queue_numbers(q)->bytes, 0);
    assert_int_equal(queue_numbers(q)->oldest_ns, 0);
}

static void
path_of(const struct place *p, const char *name, char path[128])
{
    (void)snprintf(path, 128, "%s/%s", p->folder, name);
}

static void
records_of_an_unfit_size_are_refused(void **state)
{
    struct place *p = *state;
    uint8_t *big = calloc(1, QUEUE_RECORD_MAX + 1);
    assert_non_null(big);
    assert_int_equal(queue_put(p->q, big, 0, 1), -EMSGSIZE);
    assert_int_equal(queue_put(p->q, big, QUEUE_RECORD_MAX + 1, 1), -EMSGSIZE);
    assert_int_equal(queue_numbers(p->q)->accepted, 0);
    free(big);
}

static void
a_second_process_is_refused(void **state)
{
    struct place *p = *state;
    struct err e = {0};
    assert_null(queue_open(p->folder, MIB, &e));
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
}

static void
a_link_in_place_of_the_folder_or_of_a_segment_is_not_followed(void **state)
{
    struct place *p = *state;
    struct err e = {0};
    char link[128], target[128];
    path_of(p, "link", link);
    path_of(p, "target", target);
    assert_int_equal(symlink("/tmp", link), 0);
    assert_null(queue_open(link, MIB, &e));
    assert_int_equal(unlink(link), 0);
    path_of(p, "0000000000000001.q", link);
    assert_int_equal(symlink(target, link), 0);
    assert_true(put(p->q, 0) < 0);
    assert_int_equal(access(target, F_OK), -1);
    assert_int_equal(queue_numbers(p->q)->failed, 1);
}

static void
records_come_out_in_order_and_again_until_they_are_done(void **state)
{
    struct place *p = *state;
    unsigned next = 0;
    for (unsigned i = 0; i < 300; i++)
        assert_int_equal(put(p->q, i), 0);
    assert_int_equal(queue_numbers(p->q)->records, 300);
    assert_int_equal(queue_numbers(p->q)->oldest_ns, 1);
    assert_int_equal(take(p->q, 5, &next), 5);
    queue_again(p->q);
    next = 0;
    assert_int_equal(take(p->q, 5, &next), 5);
    queue_done(p->q);
    assert_int_equal(queue_numbers(p->q)->records, 295);
    assert_int_equal(queue_numbers(p->q)->oldest_ns, 6);
    deliver_all(p->q, &next);
    assert_int_equal(next, 300);
}

static void
a_start_after_kill_begins_with_what_was_not_done(void **state)
{
    struct place *p = *state;
    unsigned next = 0;
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(put(p->q, i), 0);
    assert_int_equal(take(p->q, 40, &next), 32); // of the first segment
    queue_done(p->q);
    (void)take(p->q, 3, &next); // under way
    struct queue *q = again(p);
    next = 32;
    assert_int_equal(queue_numbers(q)->records, 68);
    assert_int_equal(put(q, 100), 0);
    deliver_all(q, &next);
    assert_int_equal(next, 101);
    q = again(p);
    assert_int_equal(queue_numbers(q)->records, 0);
    assert_int_equal(put(q, 101), 0);
    deliver_all(again(p), &next);
    assert_int_equal(next, 102);
}

static void
a_full_queue_drops_the_oldest_and_counts_each(void **state)
{
    struct place *p = *state;
    unsigned next = 0;
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(put(p->q, i), 0);
    const struct queue_numbers *n = queue_numbers(p->q);
    assert_true(n->bytes <= MIB && n->bytes > MIB - MIB / QUEUE_SEGMENTS - 2 * RECORD);
    assert_int_equal(n->dropped + n->records, 5000);
    next = (unsigned)n->dropped;
    deliver_all(p->q, &next);
    assert_int_equal(next, 5000);
}

// They may have arrived, so they are counted as dropped only when they are taken back.
static void
records_under_way_survive_the_drop_of_their_segment(void **state)
{
    struct place *p = *state;
    for (unsigned back = 0; back < 2; back++) {
        unsigned next = 0, i = 0;
        const uint64_t dropped = queue_numbers(p->q)->dropped;
        for (; i < 100; i++)
            assert_int_equal(put(p->q, i), 0);
        const uint64_t taken = take(p->q, 8, &next);
        for (; i < 3000; i++)
            assert_int_equal(put(p->q, i), 0);
        const struct queue_numbers *n = queue_numbers(p->q);
        assert_int_equal(n->dropped - dropped + n->records, 3000);
        if (back != 0)
            queue_again(p->q);
        else
            queue_done(p->q);
        assert_int_equal(n->dropped - dropped + n->records, back != 0 ? 3000 : 3000 - taken);
        next = 3000 - (unsigned)n->records;
        deliver_all(p->q, &next);
    }
}

static void
damage(struct place *p, const char *name, off_t at, bool cut)
{
    char path[128];
    path_of(p, name, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    if (cut)
        assert_int_equal(ftruncate(fd, at), 0);
    else
        assert_int_equal(pwrite(fd, "\xff\xff\xff", 3, at), 3);
    (void)close(fd);
}

static void
half_a_record_is_removed_and_what_follows_is_whole(void **state)
{
    struct place *p = *state;
    unsigned next = 0;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(put(p->q, i), 0);
    queue_close(p->q);
    damage(p, "0000000000000001.q", 2 * (RECORD + 16) + 500, true);
    struct queue *q = opened(p);
    assert_int_equal(queue_numbers(q)->records, 2);
    assert_int_equal(queue_numbers(q)->damaged, 0); // it was not finished
    assert_int_equal(put(q, 2), 0);
    deliver_all(q, &next);
    assert_int_equal(next, 3);
}

static void
damage_inside_a_segment_ends_it_and_not_the_queue(void **state)
{
    struct place *p = *state;
    unsigned next = 0;
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(put(p->q, i), 0);
    damage(p, "0000000000000001.q", 10 * (RECORD + 16) + 100, false); // while it is open
    assert_int_equal(take(p->q, 99, &next), 10);
    queue_done(p->q);
    const struct queue_numbers *n = queue_numbers(p->q);
    assert_int_equal(n->damaged, 1);
    assert_int_equal(n->dropped + n->records, 30);
    next = 10 + (unsigned)n->dropped;
    deliver_all(p->q, &next);
    assert_int_equal(next, 40);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(put(p->q, 40 + i), 0);
    damage(p, "0000000000000002.q", 8 * (RECORD + 16) + 100, false);
    assert_int_equal(take(p->q, 99, &next), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(put(p->q, 43 + i), 0);
    next = 43;
    deliver_all(p->q, &next);
    assert_int_equal(next, 46);
}

static void
rubbish_in_the_folder_harms_nothing(void **state)
{
    struct place *p = *state;
    static const char *const names[] = {"0000000000000009.q", "zzz", "0.q", "done"};
    unsigned next = 0;
    queue_close(p->q);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        path_of(p, names[i], path);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        for (unsigned k = 0; k < 100; k++)
            assert_int_equal(write(fd, "ffffffffffffffffffffffff rubbish\n", 33), 33);
        (void)close(fd);
    }
    struct queue *q = opened(p);
    assert_int_equal(queue_numbers(q)->records, 0);
    assert_int_equal(put(q, 0), 0);
    deliver_all(q, &next);
    assert_int_equal(next, 1);
}

// RLIMIT_FSIZE stands for it: the last write is short or fails.
static void
a_full_disk_refuses_a_record_and_recovers(void **state)
{
    struct place *p = *state;
    struct rlimit old;
    unsigned next = 0;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit small = {5 * (RECORD + 16) + 300, old.rlim_max};
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    unsigned i = 0;
    while (i < 100 && put(p->q, i) == 0)
        i++;
    assert_int_equal(i, 5);
    assert_true(put(p->q, i) < 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, before);
    assert_int_equal(queue_numbers(p->q)->failed, 2);
    assert_int_equal(queue_numbers(p->q)->records, 5);
    for (; i < 10; i++)
        assert_int_equal(put(p->q, i), 0);
    deliver_all(again(p), &next);
    assert_int_equal(next, 10);
}

// All that was delivered is in the segment that is written to.
static void
a_full_disk_empties_when_everything_was_delivered(void **state)
{
    struct place *p = *state;
    struct rlimit old;
    unsigned next = 0, i = 0;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit small = {5 * (RECORD + 16) + 300, old.rlim_max};
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (unsigned round = 0; round < 3; round++) {
        while (put(p->q, i) == 0)
            i++;
        assert_int_equal(i, 5 * (round + 1));
        deliver_all(p->q, &next);
        assert_int_equal(next, i);
    }
    assert_int_equal(put(p->q, i), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, before);
    deliver_all(again(p), &next);
    assert_int_equal(next, 16);
}

// A process that is killed while it writes, at any moment: all records up to some number are there, each whole.
static void
kill_at_any_moment_leaves_whole_records(void **state)
{
    struct place *p = *state;
    queue_close(p->q);
    p->q = NULL;
    for (unsigned round = 0; round < 20; round++) {
        int ends[2] = {-1, -1};
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) {
            struct err e;
            struct queue *q = queue_open(p->folder, MIB, &e);
            uint8_t *bytes = NULL;
            size_t n = 0;
            while (q != NULL && queue_take(q, 100, MIB, &bytes, &n) > 0)
                queue_done(q);
            for (unsigned i = 0; q != NULL && put(q, i) == 0; i++)
                (void)!write(ends[1], "x", 1);
            _exit(1);
        }
        (void)close(ends[1]);
        char seen[400];
        size_t heard = 0;
        while (heard < 10 + (size_t)round * 17) {
            ssize_t got = read(ends[0], seen, 1);
            assert_int_equal(got, 1);
            heard++;
        }
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        for (ssize_t got = 0; (got = read(ends[0], seen, sizeof seen)) > 0;)
            heard += (size_t)got;
        (void)close(ends[0]);
        struct queue *q = opened(p);
        const struct queue_numbers *n = queue_numbers(q);
        assert_true(n->damaged == 0 && n->records > 0);
        if (heard < 900) // none was dropped
            assert_true(n->records >= heard && n->records <= heard + 1);
        queue_close(q);
        p->q = NULL;
    }
    (void)opened(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_of_an_unfit_size_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_second_process_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_link_in_place_of_the_folder_or_of_a_segment_is_not_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(records_come_out_in_order_and_again_until_they_are_done,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_start_after_kill_begins_with_what_was_not_done, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_full_queue_drops_the_oldest_and_counts_each, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(records_under_way_survive_the_drop_of_their_segment, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(half_a_record_is_removed_and_what_follows_is_whole, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(damage_inside_a_segment_ends_it_and_not_the_queue, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(rubbish_in_the_folder_harms_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_empties_when_everything_was_delivered, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_refuses_a_record_and_recovers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(kill_at_any_moment_leaves_whole_records, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
