package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// causes are the names of all causes.
var causes = map[string]bool{
	"nothing": true, "large payloads": true, "busy processor": true, "short timeouts": true, "slow replica": true,
	"pauses": true, "queue": true, "cold connections": true, "name lookups": true, "tenant": true, "hot key": true,
	"network gap": true, "packet loss": true, "distant route": true, "restart": true, "throttled processor": true,
	"disk": true, "wake-up": true, "switch": true, "fan-out": true,
}

// rare is the share of the requests that are delayed, of a cause that meets single requests.
const rare = 0.012

var began = time.Now()

// now is the time since the start of the process, in nanoseconds.
func now() int64 { return time.Since(began).Nanoseconds() }

// scenario is a cause with its random numbers.
type scenario struct {
	cause      string
	nameServer string
	lock       sync.Mutex
	random     *rand.Rand
	// The time until which the switch delays messages.
	switchUntil int64
}

func draw[T any](c *scenario, of func(*rand.Rand) T) T {
	c.lock.Lock()
	defer c.lock.Unlock()
	return of(c.random)
}

func (c *scenario) below(n int) int { return draw(c, func(r *rand.Rand) int { return r.IntN(n) }) }

func (c *scenario) chance(p float64) bool { return draw(c, (*rand.Rand).Float64) < p }

func (c *scenario) is(cause string, p float64) bool { return c.cause == cause && c.chance(p) }

func (c *scenario) lognormal(median, sigma float64) float64 {
	return median * math.Exp(sigma*draw(c, (*rand.Rand).NormFloat64))
}

func (c *scenario) exponential(mean time.Duration) time.Duration {
	return time.Duration(float64(mean) * draw(c, (*rand.Rand).ExpFloat64))
}

// delay waits for the time that most causes add, about 60 ms.
func (c *scenario) delay() { sleep(c.lognormal(60, 0.3)) }

func sleep(ms float64) { time.Sleep(time.Duration(ms * float64(time.Millisecond))) }

// work sleeps for a lognormal time, and through the pauses that begin meanwhile.
func (s *server) work(medianMs float64) {
	ms := s.lognormal(medianMs, 0.4)
	if s.cause == "slow replica" && s.name == "cart-2" {
		ms *= 5
	}
	if now() < s.busyUntil.Load() {
		ms *= 15
	}
	sleep(ms)
	for {
		left := s.pausedUntil.Load() - now()
		if left <= 0 {
			return
		}
		time.Sleep(time.Duration(left))
	}
}

// shop is all servers of all services.
type shop struct {
	*scenario
	name                          string
	front                         *server
	auth, cart, db, part, servers []*server
}

func start(cause, endpoint, address, name string, seed uint64) (*shop, error) {
	c := &scenario{cause: cause, random: rand.New(rand.NewPCG(seed, 0))}
	if err := c.startNameServer(); err != nil {
		return nil, err
	}
	s := &shop{scenario: c, name: name}
	for _, of := range []struct {
		service  string
		replicas int
		into     *[]*server
	}{{"db", 2, &s.db}, {"cart", 4, &s.cart}, {"auth", 2, &s.auth}, {"part", 3, &s.part}, {name, 1, nil}} {
		for nth := 1; nth <= of.replicas; nth++ {
			server, err := newServer(c, of.service, nth, endpoint)
			if err != nil {
				return nil, err
			}
			s.servers = append(s.servers, server)
			if of.into == nil {
				s.front = server
			} else {
				*of.into = append(*of.into, server)
			}
		}
	}
	return s, s.listen(address)
}

// warmUp opens the connections between all servers, by requests whose spans are not recorded. Some may fail.
func (s *shop) warmUp() {
	ctx := oteltrace.ContextWithSpanContext(context.Background(), oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{1},
	}))
	for range 4 {
		var requests sync.WaitGroup
		for range 60 {
			requests.Go(func() {
				s.page(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/cart", nil))
			})
		}
		requests.Wait()
	}
}

