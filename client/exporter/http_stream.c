// SPDX-License-Identifier: Apache-2.0
// Streams of http.h: a bounded buffer that libmicrohttpd reads from. While it is empty, the connection is suspended.
#include <stdlib.h>
#include <string.h>

#include "http_private.h"

size_t
http_stream_waiting(const struct http_request *r)
{
    return r->stream.n - r->stream.taken;
}

static void
say_drained(struct http_request *r)
{
    struct http *h = r->http;
    if (!r->stream.high || http_stream_waiting(r) > r->stream.most / 2)
        return;
    r->stream.high = false;
    if (h->settings.on_drained != NULL && r->waiting)
        h->settings.on_drained(h->settings.cookie, r);
}

// libmicrohttpd asks for bytes.
static ssize_t
read_stream(void *cookie, uint64_t at, char *to, size_t most)
{
    struct http_request *r = cookie;
    struct http_stream *s = &r->stream;
    const size_t waiting = http_stream_waiting(r);
    const size_t n = waiting < most ? waiting : most;
    (void)at;
    if (n == 0 && s->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        r->suspended = true;
        MHD_suspend_connection(r->connection);
        return 0;
    }
    memcpy(to, s->bytes + s->taken, n);
    s->taken += n;
    r->client->since_ms = http_now_ms();
    say_drained(r);
    return (ssize_t)n;
}

bool
http_stream(struct http_request *r, const char *content_type, size_t most)
{
    enum { BLOCK_BYTES = 8192 };
    r->response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, r, NULL);
    if (r->response == NULL)
        return false;
    r->is_stream = true;
    r->stream.most = most;
    http_finish_response(r, MHD_HTTP_OK, content_type);
    http_resume(r);
    return true;
}

// Room for n bytes behind those that wait.
static bool
make_room(struct http_stream *s, size_t n)
{
    const size_t waiting = s->n - s->taken;
    if (waiting + n > s->most)
        return false;
    if (s->n + n <= s->size)
        return true;
    if (s->taken > 0) {
        memmove(s->bytes, s->bytes + s->taken, waiting);
        s->taken = 0;
        s->n = waiting;
    }
    if (s->n + n <= s->size)
        return true;
    size_t size = 2 * (s->n + n) < s->most ? 2 * (s->n + n) : s->most;
    char *more = realloc(s->bytes, size);
    if (more == NULL)
        return false;
    s->bytes = more;
    s->size = size;
    return true;
}

bool
http_stream_write(struct http_request *r, const char *bytes, size_t n)
{
    struct http_stream *s = &r->stream;
    if (s->ended || n == 0 || !make_room(s, n))
        return false;
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
    s->high |= http_stream_waiting(r) > s->most / 2;
    http_resume(r);
    return true;
}

void
http_stream_end(struct http_request *r)
{
    r->waiting = false;
    r->stream.ended = true;
    http_resume(r);
}
