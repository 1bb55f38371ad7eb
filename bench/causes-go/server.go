package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"go.opentelemetry.io/contrib/instrumentation/net/http/httptrace/otelhttptrace"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// server is one replica of a service.
type server struct {
	*scenario
	name     string
	nth      int
	provider *trace.TracerProvider
	tracer   oteltrace.Tracer
	// One keeps its connections, the other has none.
	client, coldClient *http.Client
	http               *httptest.Server
	port               string
	inService          atomic.Int64
	idleSince          atomic.Int64
	// The last time that a pause or a busy processor ends, by the clock of the process.
	pausedUntil, busyUntil atomic.Int64
	// The place in service, where there is only one.
	place chan struct{}
}

func newServer(c *scenario, service string, nth int, endpoint string) (*server, error) {
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"))
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", service, nth)
	region := "near"
	if c.cause == "distant route" && service == "cart" && nth == 4 {
		region = "far"
	}
	described := resource.NewSchemaless(
		semconv.ServiceName(service), semconv.ServiceInstanceID(name), semconv.K8SPodName(name),
		semconv.CloudRegion(region), attribute.String("host.name", "host-of-"+name),
	)
	provider := trace.NewTracerProvider(
		trace.WithResource(described),
		trace.WithBatcher(exporter, trace.WithMaxQueueSize(1<<16), trace.WithMaxExportBatchSize(2048), trace.WithBatchTimeout(time.Second)),
	)
	s := &server{scenario: c, name: name, nth: nth, provider: provider, tracer: provider.Tracer("causes"), place: make(chan struct{}, 1)}
	s.client, s.coldClient = s.newClient(true), s.newClient(false)
	return s, nil
}

// newClient returns a client that keeps its connections, or opens one for each request.
func (s *server) newClient(keeps bool) *http.Client {
	dialer := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: s.dialNameServer}}
	transport := &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 1024, DisableKeepAlives: !keeps,
		// The certificate is that of net/http/httptest, which has no authority.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	return &http.Client{Transport: otelhttp.NewTransport(transport,
		otelhttp.WithTracerProvider(s.provider), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithClientTrace(func(ctx context.Context) *httptrace.ClientTrace {
			if attempt, is := ctx.Value(resend{}).(int); is {
				oteltrace.SpanFromContext(ctx).SetAttributes(semconv.HTTPRequestResendCount(attempt))
			}
			return otelhttptrace.NewClientTrace(ctx, otelhttptrace.WithTracerProvider(s.provider))
		}),
	)}
}

// resend is the key of the number of an attempt.
type resend struct{}

// listen serves one operation at an address or, without one, on a free port; with delays, behind a relay.
func (s *server) listen(operation, address string, isTLS bool, relayed *delays, handle http.HandlerFunc) error {
	counted := func(w http.ResponseWriter, r *http.Request) {
		s.inService.Add(1)
		defer func() {
			s.inService.Add(-1)
			s.idleSince.Store(now())
		}()
		handle(w, r)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(operation, counted)
	handler := otelhttp.NewHandler(mux, "",
		otelhttp.WithTracerProvider(s.provider), otelhttp.WithPropagators(propagation.TraceContext{}))
	s.http = httptest.NewUnstartedServer(handler)
	if address != "" {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		s.http.Listener.Close()
		s.http.Listener = listener
	}
	if isTLS {
		s.http.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if s.cause == "cold connections" {
				s.delay()
			}
			return nil, nil
		}}
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	listening := s.http.Listener.Addr().String()
	if relayed != nil {
		var err error
		if listening, err = relay(listening, relayed); err != nil {
			return err
		}
	}
	_, s.port, _ = net.SplitHostPort(listening)
	return nil
}

// call sends a request to one replica of a service and reads the response.
func (s *server) call(ctx context.Context, to []*server, scheme, method, path string) error {
	return s.callWith(s.client, ctx, to, scheme, method, path)
}

func (s *server) callWith(client *http.Client, ctx context.Context, to []*server, scheme, method, path string) error {
	replica := to[s.below(len(to))]
	url := fmt.Sprintf("%s://%s.shop.test:%s%s", scheme, replica.name, replica.port, path)
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// delays are those of messages to a server and from it.
type delays struct{ to, from func() time.Duration }

// message is a part of a stream, and when it arrives.
type message struct {
	bytes []byte
	due   time.Time
}

// relay forwards connections to an address, and returns its own. A delay is that of a route: the messages of a stream are on
// their way at the same time.
func relay(address string, of *delays) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	forward := func(from, to net.Conn, delay func() time.Duration) {
		messages := make(chan message, 64)
		go func() {
			defer close(messages)
			var due time.Time
			for {
				buffer := make([]byte, 16<<10)
				n, err := from.Read(buffer)
				if n > 0 {
					arrives := time.Now()
					if delay != nil {
						arrives = arrives.Add(delay())
					}
					// TCP keeps the order.
					if due.Before(arrives) {
						due = arrives
					}
					messages <- message{buffer[:n], due}
				}
				if err != nil {
					return
				}
			}
		}()
		defer to.Close()
		failed := false
		for next := range messages {
			if !failed {
				time.Sleep(time.Until(next.due))
				_, err := to.Write(next.bytes)
				failed = err != nil
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				client.Close()
				continue
			}
			go forward(client, server, of.to)
			go forward(server, client, of.from)
		}
	}()
	return listener.Addr().String(), nil
}

// startNameServer answers every name with the loopback address.
func (c *scenario) startNameServer() error {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.nameServer = packets.LocalAddr().String()
	answer := func(w dns.ResponseWriter, query *dns.Msg) {
		if c.cause == "name lookups" {
			c.delay()
		}
		response := new(dns.Msg).SetReply(query)
		for _, question := range query.Question {
			if question.Qtype == dns.TypeA {
				header := dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
				response.Answer = append(response.Answer, &dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)})
			}
		}
		w.WriteMsg(response)
	}
	go (&dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(answer)}).ActivateAndServe()
	return nil
}

func (c *scenario) dialNameServer(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "udp", c.nameServer)
}
