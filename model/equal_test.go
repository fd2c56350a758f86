package model

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// The tests here change every field of a value, one at a time and whatever is in
// it, and see that it is noticed: a field that Equal forgets is never programmed.

// flips calls visit with v changed in one field after another, and puts every
// field back. Lists are changed in each element, made longer and shorter.
func flips(v reflect.Value, name string, visit func(name string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	try := func(what string, value reflect.Value) {
		v.Set(value)
		visit(name + what)
		v.Set(old)
	}
	switch value := v.Interface().(type) {
	case netip.Addr:
		try("", reflect.ValueOf(value.Next()))
		return
	case netip.Prefix:
		try("", reflect.ValueOf(netip.PrefixFrom(value.Addr(), value.Bits()-1)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			flips(v.Field(i), name+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Array:
		for i := range v.Len() {
			flips(v.Index(i), fmt.Sprintf("%s[%d]", name, i), visit)
		}
	case reflect.Slice:
		if v.Len() == 0 {
			panic(name + " is empty: nothing of it would be tried")
		}
		for i := range v.Len() {
			whole := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(whole, old)
			v.Set(whole)
			flips(v.Index(i), fmt.Sprintf("%s[%d]", name, i), visit)
			v.Set(old)
		}
		try(" shorter", old.Slice(0, old.Len()-1))
		try(" longer", reflect.Append(old.Slice3(0, old.Len(), old.Len()), reflect.Zero(v.Type().Elem())))
		try(" empty", reflect.MakeSlice(v.Type(), 0, 0))
		try(" nil", reflect.Zero(v.Type()))
	case reflect.Bool:
		try("", reflect.ValueOf(!v.Bool()).Convert(v.Type()))
	case reflect.String:
		try("", reflect.ValueOf(v.String()+"x").Convert(v.Type()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		try("", reflect.ValueOf(v.Uint()+1).Convert(v.Type()))
	case reflect.Int64:
		try("", reflect.ValueOf(v.Int()+1).Convert(v.Type()))
	default:
		panic(name + " is of a kind that isn't tried")
	}
}

func fullPool() *Pool {
	return &Pool{
		ID:       PoolID{Name: "default/web:", Proto: TCP},
		Backends: []Backend{{Addr: addr("10.244.1.2"), Port: 80, Weight: 1}, {Addr: addr("10.244.1.3"), Port: 80, Weight: 2, Local: true}},
		Draining: []Backend{{Addr: addr("10.244.1.4"), Port: 80, Weight: 1}},
		Stable:   true,
		Affinity: time.Minute, Scheduler: MaglevHashing, Orphans: OrphansDeadline, OrphanDeadline: time.Second,
	}
}

func fullFrontend() *Frontend {
	id := PoolID{Name: "default/web:", Proto: TCP}
	return &Frontend{
		Key: Key{addr("192.0.2.1"), 80, TCP}, Name: "default/web:", FrontendType: ExternalIP,
		Routes:  [NumOrigins]Route{{Pool: id}, {Pool: id, Masquerade: true}, {Pool: id, Masquerade: true, Direct: true}},
		Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}
}

func fullSettings() *Settings {
	addrs, prefixes := []netip.Addr{addr("192.0.2.1")}, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	return &Settings{
		Pods:      PodMatch{Prefixes: prefixes, Interfaces: []string{"cali*"}},
		NodeAddrs: addrs, NodePortAddrs: addrs, Reserved: prefixes, Exempt: addrs,
	}
}

// TestEveryFieldOfPool and the others also see that Since and Delta tell.
func TestEveryFieldOfPool(t *testing.T) {
	same, p := fullPool(), fullPool()
	if !p.Equal(same) {
		t.Error("equal pools differ")
	}
	flips(reflect.ValueOf(p).Elem(), "Pool", func(name string) {
		if p.Equal(same) || same.Equal(p) {
			t.Errorf("%s: Equal doesn't notice", name)
		}
		copied := *p
		told(t, name, func(e *Edit) { e.SetPool(same) }, func(e *Edit) { e.DeletePool(same.ID); e.SetPool(&copied) })
	})
	if !p.Equal(same) {
		t.Error("not everything was put back")
	}
}

func TestEveryFieldOfFrontend(t *testing.T) {
	same, f := fullFrontend(), fullFrontend()
	if !f.Equal(same) {
		t.Error("equal frontends differ")
	}
	flips(reflect.ValueOf(f).Elem(), "Frontend", func(name string) {
		if f.Equal(same) || same.Equal(f) {
			t.Errorf("%s: Equal doesn't notice", name)
		}
		copied := *f
		told(t, name, func(e *Edit) { e.SetFrontend(same) }, func(e *Edit) { e.DeleteFrontend(same.Key); e.SetFrontend(&copied) })
	})
}

// TestNoSourcesIsNotAllSources: an empty list lets nobody in, none everybody.
func TestNoSourcesIsNotAllSources(t *testing.T) {
	all, none := fullFrontend(), fullFrontend()
	all.Sources, none.Sources = nil, []netip.Prefix{}
	if all.Equal(none) || none.Equal(all) {
		t.Error("Equal doesn't notice")
	}
	told(t, "Sources", func(e *Edit) { e.SetFrontend(none) }, func(e *Edit) { e.SetFrontend(all) })
}

func TestEveryFieldOfSettings(t *testing.T) {
	same, s := fullSettings(), fullSettings()
	if !s.Equal(same) {
		t.Error("equal settings differ")
	}
	flips(reflect.ValueOf(s).Elem(), "Settings", func(name string) {
		if s.Equal(same) || same.Equal(s) {
			t.Errorf("%s: Equal doesn't notice", name)
		}
		copied := *s
		told(t, name, func(e *Edit) { e.SetSettings(same) }, func(e *Edit) { e.SetSettings(&copied) })
	})
}

// told checks that a change shows in Since, and that Delta makes it.
func told(t *testing.T, name string, before, after func(*Edit)) {
	t.Helper()
	e := NewTable().Edit()
	before(e)
	old := e.Table()
	e = old.Edit()
	after(e)
	next := e.Table()
	if next.Since(old).Empty() {
		t.Errorf("%s: Since doesn't tell", name)
	}
	if made := next.Delta(old).Apply(old); !made.Since(next).Empty() || !next.Since(made).Empty() {
		t.Errorf("%s: Delta doesn't make it", name)
	}
}