func (s *shop) listen(address string) error {
	var errs []error
	for _, db := range s.db {
		errs = append(errs, db.listen("GET /rows", "", false, s.delaysToDb(), func(w http.ResponseWriter, r *http.Request) { s.rows(db, w, r) }))
	}
	for _, cart := range s.cart {
		errs = append(errs, cart.listen("GET /items", "", true, s.delaysToCart(cart), func(w http.ResponseWriter, r *http.Request) { s.items(cart, w, r) }))
		go s.disturb(cart)
	}
	for _, auth := range s.auth {
		errs = append(errs, auth.listen("POST /token", "", false, s.delaysToAuth(), func(http.ResponseWriter, *http.Request) { s.token(auth) }))
	}
	for _, part := range s.part {
		errs = append(errs, part.listen("GET /part", "", false, nil, func(http.ResponseWriter, *http.Request) { sleep(s.lognormal(4, 0.8)) }))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.warmUp()
	return s.front.listen("GET /cart", address, false, nil, s.page)
}

func (s *shop) delaysToDb() *delays {
	if s.cause != "packet loss" {
		return nil
	}
	// The minimum of Linux for the time until a lost packet is sent again. There are two calls.
	return &delays{from: func() time.Duration {
		if s.chance(rare / 2) {
			return 200 * time.Millisecond
		}
		return 0
	}}
}

func (s *shop) delaysToAuth() *delays {
	if s.cause != "network gap" {
		return nil
	}
	return &delays{to: func() time.Duration {
		if s.chance(rare) {
			return time.Duration(s.lognormal(60e6, 0.3))
		}
		return 0
	}}
}

func (s *shop) delaysToCart(cart *server) *delays {
	switch {
	case s.cause == "distant route" && cart.nth == 4:
		return &delays{to: func() time.Duration { return 30 * time.Millisecond }, from: func() time.Duration { return 30 * time.Millisecond }}
	case s.cause == "switch":
		return &delays{to: func() time.Duration {
			s.lock.Lock()
			defer s.lock.Unlock()
			return time.Duration(max(0, s.switchUntil-now()))
		}}
	}
	return nil
}

// disturb lets the cause meet one replica of the cart, or through the first one all of them, for as long as the process runs.
func (s *shop) disturb(cart *server) {
	switch s.cause {
	case "pauses":
		for {
			time.Sleep(s.exponential(8 * time.Second))
			cart.pausedUntil.Store(now() + (150 * time.Millisecond).Nanoseconds())
		}
	case "busy processor":
		for {
			time.Sleep(s.exponential(10 * time.Second))
			cart.busyUntil.Store(now() + (300 * time.Millisecond).Nanoseconds())
		}
	case "switch":
		for cart.nth == 1 {
			time.Sleep(s.exponential(8 * time.Second))
			s.lock.Lock()
			s.switchUntil = now() + (150 * time.Millisecond).Nanoseconds()
			s.lock.Unlock()
		}
	}
}

func (s *shop) page(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	tenant := s.below(12)
	oteltrace.SpanFromContext(ctx).SetAttributes(attribute.String("tenant", fmt.Sprintf("tenant-%d", tenant)), attribute.String("request.id", strconv.FormatUint(draw(s.scenario, (*rand.Rand).Uint64), 16)))
	s.front.work(2)
	if tenant == 7 && s.is("tenant", 0.15) {
		s.delay()
	}
	if err := s.authorize(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client := s.front.client
	if s.is("cold connections", rare) || s.is("name lookups", rare) {
		client = s.front.coldClient
	}
	if err := s.front.callWith(client, ctx, s.cart, "https", "GET", "/items"); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if s.cause == "fan-out" {
		var parts sync.WaitGroup
		var failed atomic.Bool
		for range 20 {
			parts.Go(func() {
				if s.front.call(ctx, s.part, "http", "GET", "/part") != nil {
					failed.Store(true)
				}
			})
		}
		parts.Wait()
		if failed.Load() {
			http.Error(w, "a part failed", http.StatusBadGateway)
			return
		}
	}
	s.front.work(1)
}

// authorize calls auth, again if it does not respond in time.
func (s *shop) authorize(ctx context.Context) error {
	if s.cause != "short timeouts" {
		return s.front.call(ctx, s.auth, "http", "POST", "/token")
	}
	for attempt := 0; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
		if attempt > 0 {
			limited = context.WithValue(limited, resend{}, attempt)
		}
		err := s.front.call(limited, s.auth, "http", "POST", "/token")
		cancel()
		if err == nil || attempt == 3 {
			return err
		}
	}
}

func (s *shop) token(auth *server) {
	auth.work(3)
	if s.is("short timeouts", rare) {
		sleep(300)
	}
}

func (s *shop) items(cart *server, w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	span := oteltrace.SpanFromContext(ctx)
	key := int(s.exponential(8))
	span.SetAttributes(attribute.String("cache.key", fmt.Sprintf("key-%d", key)))
	switch {
	case s.cause == "wake-up" && cart.inService.Load() == 1 && now()-cart.idleSince.Load() > (200*time.Millisecond).Nanoseconds():
		s.delay()
	case s.cause == "restart" && cart.nth == 2 && now() > 20e9 && now() < 23e9:
		// Its caches are empty.
		s.delay()
	case key == 13 && s.is("hot key", 0.4):
		s.delay()
	}
	if s.cause == "busy processor" {
		busy := 0.2 + 0.5*draw(s.scenario, (*rand.Rand).Float64)
		if now() < cart.busyUntil.Load() {
			busy = 1 - 0.05*draw(s.scenario, (*rand.Rand).Float64)
		}
		span.SetAttributes(attribute.Float64("system.cpu.utilization", busy))
	}
	if s.cause == "throttled processor" {
		throttled := 0.0
		if s.chance(rare) {
			throttled = s.lognormal(60, 0.3)
			sleep(throttled)
		}
		span.SetAttributes(attribute.Float64("container.cpu.throttled_ms", throttled))
	}
	cart.work(4)
	for range 2 {
		if err := cart.call(ctx, s.db, "http", "GET", "/rows"); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	size := int(s.lognormal(4000, 1.2))
	if s.cause == "large payloads" {
		sleep(float64(size) / 1000)
	}
	w.Write(make([]byte, size))
}

func (s *shop) rows(db *server, _ http.ResponseWriter, r *http.Request) {
	medianMs := 2.0
	if s.cause == "queue" {
		medianMs = 7
		_, queued := db.tracer.Start(r.Context(), "queue")
		db.place <- struct{}{}
		queued.End()
		defer func() { <-db.place }()
	}
	_, read := db.tracer.Start(r.Context(), "disk read")
	if s.is("disk", rare/2) {
		s.delay()
	} else {
		sleep(s.lognormal(0.4, 0.4))
	}
	read.End()
	db.work(medianMs)
}

func (s *shop) stop() error {
	s.front.http.Close()
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.provider.Shutdown(context.Background()))
	}
	return errors.Join(errs...)
}
