"""Sends every kind of data that OpenTelemetry's SDK for Python has, with its own exporters.

A wrapper of each exporter records the exported requests, as protobuf.
"""

import contextlib

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.metrics import Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

import grpc

TRACES = 25
ATTRIBUTES = {
    "text": "größer “quoted” \\ \n",
    "empty": "",
    "whole": -(2**63),
    "most": 2**63 - 1,
    "double": 0.1,
    "is": True,
    "is.not": False,
    "texts": ["a", "", "ü"],
    "wholes": [1, -2],
    "doubles": [1.5, -0.0],
    "bools": [True, False],
    "http.request.method": "GET",
    "http.response.status_code": 200,
    # A string, but the column of that name has integers.
    "server.port": "8080",
}


class RecordingExporter:
    """Records the requests that the inner exporter sends."""

    def __init__(self, inner, encode, requests):
        self._inner, self._encode, self._requests = inner, encode, requests

    def export(self, batch, *args, **kwargs):
        self._requests.append(self._encode(batch).SerializeToString())
        return self._inner.export(batch, *args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._inner, name)


def make_exporters(protocol, address, is_compressed):
    """Exporters of spans, logs and metrics; histograms and counters are deltas over gRPC, cumulative over HTTP."""
    if protocol == "grpc":
        compression = grpc.Compression.Gzip if is_compressed else grpc.Compression.NoCompression
        settings = {"endpoint": f"http://{address}", "insecure": True, "compression": compression}
        deltas = dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA)
        return GrpcSpans(**settings), GrpcLogs(**settings), GrpcMetrics(**settings, preferred_temporality=deltas)
    compression = Compression.Gzip if is_compressed else Compression.NoCompression
    paths = zip((HttpSpans, HttpLogs, HttpMetrics), ("traces", "logs", "metrics"))
    return [exporter(endpoint=f"http://{address}/v1/{path}", compression=compression) for exporter, path in paths]


def send(name, protocol, address, is_compressed):
    """Sends traces, logs and metrics; returns the requests by signal, as protobuf."""
    requests = {"traces": [], "logs": [], "metrics": []}
    spans, logs, metrics = make_exporters(protocol, address, is_compressed)
    resource = Resource(
        {"service.name": name, "service.version": "1.2", "host.name": "node-1", "process.pid": 17, "tags": ["a", "b"]},
        "https://opentelemetry.io/schemas/1.38.0",
    )
    spans = RecordingExporter(spans, encode_spans, requests["traces"])
    logs = RecordingExporter(logs, encode_logs, requests["logs"])
    metrics = RecordingExporter(metrics, encode_metrics, requests["metrics"])
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    loggers = LoggerProvider(resource=resource)
    loggers.add_log_record_processor(BatchLogRecordProcessor(logs))
    reader = PeriodicExportingMetricReader(metrics, 3_600_000)
    exponential = View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())
    meters = MeterProvider([reader], resource, views=[exponential])
    meter = meters.get_meter("meters", "2.0", "https://opentelemetry.io/schemas/1.37.0", {"scope": 1})
    instruments = Instruments(meter)
    for nth in range(TRACES):
        send_trace(tracers, loggers, instruments, nth)
    with contextlib.ExitStack() as stack:
        for provider in (meters, loggers, tracers):
            stack.callback(provider.shutdown)
            if not provider.force_flush():
                raise SystemExit(f"{name}: the server did not acknowledge all data")
    return requests


class Instruments:
    """One instrument of each kind."""

    def __init__(self, meter):
        self.counter = meter.create_counter("counter", "1", "what it counts")
        self.up_down = meter.create_up_down_counter("up.down")
        self.doubles = meter.create_counter("doubles", "By")
        self.histogram = meter.create_histogram("histogram", "ms", "with bounds")
        self.exponential = meter.create_histogram("exponential", "ms")
        self.gauge = meter.create_gauge("gauge")
        observations = [Observation(-0.5, {"of": "a"}), Observation(7, {"of": "b"})]
        meter.create_observable_gauge("observed", [lambda _: observations])

    def record(self, nth):
        """Records measurements; the caller has an active span, so some become exemplars."""
        self.counter.add(nth, {"of": f"{nth % 3}"})
        self.up_down.add(-nth)
        self.doubles.add(nth / 7, ATTRIBUTES)
        self.histogram.record(1.7**nth, {"http.route": "/"})
        self.exponential.record(1.3 ** (nth - 10))
        self.exponential.record(0)
        self.gauge.set(nth, {"of": nth})


def send_trace(tracers, loggers, instruments, nth):
    """Makes nested spans of two libraries, of all kinds, with events, links, log records and measurements."""
    outer = tracers.get_tracer("outer", "1.0", "https://opentelemetry.io/schemas/1.36.0", {"library": "outer"})
    inner = tracers.get_tracer("inner")
    logger = loggers.get_logger("logger", "3.0", attributes={"scope": "of logs"})
    links = []
    with outer.start_as_current_span(f"GET /{nth}", kind=SpanKind.SERVER, attributes=ATTRIBUTES) as root:
        root.add_event("begun", {"nth": nth, "texts": ["a", "b"]}, 1_750_000_000_000_000_000 + nth)
        for depth, kind in enumerate((SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.PRODUCER, SpanKind.CONSUMER)):
            with inner.start_as_current_span("", kind=kind, links=links, attributes={"depth": depth}) as span:
                links.append(Link(span.get_span_context(), {"to": depth, "why": "größer"}))
                span.set_status(Status(StatusCode.OK) if depth % 2 else Status(StatusCode.ERROR, "it broke"))
                try:
                    raise ValueError(f"depth {depth}")
                except ValueError as error:
                    span.record_exception(error, {"depth": depth})
                instruments.record(nth)
                for record in log_records(nth, depth):
                    logger.emit(record)
    state = trace.TraceState([("vendor", "of it"), ("other", "1")])
    context = trace.SpanContext(RandomIdGenerator().generate_trace_id(), 4, True, trace.TraceFlags(1), state)
    parent = trace.set_span_in_context(trace.NonRecordingSpan(context))
    outer.start_span("from elsewhere", parent, start_time=5).end(end_time=4_000_000_000_000_000_000)


def log_records(nth, depth):
    """Log records with bodies of every type, with and without other fields."""
    time_ns = 1_750_000_000_000_000_000 + 1_000 * nth + depth
    bodies = ["text: größer", "", 17, -0.5, True, [1, "a", None], {"a": {"b": [1.5]}}, b"\x00\xff"]
    for number, body in enumerate(bodies):
        yield LogRecord(
            timestamp=time_ns, observed_timestamp=time_ns + number, severity_number=SeverityNumber(1 + number),
            severity_text=f"S{number}", event_name=f"event.{number}", body=body,
            attributes=ATTRIBUTES | {"nth": number},
        )  # fmt: skip
    yield LogRecord(observed_timestamp=time_ns, body="nothing else")
