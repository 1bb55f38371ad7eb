// Command control-plane-go is a control plane of Envoy's go-control-plane: it serves the endpoints of one cluster over
// ADS, and changes them on an HTTP command. bench/discovery runs the proxy against it.
//
//	PUT /endpoints    body: one ADDRESS:PORT a line, optionally with a health status (10.0.0.1:80 DRAINING)
//	GET /requests     the number of streams, ACKs and NACKs, and the text of the last NACK, as JSON
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// controlPlane has the endpoints, and what clients sent.
type controlPlane struct {
	cluster string
	node    string
	cache   cache.SnapshotCache

	mutex    sync.Mutex
	version  int
	requests requests
}

type requests struct {
	Streams  int    `json:"streams"`
	Acks     int    `json:"acks"`
	Nacks    int    `json:"nacks"`
	LastNack string `json:"last_nack"`
}

func main() {
	ads := flag.String("ads", "127.0.0.1:0", "address of ADS")
	admin := flag.String("admin", "127.0.0.1:0", "address of HTTP commands")
	cluster := flag.String("cluster", "search", "name of the cluster")
	node := flag.String("node", "curtail-proxy", "ID of the client's node")
	flag.Parse()
	plane := &controlPlane{cluster: *cluster, node: *node, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil)}
	callbacks := server.CallbackFuncs{
		StreamOpenFunc:    plane.streamOpened,
		StreamRequestFunc: plane.requestArrived,
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	grpcServer := grpc.NewServer()
	xds := server.NewServer(ctx, plane.cache, callbacks)
	discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer, xds)
	adsListener, adminListener := listen(*ads), listen(*admin)
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /endpoints", plane.putEndpoints)
	mux.HandleFunc("GET /requests", plane.getRequests)
	go func() { log.Fatal(http.Serve(adminListener, mux)) }()
	go func() {
		<-ctx.Done()
		grpcServer.Stop()
	}()
	fmt.Printf("ads=%s admin=%s\n", adsListener.Addr(), adminListener.Addr())
	if err := grpcServer.Serve(adsListener); err != nil {
		log.Fatal(err)
	}
}

func listen(address string) net.Listener {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func (plane *controlPlane) streamOpened(context.Context, int64, string) error {
	plane.mutex.Lock()
	defer plane.mutex.Unlock()
	plane.requests.Streams++
	return nil
}

func (plane *controlPlane) requestArrived(_ int64, request *discovery.DiscoveryRequest) error {
	plane.mutex.Lock()
	defer plane.mutex.Unlock()
	if detail := request.GetErrorDetail(); detail != nil {
		plane.requests.Nacks++
		plane.requests.LastNack = detail.GetMessage()
	} else if request.GetResponseNonce() != "" {
		plane.requests.Acks++
	}
	return nil
}

func (plane *controlPlane) getRequests(writer http.ResponseWriter, _ *http.Request) {
	plane.mutex.Lock()
	defer plane.mutex.Unlock()
	_ = json.NewEncoder(writer).Encode(plane.requests)
}

func (plane *controlPlane) putEndpoints(writer http.ResponseWriter, request *http.Request) {
	var endpoints []*endpoint.LbEndpoint
	lines := bufio.NewScanner(request.Body)
	for lines.Scan() {
		parsed, err := parseEndpoint(lines.Text())
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		endpoints = append(endpoints, parsed)
	}
	assignment := &endpoint.ClusterLoadAssignment{
		ClusterName: plane.cluster,
		Endpoints:   []*endpoint.LocalityLbEndpoints{{LbEndpoints: endpoints}},
	}
	plane.mutex.Lock()
	plane.version++
	version := strconv.Itoa(plane.version)
	plane.mutex.Unlock()
	resources := map[resource.Type][]types.Resource{resource.EndpointType: {assignment}}
	snapshot, err := cache.NewSnapshot(version, resources)
	if err == nil {
		err = plane.cache.SetSnapshot(request.Context(), plane.node, snapshot)
	}
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
	}
}

func parseEndpoint(line string) (*endpoint.LbEndpoint, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil, fmt.Errorf("an empty line: expected ADDRESS:PORT")
	}
	host, port, err := net.SplitHostPort(words[0])
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 32)
	if err != nil {
		return nil, err
	}
	status := core.HealthStatus_UNKNOWN
	if len(words) > 1 {
		value, known := core.HealthStatus_value[words[1]]
		if !known {
			return nil, fmt.Errorf("%q is no health status", words[1])
		}
		status = core.HealthStatus(value)
	}
	address := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address:       host,
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(number)},
	}}}
	return &endpoint.LbEndpoint{
		HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address}},
		HealthStatus:   status,
	}, nil
}
