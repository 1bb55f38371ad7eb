// Command causes is a shop of real HTTP servers with the OpenTelemetry SDK for Go and its standard instrumentation, in
// which one cause makes some requests slow. bench/planted-sockets asks `curtail explain` what the cause is.
//
// A request to shop calls auth once and cart once; cart calls db twice. The servers work by sleeping for lognormal times.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	cause := flag.String("cause", "nothing", "what makes some requests slow")
	endpoint := flag.String("endpoint", "http://127.0.0.1:4318", "`URL` that takes the spans, by OTLP over HTTP")
	address := flag.String("address", "127.0.0.1:0", "address of the shop")
	name := flag.String("name", "shop", "name of the first service")
	seed := flag.Uint64("seed", 1, "seed of all random numbers")
	flag.Parse()
	if !causes[*cause] {
		log.Fatalf("causes: there is no cause %q", *cause)
	}
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	shop, err := start(*cause, *endpoint, *address, *name, *seed)
	if err != nil {
		log.Fatalf("causes: %v", err)
	}
	fmt.Printf("listening on %s\n", *address)
	<-stopped.Done()
	if err := shop.stop(); err != nil {
		log.Fatalf("causes: %v", err)
	}
}
