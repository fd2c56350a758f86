package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protodelim"
)

// gatewayLabel says of which Gateway's process a metric is.
const gatewayLabel = "gateway"

// gather has a supervisor's metrics be those of its members, too.
func (s *separate) gather() {
	s.restarts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairway_gateway_restarts_total", Help: "How often a Gateway's process ended and was started again.",
	}, []string{gatewayLabel})
	own := prometheus.NewRegistry()
	own.MustRegister(s.restarts, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics.gatherer = prometheus.Gatherers{own, prometheus.GathererFunc(s.members)}
}

// families reads metrics in the form of protobuf, which has the traces that they name. No metric is
// longer than the text, whatever it says: room would be made for it.
func families(text []byte) (map[string]*dto.MetricFamily, error) {
	rest, limits, all := bytes.NewReader(text), protodelim.UnmarshalOptions{MaxSize: int64(len(text))}, map[string]*dto.MetricFamily{}
	for {
		var f dto.MetricFamily
		switch err := limits.UnmarshalFrom(rest, &f); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read metrics: %w", err)
		case !model.UTF8Validation.IsValidMetricName(f.GetName()):
			return nil, fmt.Errorf("read metrics: %q is no name", f.GetName())
		}
		all[f.GetName()] = &f
	}
}

// protobuf is the form in which members tell their metrics.
var protobuf = expfmt.NewFormat(expfmt.TypeProtoDelim)

// members are the metrics of all members. One that doesn't answer has none.
func (s *separate) members() ([]*dto.MetricFamily, error) {
	list := s.all()
	answers := make([]map[string]*dto.MetricFamily, len(list))
	var asking sync.WaitGroup
	for i, c := range list {
		asking.Go(func() {
			text, err := c.ask("/metrics")
			if err != nil {
				s.log.Warn("the metrics of a Gateway's process could not be read", "gateway", c.gateway, "error", err)
				return
			}
			if answers[i], err = families(text); err != nil {
				s.log.Warn("the metrics of a Gateway's process could not be read", "gateway", c.gateway, "error", err)
			}
		})
	}
	asking.Wait()
	all := map[string]*dto.MetricFamily{}
	for i, families := range answers {
		for name, f := range families {
			for _, m := range f.Metric {
				label, value := gatewayLabel, list[i].gateway.String()
				m.Label = append(m.Label, &dto.LabelPair{Name: &label, Value: &value})
				slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
			}
			if all[name] == nil {
				all[name] = f
			} else {
				all[name].Metric = append(all[name].Metric, f.Metric...)
			}
		}
	}
	var out []*dto.MetricFamily
	for _, f := range all {
		out = append(out, f)
	}
	return out, nil
}
