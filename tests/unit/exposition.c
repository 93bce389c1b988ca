// SPDX-License-Identifier: Apache-2.0
// client/exposition.c: metrics as text of both formats; client/exporter/accept.c: which one a client wants.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/exporter/accept.h"
#include "client/exposition.h"

static const char *const by_code[] = {"code"};
static const char *const strange[] = {"a\"b\\c\n\x7f\xc2\x9b\xc3\xa4"};

static char *
write_one(const struct stockade_metric *m, const struct exposition_options *o)
{
    char *text = NULL;
    size_t n = 0;
    const struct stockade_metrics all = {m, 1};
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    exposition_write(to, &all, o);
    exposition_end(to, o->form);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void
assert_text(const struct stockade_metric *m, const struct exposition_options *o, const char *wanted)
{
    char *text = write_one(m, o);
    assert_string_equal(text, wanted);
    free(text);
}

static void
a_family_of_openmetrics_has_no_total_and_a_unit(void **state)
{
    (void)state;
    const struct stockade_metric_sample s = {.value = 7};
    const struct stockade_metric m = {.name = "x_bytes_total",
                                      .help = "Bytes.",
                                      .unit = "bytes",
                                      .type = STOCKADE_METRIC_COUNTER,
                                      .samples = &s,
                                      .samples_n = 1};
    const struct exposition_options text = {.form = EXPOSITION_TEXT};
    const struct exposition_options open = {.form = EXPOSITION_OPENMETRICS};
    assert_text(&m, &text,
                "# HELP x_bytes_total Bytes.\n# TYPE x_bytes_total counter\nx_bytes_total 7\n");
    assert_text(&m, &open,
                "# HELP x_bytes Bytes.\n# TYPE x_bytes counter\n# UNIT x_bytes bytes\n"
                "x_bytes_total 7\n# EOF\n");
}

// A line break in a label would be another sample; a control character would reach a terminal.
static void
hostile_labels_and_names_stay_on_their_line(void **state)
{
    (void)state;
    const struct stockade_metric_sample s = {.labels = strange, .labels_n = 1, .value = 0.5};
    const struct stockade_metric m = {.name = "x y\n",
                                      .help = "a\nb \\ \"c\"",
                                      .unit = "",
                                      .type = STOCKADE_METRIC_GAUGE,
                                      .labels = by_code,
                                      .labels_n = 1,
                                      .samples = &s,
                                      .samples_n = 1};
    const struct exposition_options text = {.form = EXPOSITION_TEXT};
    assert_text(&m, &text,
                "# HELP x_y_ a?b \\\\ \"c\"\n# TYPE x_y_ gauge\n"
                "x_y_{code=\"a\\\"b\\\\c???\xc3\xa4\"} 0.5\n");
}

static const struct exposition_exemplar *
first_bucket(void *cookie, const struct stockade_metric *m, size_t bucket)
{
    (void)m;
    return bucket == 0 ? cookie : NULL;
}

static void
a_histogram_adds_up_and_its_exemplars_are_openmetrics_alone(void **state)
{
    (void)state;
    const double bounds[] = {0.5, 1};
    const uint64_t buckets[] = {2, 0, 3};
    const struct stockade_metric_sample s = {
        .count = 5, .sum = 9.5, .buckets = buckets, .buckets_n = 3};
    const struct stockade_metric m = {.name = "h_seconds",
                                      .help = "H.",
                                      .unit = "seconds",
                                      .type = STOCKADE_METRIC_HISTOGRAM,
                                      .bounds = bounds,
                                      .bounds_n = 2,
                                      .samples = &s,
                                      .samples_n = 1};
    struct exposition_exemplar e = {"0af7", 0.25, 1700000000.5};
    struct exposition_options o = {.form = EXPOSITION_TEXT, .exemplar = first_bucket, .cookie = &e};
    assert_text(&m, &o,
                "# HELP h_seconds H.\n# TYPE h_seconds histogram\n"
                "h_seconds_bucket{le=\"0.5\"} 2\nh_seconds_bucket{le=\"1\"} 2\n"
                "h_seconds_bucket{le=\"+Inf\"} 5\nh_seconds_sum 9.5\nh_seconds_count 5\n");
    o.form = EXPOSITION_OPENMETRICS;
    assert_text(&m, &o,
                "# HELP h_seconds H.\n# TYPE h_seconds histogram\n# UNIT h_seconds seconds\n"
                "h_seconds_bucket{le=\"0.5\"} 2 # {trace_id=\"0af7\"} 0.25 1700000000.500\n"
                "h_seconds_bucket{le=\"1.0\"} 2\nh_seconds_bucket{le=\"+Inf\"} 5\n"
                "h_seconds_sum 9.5\nh_seconds_count 5\n# EOF\n");
}

static void
a_client_gets_openmetrics_only_if_it_prefers_it(void **state)
{
    static const char *const plain[] = {
        "",
        "*/*",
        "text/plain",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=1.5",
        "application/openmetrics-text;q=0.1234",
        "application/openmetrics-text;q=",
        "application/openmetrics-textual",
        "application/openmetrics-text;q=0.5,text/plain;q=0.6",
        ",;,=;q=1,\t,",
        "application/openmetrics-tex",
    };
    static const char *const open[] = {
        "application/openmetrics-text",
        "APPLICATION/OpenMetrics-Text ; Version=1.0.0 ; Q=0.001",
        "text/plain;q=0.5, application/openmetrics-text;version=1.0.0;q=0.5",
        "application/openmetrics-text;version=1.0.0;charset=utf-8",
        "application/openmetrics-text;version=9, application/openmetrics-text;version=1.0.0",
    };
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        assert_int_equal(accept_form(plain[i]), EXPOSITION_TEXT);
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        assert_int_equal(accept_form(open[i]), EXPOSITION_OPENMETRICS);
}

#define TEST(name) cmocka_unit_test(name)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_family_of_openmetrics_has_no_total_and_a_unit),
        TEST(hostile_labels_and_names_stay_on_their_line),
        TEST(a_histogram_adds_up_and_its_exemplars_are_openmetrics_alone),
        TEST(a_client_gets_openmetrics_only_if_it_prefers_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
