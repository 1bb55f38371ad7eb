"""A recording proxy between a client and the server: forwards requests unchanged, over gRPC and HTTP."""

import gzip
import http.client
import http.server
import threading
from concurrent import futures

import grpc

SIGNALS = {
    "/v1/traces": "traces",
    "/v1/logs": "logs",
    "/v1/metrics": "metrics",
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": "logs",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
}
DEADLINE_S = 30


class Tee:
    """A context manager that listens; `requests` has the acknowledged requests, by signal."""

    def __init__(self, server):
        self._server = server
        self._lock = threading.Lock()
        self.requests = {"traces": [], "logs": [], "metrics": []}

    def record(self, path, body):
        with self._lock:
            self.requests[SIGNALS[path]].append(body)

    def __enter__(self):
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self._channel = grpc.insecure_channel(self._server)
        self._grpc = grpc.server(futures.ThreadPoolExecutor(4), handlers=[GrpcForwarder(self._channel, self.record)])
        self.http = f"127.0.0.1:{self._http.server_address[1]}"
        self.grpc = f"127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()
        return self

    def __exit__(self, *_):
        self._grpc.stop(DEADLINE_S).wait()
        self._channel.close()
        self._http.shutdown()
        self._http.server_close()

    def _handler(self):
        server, record = self._server, self.record

        class Handler(http.server.BaseHTTPRequestHandler):
            """Forwards one request."""

            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                connection = http.client.HTTPConnection(server, timeout=DEADLINE_S)
                connection.request("POST", self.path, body, dict(self.headers))
                response = connection.getresponse()
                response_body = response.read()
                connection.close()
                if response.status == 200:
                    is_gzip = self.headers["content-encoding"] == "gzip"
                    record(self.path, gzip.decompress(body) if is_gzip else body)
                self.send_response(response.status)
                self.send_header("content-type", response.headers["content-type"])
                self.send_header("content-length", str(len(response_body)))
                self.end_headers()
                self.wfile.write(response_body)

            def log_message(self, *_):
                pass

        return Handler


class GrpcForwarder(grpc.GenericRpcHandler):
    """Forwards messages of any service unchanged."""

    def __init__(self, channel, record):
        self._channel, self._record = channel, record

    def service(self, call):
        forward = self._channel.unary_unary(call.method)

        def handle(message, context):
            try:
                response = forward(message, timeout=DEADLINE_S)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
            self._record(call.method, message)
            return response

        return grpc.unary_unary_rpc_method_handler(handle)
