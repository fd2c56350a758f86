package haproxy

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Requests are how many a socket has answered, by the class of the answer ("2xx").
// What a haproxy answers after it was replaced isn't counted.
func (e *Engine) Requests() (map[string]map[string]uint64, error) {
	e.mu.Lock()
	p := e.process
	e.mu.Unlock()
	out := map[string]map[string]uint64{}
	now := map[string]map[string]uint64{}
	if p != nil { // asked without the mutex: changes don't wait for it
		var err error
		if now, err = p.requests(); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process != p { // it has been replaced meanwhile, and is counted
		now = map[string]map[string]uint64{}
	}
	if e.plan == nil {
		return out, nil
	}
	for _, s := range e.plan.sockets {
		sum := map[string]uint64{}
		for _, list := range []map[string]map[string]uint64{now, e.counted} {
			for _, name := range []string{s.id, s.id + "h"} {
				for class, n := range list[name] {
					sum[class] += n
				}
			}
		}
		out[s.model.Name] = sum
	}
	return out, nil
}

// keepCount adds what a haproxy that is replaced has answered.
func (e *Engine) keepCount(p *process) {
	list, err := p.requests()
	if err != nil {
		e.log.Warn("the request counts of the replaced haproxy could not be read", "error", err)
		return
	}
	for name, classes := range list {
		if e.counted[name] == nil {
			e.counted[name] = map[string]uint64{}
		}
		for class, n := range classes {
			e.counted[name][class] += n
		}
	}
}

// requests are those of frontends, by name and class.
func (p *process) requests() (map[string]map[string]uint64, error) {
	text, err := p.control.ask("show stat -1 1 -1")
	if err != nil {
		return nil, err
	}
	return readStats(text)
}

func readStats(text string) (map[string]map[string]uint64, error) {
	r := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# ")))
	r.FieldsPerRecord = -1
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("read figures of haproxy: %w", err)
	}
	out := map[string]map[string]uint64{}
	for {
		row, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read figures of haproxy: %w", err)
		}
		classes := map[string]uint64{}
		for i, name := range head {
			class, is := strings.CutPrefix(name, "hrsp_")
			if !is || i >= len(row) || len(class) != 3 || class[0] < '1' || class[0] > '5' {
				continue
			}
			if n, err := strconv.ParseUint(row[i], 10, 64); err == nil && n > 0 {
				classes[class] = n
			}
		}
		out[row[0]] = classes
	}
}
