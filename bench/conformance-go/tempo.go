package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gogo/protobuf/jsonpb"
	"github.com/gogo/protobuf/proto"
	"github.com/grafana/tempo/pkg/tempopb"
)

const (
	traceID    = "0102030405060708090a0b0c0d0e0f10"
	spansSent  = 4
	jsonType   = "application/json"
	protoType  = "application/protobuf"
	metricSpan = 15 * time.Minute
)

// question is one request to the server and the message that its response must be.
type question struct {
	name, path string
	query      url.Values
	accept     string
	message    proto.Message
	// holds checks the content of a decoded message.
	holds func(body []byte) error
}

// judgeTempo sends spans to the OTLP address and decodes the responses of the API with Tempo's own types. An unknown
// field is an error, as it is for Grafana's backend and for tempo-cli.
func judgeTempo(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: judge tempo OTLP_URL API_URL")
	}
	now := time.Now()
	if err := sendSpans(args[0]+"/v1/traces", now); err != nil {
		return err
	}
	var v verdicts
	for _, q := range questions(now) {
		v.check(q.name, ask(args[1], q))
	}
	v.exit()
	return nil
}

// sendSpans sends one trace of a healthy request, an error, a span without a name, and one that ends before it starts.
func sendSpans(to string, now time.Time) error {
	span := func(id, parent, name string, start, end time.Time, more map[string]any) map[string]any {
		span := map[string]any{
			"traceId": traceID, "spanId": id, "name": name, "kind": 2,
			"startTimeUnixNano": fmt.Sprint(start.UnixNano()),
			"endTimeUnixNano":   fmt.Sprint(end.UnixNano()),
		}
		if parent != "" {
			span["parentSpanId"] = parent
		}
		for key, value := range more {
			span[key] = value
		}
		return span
	}
	text := func(key, value string) map[string]any {
		return map[string]any{"key": key, "value": map[string]any{"stringValue": value}}
	}
	number := func(key, value string) map[string]any {
		return map[string]any{"key": key, "value": map[string]any{"intValue": value}}
	}
	began := now.Add(-time.Minute)
	spans := []any{
		span("1112131415161718", "", "GET /cart", began, began.Add(80*time.Millisecond), map[string]any{
			"attributes": []any{text("http.route", "/cart"), number("http.response.status_code", "200")},
			"events": []any{map[string]any{
				"timeUnixNano": fmt.Sprint(began.UnixNano() + 1), "name": "cache miss",
				"attributes": []any{text("key", "a")},
			}},
			"links": []any{map[string]any{"traceId": traceID, "spanId": "2112131415161718"}},
		}),
		span("2112131415161718", "1112131415161718", "SELECT", began, began.Add(40*time.Millisecond), map[string]any{
			"attributes": []any{text("db.system.name", "postgresql")},
			"status":     map[string]any{"code": 2, "message": "deadlock"},
		}),
		span("3112131415161718", "1112131415161718", "", began, began.Add(time.Millisecond), nil),
		span("4112131415161718", "1112131415161718", "backwards", began, began.Add(-time.Millisecond), nil),
	}
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   map[string]any{"attributes": []any{text("service.name", "checkout"), text("host.name", "a")}},
		"scopeSpans": []any{map[string]any{"spans": spans}},
	}}})
	if err != nil {
		return err
	}
	response, err := http.Post(to, jsonType, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", to, response.Status, said)
	}
	return err
}

