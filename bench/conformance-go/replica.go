package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// serveReplica serves HTTP/1.1 on the given address: it reads each request and responds with 200 after the time in the
// query (`?ms=12.5`).
func serveReplica(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: judge replica ADDRESS")
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if ms, err := strconv.ParseFloat(r.URL.Query().Get("ms"), 64); err == nil {
			time.Sleep(time.Duration(ms * float64(time.Millisecond)))
		}
		w.Header().Set("content-type", "text/plain")
		io.WriteString(w, "ok\n")
	}
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	return http.Serve(listener, http.HandlerFunc(handler))
}

// Concurrent requests: few, so that the durations are as requested.
const atOnce = 4

// sendLatencies sends COUNT requests through the proxy at URL, with durations from a seeded lognormal distribution, and
// prints the 99th percentile of their latencies, in seconds.
func sendLatencies(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: judge latencies URL COUNT")
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 2))
	asked := make(chan float64, count)
	for range count {
		asked <- min(20*math.Exp(0.8*random.NormFloat64()), 400)
	}
	close(asked)
	var lock sync.Mutex
	var took []time.Duration
	failures := make(chan error, atOnce)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for range atOnce {
		go func() {
			for ms := range asked {
				began := time.Now()
				if err := get(ctx, fmt.Sprintf("%s/?ms=%.3f", args[0], ms)); err != nil {
					failures <- err
					return
				}
				lock.Lock()
				took = append(took, time.Since(began))
				lock.Unlock()
			}
			failures <- nil
		}()
	}
	for range atOnce {
		if err := <-failures; err != nil {
			return err
		}
	}
	slices.Sort(took)
	fmt.Printf("%.6f\n", took[int(math.Ceil(0.99*float64(len(took))))-1].Seconds())
	return nil
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
