"""Between a client and the server: passes on what comes, byte for byte, over gRPC and HTTP, and keeps it."""

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
    """Listens while it is entered; `kept` has what was passed on and taken, by signal."""

    def __init__(self, server):
        self._server = server
        self._lock = threading.Lock()
        self.kept = {"traces": [], "logs": [], "metrics": []}

    def keep(self, path, body):
        with self._lock:
            self.kept[SIGNALS[path]].append(body)

    def __enter__(self):
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self._channel = grpc.insecure_channel(self._server)
        self._grpc = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Pass(self._channel, self.keep)])
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
        server, keep = self._server, self.keep

        class Handler(http.server.BaseHTTPRequestHandler):
            """Passes on one request."""

            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                onward = http.client.HTTPConnection(server, timeout=DEADLINE_S)
                onward.request("POST", self.path, body, dict(self.headers))
                response = onward.getresponse()
                said = response.read()
                onward.close()
                if response.status == 200:
                    keep(self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
                self.send_response(response.status)
                self.send_header("content-type", response.headers["content-type"])
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                pass

        return Handler


class Pass(grpc.GenericRpcHandler):
    """Passes on messages of any service as they are."""

    def __init__(self, channel, keep):
        self._channel, self._keep = channel, keep

    def service(self, call):
        onward = self._channel.unary_unary(call.method)

        def handle(message, context):
            try:
                response = onward(message, timeout=DEADLINE_S)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
            self._keep(call.method, message)
            return response

        return grpc.unary_unary_rpc_method_handler(handle)
