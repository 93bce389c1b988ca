// SPDX-License-Identifier: Apache-2.0
// See post.h. libcurl says which sockets to poll and when it must be called at the latest (curl_multi_socket_action(3)).
#include "post.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <zlib.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "headers_file.h"

enum { CONNECT_MS_MAX = 10000, DAY_S = 86400, GZIP_WINDOW = 15 + 16, GZIP_MEMORY = 8 };

struct poster {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    bool closing;
};

// A socket that libcurl has polled. Freed when its handle is closed.
struct socket {
    uv_poll_t poll;
    struct poster *all;
    curl_socket_t fd;
};

struct post {
    struct poster *all;
    CURL *easy;
    struct curl_slist *headers;      // of every request
    struct curl_slist *once_headers; // of this one: with those of every request
    bool gzip, busy;
    void (*done)(void *cookie, const struct post_result *r);
    void *cookie;
    uint8_t *request;
    uint8_t response[POST_RESPONSE_MAX];
    size_t response_n;
    uint64_t wait_ms;
    char error[CURL_ERROR_SIZE];
};

// ---- The loop

static bool
is_final(CURLcode code)
{
    return code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
           code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_CACERT_BADFILE;
}

static void
finish(struct post *p, CURLcode code)
{
    long status = 0;
    struct post_result r = {.wait_ms = p->wait_ms, .body = p->response, .n = p->response_n};
    if (code == CURLE_OK && curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK)
        r.status = (unsigned)status;
    if (r.status == 0) {
        r.error = p->error[0] != '\0' ? p->error : curl_easy_strerror(code);
        r.final = is_final(code);
    }
    (void)curl_multi_remove_handle(p->all->multi, p->easy);
    p->busy = false;
    free(take_ptr(p->request));
    p->done(p->cookie, &r);
}

static void
look_for_ends(struct poster *all)
{
    int left = 0;
    const CURLMsg *m = NULL;
    while (!all->closing && (m = curl_multi_info_read(all->multi, &left)) != NULL) {
        char *p = NULL;
        if (m->msg == CURLMSG_DONE &&
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &p) == CURLE_OK)
            finish((struct post *)(void *)p, m->data.result);
    }
}

static void
act(struct poster *all, curl_socket_t fd, int events)
{
    int running = 0;
    if (all->closing)
        return;
    (void)curl_multi_socket_action(all->multi, fd, events, &running);
    look_for_ends(all);
}