func questions(now time.Time) []question {
	bounds := func(more ...string) url.Values {
		values := url.Values{
			"start": {fmt.Sprint(now.Add(-metricSpan).Unix())}, "end": {fmt.Sprint(now.Add(time.Minute).Unix())},
		}
		for i := 0; i+1 < len(more); i += 2 {
			values.Set(more[i], more[i+1])
		}
		return values
	}
	var all []question
	add := func(q question) {
		if q.accept == "" {
			q.accept = jsonType
		}
		all = append(all, q)
	}
	for _, q := range []string{
		"{}", `{ resource.service.name = "checkout" }`, "{ status = error }", "{} | select(span.http.route)",
		`{ duration > 1ms && name =~ ".*" }`, "{ kind = server }",
	} {
		m := &tempopb.SearchResponse{}
		add(question{name: "search " + q, path: "/api/search", query: bounds("q", q, "limit", "20", "spss", "10"),
			message: m, holds: func([]byte) error { return some("traces", len(m.Traces)) }})
	}
	tagged := &tempopb.SearchResponse{}
	add(question{name: "search by tags", path: "/api/search", query: bounds("tags", "service.name=checkout"),
		message: tagged, holds: func([]byte) error { return some("traces", len(tagged.Traces)) }})
	names := &tempopb.SearchTagsResponse{}
	add(question{name: "tag names", path: "/api/search/tags", query: bounds(), message: names,
		holds: func([]byte) error { return some("names", len(names.TagNames)) }})
	scopes := &tempopb.SearchTagsV2Response{}
	add(question{name: "tag names by scope", path: "/api/v2/search/tags", query: bounds(), message: scopes,
		holds: func([]byte) error { return some("scopes", len(scopes.Scopes)) }})
	values := &tempopb.SearchTagValuesResponse{}
	add(question{name: "tag values", path: "/api/search/tag/service.name/values", query: bounds(), message: values,
		holds: func([]byte) error { return some("values", len(values.TagValues)) }})
	for _, tag := range []string{"resource.service.name", "name", "status", "kind", "span.http.response.status_code"} {
		m := &tempopb.SearchTagValuesV2Response{}
		add(question{name: "typed values of " + tag, path: "/api/v2/search/tag/" + tag + "/values", query: bounds("q", "{}"),
			message: m, holds: func([]byte) error { return some("values", len(m.TagValues)) }})
	}
	for _, accept := range []string{jsonType, protoType} {
		first, second := &tempopb.Trace{}, &tempopb.TraceByIDResponse{}
		add(question{name: "trace v1 as " + accept, path: "/api/traces/" + traceID, accept: accept, message: first,
			holds: func(body []byte) error { return wholeTrace(first, accept, body) }})
		add(question{name: "trace v2 as " + accept, path: "/api/v2/traces/" + traceID, accept: accept, message: second,
			holds: func(body []byte) error { return wholeTrace(second.Trace, accept, body) }})
	}
	for _, q := range []string{
		"{} | rate()", "{} | rate() by (resource.service.name)", "{} | count_over_time() by (status)",
		"{} | quantile_over_time(duration, .5, .99)", "{} | histogram_over_time(duration)",
		"{} | max_over_time(duration) by (name)", "{} | avg_over_time(duration)",
	} {
		ranges, instant := &tempopb.QueryRangeResponse{}, &tempopb.QueryInstantResponse{}
		add(question{name: "range " + q, path: "/api/metrics/query_range",
			query: bounds("q", q, "step", "60s", "exemplars", "10"), message: ranges,
			holds: func(body []byte) error { return errors.Join(some("series", len(ranges.Series)), noPromLabels(body)) }})
		add(question{name: "instant " + q, path: "/api/metrics/query", query: bounds("q", q), message: instant,
			holds: func(body []byte) error { return errors.Join(some("series", len(instant.Series)), noPromLabels(body)) }})
	}
	return all
}

func ask(api string, q question) error {
	request, err := http.NewRequest(http.MethodGet, api+q.path+"?"+q.query.Encode(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", q.accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, short(body))
	}
	if said := response.Header.Get("Content-Type"); !strings.HasPrefix(said, q.accept) {
		return fmt.Errorf("content-type is %q, expected %s", said, q.accept)
	}
	if q.accept == protoType {
		err = proto.Unmarshal(body, q.message)
	} else {
		err = fromJSON(body, q.message)
	}
	if err != nil {
		return fmt.Errorf("not a %T: %w: %s", q.message, err, short(body))
	}
	return q.holds(body)
}

func fromJSON(body []byte, message proto.Message) error {
	if trace, isTrace := message.(*tempopb.Trace); isTrace {
		// The first version of the endpoint has another name for the resource spans.
		return tempopb.UnmarshalFromJSONV1(body, trace)
	}
	return (&jsonpb.Unmarshaler{AllowUnknownFields: false}).Unmarshal(bytes.NewReader(body), message)
}

func some(what string, count int) error {
	if count == 0 {
		return fmt.Errorf("%s is missing", what)
	}
	return nil
}

// noPromLabels rejects a field that Tempo 3 has removed; the types here are of the last version that had it.
func noPromLabels(body []byte) error {
	if bytes.Contains(body, []byte(`"promLabels"`)) {
		return errors.New("promLabels is unknown to Tempo 3")
	}
	return nil
}

// wholeTrace checks that no span is missing, and that each has its trace ID and the messages that Grafana requires.
func wholeTrace(trace *tempopb.Trace, accept string, body []byte) error {
	spans := 0
	if trace != nil {
		for _, resource := range trace.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				if scope.Scope == nil {
					return errors.New("scope spans without a scope")
				}
				for _, span := range scope.Spans {
					spans++
					if span.Status == nil {
						return fmt.Errorf("the span %q has no status", span.Name)
					}
					if id := hex.EncodeToString(span.TraceId); id != traceID {
						return fmt.Errorf("the span %q has trace ID %s, expected %s", span.Name, id, traceID)
					}
				}
			}
		}
	}
	if spans != spansSent {
		return fmt.Errorf("%d spans, expected %d (%s, %d bytes)", spans, spansSent, accept, len(body))
	}
	return nil
}

func short(body []byte) string {
	return fmt.Sprintf("%.200s", body)
}
