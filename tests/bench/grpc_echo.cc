// SPDX-License-Identifier: Apache-2.0
// gRPC C++ as the peer of the RPC benchmark: an asynchronous server with one completion queue, and clients with one and
// with many calls in flight. The fastest of gRPC's server models for small messages.
//
//   grpc_echo server ADDRESS
//   grpc_echo client ADDRESS BYTES IN_FLIGHT COUNT      prints the lines of bench.h
//
// With TLS on both sides if STOCKADE_BENCH_TLS names a folder (rpc_echo.c). IN_FLIGHT 0: a connection for each call.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "grpc_echo.grpc.pb.h"

using stockade::bench::Bytes;
using stockade::bench::Echo;

namespace {

double now_us()
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char *const tls = std::getenv("STOCKADE_BENCH_TLS");

std::string file(const char *name)
{
    std::ifstream in(std::string(tls) + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::shared_ptr<grpc::ServerCredentials> server_credentials()
{
    if (tls == nullptr)
        return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions o(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    o.pem_root_certs = file("ca.pem");
    o.pem_key_cert_pairs.push_back({file("server.key"), file("server.pem")});
    return grpc::SslServerCredentials(o);
}

std::shared_ptr<grpc::ChannelCredentials> client_credentials()
{
    if (tls == nullptr)
        return grpc::InsecureChannelCredentials();
    return grpc::SslCredentials({file("ca.pem"), file("client.key"), file("client.pem")});
}

// A connection of its own, not one that another channel has already.
std::shared_ptr<grpc::Channel> channel(const char *address, const std::shared_ptr<grpc::ChannelCredentials> &credentials)
{
    grpc::ChannelArguments a;
    a.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (tls != nullptr)
        a.SetSslTargetNameOverride("localhost");
    return grpc::CreateCustomChannel(address, credentials, a);
}

// One call of the server: waits, answers, and makes the next one ready.
struct ServerCall {
    ServerCall(Echo::AsyncService *service, grpc::ServerCompletionQueue *queue)
        : service(service), queue(queue), responder(&context)
    {
        service->RequestCall(&context, &request, &responder, queue, queue, this);
    }

    void proceed()
    {
        if (answered) {
            delete this;
            return;
        }
        new ServerCall(service, queue);
        Bytes response;
        response.set_data(request.data());
        answered = true;
        responder.Finish(response, grpc::Status::OK, this);
    }

    Echo::AsyncService *service;
    grpc::ServerCompletionQueue *queue;
    grpc::ServerContext context;
    Bytes request;
    grpc::ServerAsyncResponseWriter<Bytes> responder;
    bool answered = false;
};

int serve(const char *address)
{
    Echo::AsyncService service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, server_credentials());
    builder.RegisterService(&service);
    std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server)
        return 1;
    new ServerCall(&service, queue.get());
    void *tag;
    bool ok;
    while (queue->Next(&tag, &ok))
        if (ok)
            static_cast<ServerCall *>(tag)->proceed();
    return 0;
}

struct ClientCall {
    grpc::ClientContext context;
    Bytes response;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Bytes>> reader;
    double from = 0;
};

void print(const std::string &bench, std::vector<double> &us, double seconds)
{
    std::sort(us.begin(), us.end());
    std::printf("{\"bench\": \"%s\", \"row\": \"gRPC C++ %s async\", \"n\": %zu, "
                "\"p50_us\": %.1f, \"p99_us\": %.1f, \"per_second\": %.0f}\n",
                bench.c_str(), tls != nullptr ? "TLS" : "unix", us.size(), us[us.size() / 2], us[us.size() * 99 / 100],
                static_cast<double>(us.size()) / seconds);
    std::fflush(stdout);
}

int call(const char *address, size_t bytes, long in_flight, long count)
{
    std::unique_ptr<Echo::Stub> stub = Echo::NewStub(channel(address, client_credentials()));
    grpc::CompletionQueue queue;
    Bytes request;
    request.set_data(std::string(bytes, 'x'));
    std::vector<double> us;
    auto start = [&] {
        auto *c = new ClientCall;
        c->from = now_us();
        c->reader = stub->AsyncCall(&c->context, request, &queue);
        c->reader->Finish(&c->response, &c->status, c);
    };
    const long warm = count / 10;
    double from = now_us();
    long started = 0;
    for (; started < in_flight; started++)
        start();
    void *tag;
    bool ok;
    for (long done = 0; done < count + warm && queue.Next(&tag, &ok); done++) {
        std::unique_ptr<ClientCall> c(static_cast<ClientCall *>(tag));
        if (!c->status.ok() || c->response.data().size() != bytes)
            return 1;
        if (done == warm)
            from = now_us();
        if (done >= warm)
            us.push_back(now_us() - c->from);
        if (started++ < count + warm)
            start();
    }
    print("echo " + std::to_string(bytes) + " B" + (tls != nullptr ? ", TLS, " : ", ") + std::to_string(in_flight) + " in flight", us,
          (now_us() - from) / 1e6);
    std::_Exit(0);
}

int call_each(const char *address, size_t bytes, long count)
{
    const std::shared_ptr<grpc::ChannelCredentials> credentials = client_credentials();
    Bytes request;
    request.set_data(std::string(bytes, 'x'));
    std::vector<double> us;
    const long warm = count / 10;
    double began = now_us();
    for (long i = 0; i < count + warm; i++) {
        if (i == warm)
            began = now_us();
        const double from = now_us();
        grpc::ClientContext context;
        Bytes response;
        if (!Echo::NewStub(channel(address, credentials))->Call(&context, request, &response).ok() || response.data().size() != bytes)
            return 1;
        if (i >= warm)
            us.push_back(now_us() - from);
    }
    print("connect and echo " + std::to_string(bytes) + " B" + (tls != nullptr ? ", TLS" : ""), us, (now_us() - began) / 1e6);
    std::_Exit(0);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 3 && std::string(argv[1]) == "server")
        return serve(argv[2]);
    if (argc == 6 && std::string(argv[1]) == "client")
        return std::strtol(argv[4], nullptr, 10) == 0
                   ? call_each(argv[2], std::strtoul(argv[3], nullptr, 10), std::strtol(argv[5], nullptr, 10))
                   : call(argv[2], std::strtoul(argv[3], nullptr, 10), std::strtol(argv[4], nullptr, 10),
                    std::strtol(argv[5], nullptr, 10));
    std::fprintf(stderr, "usage: grpc_echo server ADDRESS | client ADDRESS BYTES IN_FLIGHT COUNT\n");
    return 2;
}
