package maps

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// apply does what a plan says. Elements for which there is no room are left
// out and said in the error, until they are deleted or others make room for them.
func (s *Store) apply(p *program.Plan) error {
	if err := s.put(p.Put); err != nil {
		return err
	}
	for _, t := range slices.Backward(program.TableNames) {
		for _, e := range p.Delete[t] {
			delete(s.leftOut[t], e.Key)
			if err := s.Tables[t].Remove(e.Key); err != nil {
				return err
			}
		}
		var again []program.Entry
		for key, value := range s.leftOut[t] {
			if len(again) == len(p.Delete[t]) {
				break
			}
			again = append(again, program.Entry{Table: t, Key: key, Value: value})
		}
		if err := s.putAll(t, again); err != nil {
			return err
		}
	}
	return s.leftOutError()
}

func (s *Store) put(entries program.Entries) error {
	for _, t := range program.TableNames {
		if err := s.putAll(t, entries[t]); err != nil {
			return err
		}
	}
	return nil
}

// putAll puts elements of a table, and keeps in mind those that are left out.
func (s *Store) putAll(t program.TableName, list []program.Entry) error {
	leftOut, err := s.Tables[t].putAll(list)
	if err != nil {
		return err
	}
	if len(s.leftOut[t]) > 0 {
		for _, e := range list {
			delete(s.leftOut[t], e.Key)
		}
	}
	for _, e := range leftOut {
		if s.leftOut[t] == nil {
			s.leftOut[t] = map[string]string{}
		}
		s.leftOut[t][e.Key] = e.Value
	}
	return nil
}

func (s *Store) leftOutError() error {
	n, where := 0, []string(nil)
	for _, t := range program.TableNames {
		if some := len(s.leftOut[t]); some > 0 {
			n, where = n+some, append(where, string(t))
		}
	}
	if n == 0 {
		return nil
	}
	return &kernel.FullError{What: "eBPF map " + strings.Join(where, ", "), LeftOut: n}
}

// reserve makes room for so many entries, and for what ids count, which it sets to 0. The
// kernel makes each change of a map of maps wait, so they are made together.
func (s *Store) reserve(sizes map[program.TableName]int, st *program.State) error {
	ids := st.Allocated
	var group errgroup.Group
	for name, n := range sizes {
		if n > 0 {
			group.Go(func() error { return s.Tables[name].reserve(n + n/2) })
		}
	}
	for _, c := range []*Chunked{s.counts, s.States} {
		group.Go(func() error { return c.prepare(ids) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, g := range ids {
		if err := errors.Join(s.counts.Clear(g), s.States.Clear(g)); err != nil {
			return err
		}
	}
	st.Allocated = nil
	return nil
}

// Write does what a plan of a state's says.
func (s *Store) Write(plan *program.Plan, st *program.State) error {
	if err := s.reserve(nil, st); err != nil {
		return err
	}
	s.digests.begin(plan)
	if err := s.apply(plan); err != nil {
		s.digests.forget()
		return err
	}
	s.digests.end(plan)
	return nil
}

// atOnce is how many elements are handed to the kernel together. All of them, with their
// keys and values, were 14 MB at 10,000 Services of five endpoints.
const atOnce = 8192

// Compare reads the tables, adopts their ids, and writes what is missing or
// wrong. The error of a full map comes with the state.
func (s *Store) Compare(want *model.Table, scheduler string) (*program.State, error) {
	s.digests.forget()
	have, err := s.Read()
	if err != nil {
		return nil, err
	}
	s.leftOut = program.Contents{}
	next, noID := program.Adopt(have, want, scheduler)
	if err := s.reserve(next.Sizes(), next); err != nil {
		return nil, err
	}
	digests := newDigests()
	noRoom := s.mend(have.Differences(digested(next.All(want), digests)))
	if noRoom != nil && !kernel.IsFull(noRoom) {
		return nil, noRoom
	}
	if noRoom == nil {
		s.digests.learn(digests)
	}
	if err := s.SetRanges(want.Settings.Reserved); err != nil {
		return nil, err
	}
	return next, errors.Join(noID, noRoom)
}

// digested adds to digests what goes by.
func digested(all iter.Seq[program.Entry], to map[program.TableName]*digest) iter.Seq[program.Entry] {
	return func(yield func(program.Entry) bool) {
		for e := range all {
			to[e.Table].add(e.Key, e.Value)
			if !yield(e) {
				return
			}
		}
	}
}

// mend puts what tables lack, some at a time, and deletes last.
func (s *Store) mend(differences iter.Seq[program.Difference]) error {
	plan, n := program.NewPlan(), 0
	for d := range differences {
		plan.Add(d)
		if n++; n%atOnce == 0 {
			if err := s.put(plan.Put); err != nil {
				return err
			}
			plan.Put.Empty()
		}
	}
	return s.apply(plan)
}