static void
on_ready(uv_poll_t *poll, int status, int events)
{
    const struct socket *s = poll->data;
    int what = (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
               (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0) | (status < 0 ? CURL_CSELECT_ERR : 0);
    act(s->all, s->fd, what);
}

static void
on_time(uv_timer_t *timer)
{
    act(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static void
on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static struct socket *
socket_new(struct poster *all, curl_socket_t fd)
{
    struct socket *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->all = all;
    s->fd = fd;
    if (uv_poll_init_socket(all->loop, &s->poll, fd) < 0) {
        free(s);
        return NULL;
    }
    s->poll.data = s;
    (void)curl_multi_assign(all->multi, fd, s);
    return s;
}

static int
want_socket(CURL *easy, curl_socket_t fd, int what, void *poster, void *known)
{
    struct poster *all = poster;
    struct socket *s = known;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s != NULL)
            uv_close((uv_handle_t *)&s->poll, on_closed);
        (void)curl_multi_assign(all->multi, fd, NULL);
        return 0;
    }
    if (s == NULL)
        s = socket_new(all, fd);
    if (s == NULL)
        return -1;
    int events =
        (what != CURL_POLL_OUT ? UV_READABLE : 0) | (what != CURL_POLL_IN ? UV_WRITABLE : 0);
    return uv_poll_start(&s->poll, events, on_ready);
}

static int
want_time(CURLM *multi, long ms, void *poster)
{
    struct poster *all = poster;
    (void)multi;
    if (ms < 0)
        return uv_timer_stop(&all->timer);
    return uv_timer_start(&all->timer, on_time, (uint64_t)ms, 0);
}

struct poster *
poster_new(uv_loop_t *loop, struct err *e)
{
    struct poster *all = calloc(1, sizeof *all);
    if (all != NULL && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        all->multi = curl_multi_init();
    if (all == NULL || all->multi == NULL || uv_timer_init(loop, &all->timer) < 0) {
        (void)err_set(e, ERR_INTERNAL, "libcurl does not start");
        free(all);
        return NULL;
    }
    all->loop = loop;
    all->timer.data = all;
    (void)curl_multi_setopt(all->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    (void)curl_multi_setopt(all->multi, CURLMOPT_SOCKETDATA, all);
    (void)curl_multi_setopt(all->multi, CURLMOPT_TIMERFUNCTION, want_time);
    (void)curl_multi_setopt(all->multi, CURLMOPT_TIMERDATA, all);
    return all;
}

void
poster_close(struct poster *all)
{
    if (all == NULL || all->closing)
        return;
    all->closing = true;
    (void)curl_multi_cleanup(take_ptr(all->multi));
    uv_close((uv_handle_t *)&all->timer, NULL);
}

void
poster_free(struct poster *all)
{
    if (all == NULL)
        return;
    free(all);
    curl_global_cleanup();
}

// ---- Responses

static size_t
on_body(char *bytes, size_t size, size_t n, void *post)
{
    struct post *p = post;
    size_t room = sizeof p->response - p->response_n;
    size_t keep = size * n < room ? size * n : room;
    memcpy(p->response + p->response_n, bytes, keep);
    p->response_n += keep;
    return size * n;
}

uint64_t
post_retry_after_ms(const char *value, int64_t now_s)
{
    char *end = NULL;
    long long s = strtoll(value, &end, 10);
    while (end != value && (*end == ' ' || *end == '\r' || *end == '\n'))
        end++;
    if (end == value || *end != '\0') { // a date (RFC 9110, 10.2.3)
        s = curl_getdate(value, NULL);
        s = s < 0 ? 0 : s - now_s;
    }
    return s <= 0 ? 0 : (uint64_t)(s < DAY_S ? s : DAY_S) * 1000;
}

static size_t
on_header(char *bytes, size_t size, size_t n, void *post)
{
    static const char name[] = "retry-after:";
    struct post *p = post;
    char value[64];
    size_t skip = sizeof name - 1;
    if (size * n > skip && size * n - skip < sizeof value && strncasecmp(bytes, name, skip) == 0) {
        while (skip < size * n && bytes[skip] == ' ')
            skip++;
        (void)snprintf(value, sizeof value, "%.*s", (int)(size * n - skip), bytes + skip);
        p->wait_ms = post_retry_after_ms(value, now_ns(CLOCK_REALTIME) / 1000000000);
    }
    return size * n;
}

// ---- Targets

static int
add_header(struct curl_slist **list, const char *line, struct err *e)
{
    struct curl_slist *more = curl_slist_append(*list, line);
    if (more == NULL)
        return err_sys(e, ENOMEM, "keep the headers");
    *list = more;
    return 0;
}

static int
add_headers(struct post *p, const struct post_settings *s, struct err *e)
{
    char line[128];
    struct headers_file auto_headers file = {0}, auto_headers given = {0};
    (void)snprintf(line, sizeof line, "Content-Type: %s", s->content_type);
    int r = add_header(&p->headers, line, e);
    if (r == 0)
        r = add_header(&p->headers, "Expect:", e); // no 100-continue
    if (r == 0 && s->gzip)
        r = add_header(&p->headers, "Content-Encoding: gzip", e);
    for (size_t i = 0; r == 0 && s->headers[i] != NULL; i++)
        r = add_header(&p->headers, s->headers[i], e);
    if (r == 0 && s->header_lines[0] != '\0')
        r = headers_lines_read("the configured headers", s->header_lines, &given, e);
    for (size_t i = 0; r == 0 && i < given.n; i++)
        r = add_header(&p->headers, given.line[i], e);
    if (r == 0 && s->headers_file[0] != '\0')
        r = headers_file_read(s->headers_file, &file, e);
    for (size_t i = 0; r == 0 && i < file.n; i++)
        r = add_header(&p->headers, file.line[i], e);
    return r;
}

// The file of a setting can be read. libcurl would report it with the first request only.
static int
check_file(const char *path, struct err *e)
{
    FILE *f = path[0] != '\0' ? fopen(path, "re") : NULL;
    if (path[0] == '\0')
        return 0;
    if (f == NULL)
        return err_sys(e, errno, "open %s", path);
    (void)fclose(f);
    return 0;
}

static int
set_tls(struct post *p, const struct post_settings *s, struct err *e)
{
    const struct {
        CURLoption option;
        const char *path;
    } files[] = {{CURLOPT_CAINFO, s->ca_file},
                 {CURLOPT_SSLCERT, s->certificate_file},
                 {CURLOPT_SSLKEY, s->key_file}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        int r = check_file(files[i].path, e);
        if (r < 0)
            return r;
        if (files[i].path[0] != '\0' &&
            curl_easy_setopt(p->easy, files[i].option, files[i].path) != CURLE_OK)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: libcurl refuses it", files[i].path);
    }
    return 0;
}

static int
set_options(struct post *p, const struct post_settings *s, struct err *e)
{
    CURL *c = p->easy;
    const uint64_t connect_ms = s->timeout_ms < CONNECT_MS_MAX ? s->timeout_ms : CONNECT_MS_MAX;
    bool ok =
        curl_easy_setopt(c, CURLOPT_URL, s->url) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_POST, 1L) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)s->timeout_ms) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_USERAGENT, "stockade-exporter/" STOCKADE_VERSION) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_ERRORBUFFER, p->error) == CURLE_OK &&
        curl_easy_setopt(c, CURLOPT_PRIVATE, p) == CURLE_OK;
    ok = ok && curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_WRITEDATA, p) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
         curl_easy_setopt(c, CURLOPT_HEADERDATA, p) == CURLE_OK;
    return ok ? 0 : err_set(e, ERR_INTERNAL, "libcurl refuses an option");
}

