// SPDX-License-Identifier: Apache-2.0
// Requests of http.h: their bodies and answers. A request that waits for its answer is suspended.
#include <stdlib.h>
#include <string.h>

#include "http_private.h"

static const char plain[] = "text/plain; charset=utf-8";

// ---- Answers

void
http_finish_response(struct http_request *r, unsigned status, const char *content_type)
{
    r->status = status;
    if (r->response == NULL)
        return;
    (void)MHD_add_response_header(r->response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    (void)MHD_add_response_header(r->response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    (void)MHD_add_response_header(r->response, "X-Content-Type-Options", "nosniff");
    for (const struct http_field *f = r->fields; f != NULL && f->name != NULL; f++)
        (void)MHD_add_response_header(r->response, f->name, f->value);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(r->response, MHD_HTTP_HEADER_ALLOW,
                                      r->http->settings.body_max > 0 ? "GET, HEAD, POST"
                                                                     : "GET, HEAD");
}

void
http_resume(struct http_request *r)
{
    if (!r->suspended)
        return;
    r->suspended = false;
    MHD_resume_connection(r->connection);
    http_run_soon(r->http);
}

void
http_answer(struct http_request *r, unsigned status, const char *content_type, char *body, size_t n)
{
    r->waiting = false;
    r->response = body != NULL ? MHD_create_response_from_buffer_with_free_callback(n, body, free)
                               : NULL; // on_request() disconnects the client
    if (r->response == NULL)
        free(body);
    http_finish_response(r, status, content_type);
    http_resume(r);
}

void
http_answer_text(struct http_request *r, unsigned status, const char *content_type,
                 const char *text)
{
    http_answer(r, status, content_type, strdup(text), strlen(text));
}

static enum MHD_Result
send_response(struct http_request *r)
{
    if (r->response == NULL)
        return MHD_NO; // no memory
    r->http->count[r->status == MHD_HTTP_OK ? HTTP_ANSWERED : HTTP_REFUSED]++;
    if (r->is_stream)
        r->client->stream = r;
    return MHD_queue_response(r->connection, r->status, r->response);
}

// ---- A request

void
http_on_completed(void *cookie, struct MHD_Connection *connection, void **request_cookie,
                  enum MHD_RequestTerminationCode why)
{
    struct http *h = cookie;
    struct http_request *r = *request_cookie;
    (void)connection;
    (void)why;
    if (r == NULL)
        return;
    *request_cookie = NULL;
    if (r->waiting && h->settings.on_gone != NULL)
        h->settings.on_gone(h->settings.cookie, r);
    if (r->response != NULL)
        MHD_destroy_response(r->response);
    if (r->client != NULL) {
        r->client->since_ms = http_now_ms();
        r->client->stream = NULL;
    }
    free(r->stream.bytes);
    free(r->body);
    free(r->path);
    free(r);
}

static struct http_request *
request_new(struct http *h, struct MHD_Connection *connection, const char *path, const char *method)
{
    struct http_client *client =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    char *copy = client != NULL ? strdup(path) : NULL;
    struct http_request *r = copy != NULL ? calloc(1, sizeof *r) : NULL;
    if (r == NULL) {
        free(copy);
        return NULL;
    }
    *r = (struct http_request){
        .http = h, .connection = connection, .client = client, .path = copy, .method = method};
    return r;
}

static bool
is(const char *method, const char *name)
{
    return strcmp(method, name) == 0;
}

// Refuses by what the headers say. A response before the body makes the library close the connection.
static void
check(struct http_request *r)
{
    const size_t most = r->http->settings.body_max;
    const bool post = is(r->method, MHD_HTTP_METHOD_POST);
    if (is(r->method, MHD_HTTP_METHOD_GET) || is(r->method, MHD_HTTP_METHOD_HEAD))
        return;
    if (!post || most == 0)
        http_answer_text(r, MHD_HTTP_METHOD_NOT_ALLOWED, plain,
                         most == 0 ? "only GET and HEAD\n" : "only GET, HEAD and POST\n");
    else if (strtoull(http_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH), NULL, 10) > most)
        http_answer_text(r, MHD_HTTP_CONTENT_TOO_LARGE, plain, "the body is too large\n");
}

// Keeps a part of the body. A GET has none that counts.
static void
take_body(struct http_request *r, const char *bytes, size_t n)
{
    if (!is(r->method, MHD_HTTP_METHOD_POST) || r->response != NULL)
        return;
    char *more =
        n <= r->http->settings.body_max - r->body_n ? realloc(r->body, r->body_n + n + 1) : NULL;
    if (more == NULL) {
        http_answer_text(r, MHD_HTTP_CONTENT_TOO_LARGE, plain, "the body is too large\n");
        return;
    }
    memcpy(more + r->body_n, bytes, n);
    r->body = more;
    r->body_n += n;
    more[r->body_n] = '\0';
}

// Called when the headers are there, for each part of a body, at the end of it, and again when a suspended request continues.
enum MHD_Result
// NOLINTBEGIN(readability-*): the type of libmicrohttpd's callback
http_on_request(void *cookie, struct MHD_Connection *connection, const char *path,
                const char *method, const char *version, const char *upload, size_t *upload_n,
                void **request_cookie)
// NOLINTEND(readability-*)
{
    struct http *h = cookie;
    struct http_request *r = *request_cookie;
    (void)version;
    if (r == NULL) {
        r = request_new(h, connection, path, method);
        if (r == NULL)
            return MHD_NO;
        *request_cookie = r;
        check(r);
        if (r->response != NULL)
            return send_response(r);
        if (is(method, MHD_HTTP_METHOD_POST))
            return MHD_YES; // the body follows
    }
    if (*upload_n > 0) {
        take_body(r, upload, *upload_n);
        *upload_n = 0;
        return MHD_YES;
    }
    if (r->response == NULL && !r->served) {
        r->served = r->waiting = true;
        h->settings.on_request(h->settings.cookie, r);
        if (r->waiting && !r->is_stream) {
            r->suspended = true;
            MHD_suspend_connection(connection);
            return MHD_YES;
        }
    }
    return send_response(r);
}

const char *
http_path(const struct http_request *r)
{
    return r->path;
}

const char *
http_method(const struct http_request *r)
{
    return r->method;
}

const char *
http_header(const struct http_request *r, const char *name)
{
    const char *value = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
    return value != NULL ? value : "";
}

const char *
http_body(const struct http_request *r, size_t *n)
{
    *n = r->body_n;
    return r->body != NULL ? r->body : "";
}

void
http_set_cookie(struct http_request *r, void *cookie)
{
    r->cookie = cookie;
}

void *
http_cookie(const struct http_request *r)
{
    return r->cookie;
}

void
http_set_fields(struct http_request *r, const struct http_field *fields)
{
    r->fields = fields;
}
