package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The minimum schema of a native histogram, and the maximum growth between the bounds of a classic one.
const (
	schemaMin = 3
	growthMax = 1.2
)

// judgeMetrics scrapes the admin port's metrics in every form and parses them with Prometheus's own parser.
func judgeMetrics(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: judge metrics METRICS_URL")
	}
	var v verdicts
	// The Accept headers of Prometheus 3 with and without native histograms.
	protobuf := string(expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, form := range []struct {
		name, accept string
		format       expfmt.FormatType
	}{
		{"protobuf", protobuf + ";q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", expfmt.TypeProtoDelim},
		{"OpenMetrics where protobuf is preferred less", "application/openmetrics-text;version=1.0.0;q=0.9," + protobuf + ";q=0.1", expfmt.TypeOpenMetrics},
		{"OpenMetrics", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", expfmt.TypeOpenMetrics},
		{"text", "text/plain;version=0.0.4", expfmt.TypeTextPlain},
		{"text without Accept", "", expfmt.TypeTextPlain},
	} {
		families, err := scrape(args[0], form.accept, form.format)
		v.check(form.name+": parses", err)
		if err == nil {
			v.check(form.name+": histograms", checkHistograms(families, form.format == expfmt.TypeProtoDelim))
		}
	}
	v.exit()
	return nil
}

func scrape(url, accept string, wanted expfmt.FormatType) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	kind := response.Header.Get("Content-Type")
	families := make(map[string]*dto.MetricFamily)
	if expfmt.Format(kind).FormatType() != wanted {
		return nil, fmt.Errorf("content-type is %q", kind)
	}
	if wanted == expfmt.TypeProtoDelim {
		format := expfmt.ResponseFormat(response.Header)
		decoder := expfmt.NewDecoder(response.Body, format)
		for {
			family := &dto.MetricFamily{}
			switch err := decoder.Decode(family); {
			case errors.Is(err, io.EOF):
				return families, nil
			case err != nil:
				return nil, err
			case families[family.GetName()] != nil:
				return nil, fmt.Errorf("%s is a duplicate", family.GetName())
			}
			families[family.GetName()] = family
		}
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	text := string(body)
	if wanted == expfmt.TypeOpenMetrics {
		// The parser reads the older text format, which has neither units nor the info type.
		var lines []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "# UNIT") && !strings.HasSuffix(line, " info\n") {
				lines = append(lines, line)
			}
		}
		text = strings.Join(lines, "")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(text))
}

func checkHistograms(families map[string]*dto.MetricFamily, isNative bool) error {
	seen := 0
	for name, family := range families {
		if family.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		for _, metric := range family.Metric {
			seen++
			if err := checkHistogram(metric.Histogram, isNative); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return some("histograms", seen)
}

func checkHistogram(histogram *dto.Histogram, isNative bool) error {
	before, counted := 0.0, uint64(0)
	for _, bucket := range histogram.Bucket {
		bound := bucket.GetUpperBound()
		if before > 0 && !math.IsInf(bound, 1) && bound/before > growthMax+1e-9 {
			return fmt.Errorf("bounds %g to %g grow by more than %g", before, bound, growthMax)
		}
		if bucket.GetCumulativeCount() < counted {
			return fmt.Errorf("the count falls at %g", bound)
		}
		before, counted = bound, bucket.GetCumulativeCount()
	}
	if !isNative {
		return some("classic buckets", len(histogram.Bucket))
	}
	if histogram.GetSchema() < schemaMin {
		return fmt.Errorf("schema %d is below %d", histogram.GetSchema(), schemaMin)
	}
	inSpans, deltas := 0, len(histogram.PositiveDelta)
	for _, span := range histogram.PositiveSpan {
		inSpans += int(span.GetLength())
	}
	if inSpans != deltas {
		return fmt.Errorf("spans of %d buckets, %d deltas", inSpans, deltas)
	}
	total, count := histogram.GetZeroCount(), int64(0)
	for _, delta := range histogram.PositiveDelta {
		count += delta
		if count < 0 {
			return errors.New("a bucket has a negative count")
		}
		total += uint64(count)
	}
	if total != histogram.GetSampleCount() {
		return fmt.Errorf("the buckets hold %d of %d", total, histogram.GetSampleCount())
	}
	return nil
}