struct post *
post_new(struct poster *all, const struct post_settings *s,
         void (*done)(void *cookie, const struct post_result *r), void *cookie, struct err *e)
{
    struct post *p = calloc(1, sizeof *p);
    if (p != NULL)
        p->easy = curl_easy_init();
    if (p == NULL || p->easy == NULL) {
        (void)err_sys(e, ENOMEM, "open a target");
        post_free(p);
        return NULL;
    }
    p->all = all;
    p->gzip = s->gzip;
    p->done = done;
    p->cookie = cookie;
    if (set_options(p, s, e) < 0 || set_tls(p, s, e) < 0 || add_headers(p, s, e) < 0) {
        post_free(p);
        return NULL;
    }
    return p;
}

void
post_free(struct post *p)
{
    if (p == NULL)
        return;
    if (p->busy && p->all->multi != NULL)
        (void)curl_multi_remove_handle(p->all->multi, p->easy);
    curl_easy_cleanup(p->easy);
    curl_slist_free_all(p->headers);
    curl_slist_free_all(p->once_headers);
    free(p->request);
    free(p);
}

// ---- Requests

// Replaces *bytes.
static int
compress_it(uint8_t **bytes, size_t *n)
{
    z_stream z = {0};
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return -ENOMEM;
    const size_t most = deflateBound(&z, *n);
    uint8_t *auto_free out = malloc(most);
    z.next_in = *bytes;
    z.avail_in = (uInt)*n;
    z.next_out = out;
    z.avail_out = (uInt)most;
    int r = out != NULL ? deflate(&z, Z_FINISH) : Z_MEM_ERROR;
    (void)deflateEnd(&z);
    if (r != Z_STREAM_END)
        return -ENOMEM;
    free(*bytes);
    *bytes = take_ptr(out);
    *n = z.total_out;
    return 0;
}

static int
set_once_headers(struct post *p, const char *const *headers)
{
    struct err e;
    curl_slist_free_all(take_ptr(p->once_headers));
    if (headers == NULL)
        return curl_easy_setopt(p->easy, CURLOPT_HTTPHEADER, p->headers) == CURLE_OK ? 0 : -EINVAL;
    for (const struct curl_slist *it = p->headers; it != NULL; it = it->next)
        if (add_header(&p->once_headers, it->data, &e) < 0)
            return -ENOMEM;
    for (size_t i = 0; headers[i] != NULL; i++)
        if (add_header(&p->once_headers, headers[i], &e) < 0)
            return -ENOMEM;
    return curl_easy_setopt(p->easy, CURLOPT_HTTPHEADER, p->once_headers) == CURLE_OK ? 0 : -EINVAL;
}

int
post_send(struct post *p, uint8_t *bytes, size_t n, const char *const *headers)
{
    uint8_t *auto_free request = bytes;
    if (p->busy || p->all->closing)
        return -EBUSY;
    int r = set_once_headers(p, headers);
    if (r == 0 && p->gzip)
        r = compress_it(&request, &n);
    if (r < 0)
        return r;
    p->response_n = 0;
    p->wait_ms = 0;
    p->error[0] = '\0';
    if (curl_easy_setopt(p->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n) != CURLE_OK ||
        curl_easy_setopt(p->easy, CURLOPT_POSTFIELDS, request) != CURLE_OK ||
        curl_multi_add_handle(p->all->multi, p->easy) != CURLM_OK)
        return -ENOMEM;
    p->request = take_ptr(request);
    p->busy = true;
    return 0;
}
