//go:build !race

package l2

import (
	"fmt"
	"net"
	"testing"
)

func FuzzARP(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	f.Add(probeARP(vip, mac))
	for _, frame := range gratuitousARP(vip, mac) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, ok := parseARP(frame)
		if !ok {
			return
		}
		again, ok := parseARP(m.frame(broadcast))
		if !ok || fmt.Sprint(again) != fmt.Sprint(m) {
			t.Errorf("read %v, then %v", m, again)
		}
	})
}

func FuzzNDP(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	f.Add(probeNS(vip6, mac))
	f.Add(unsolicitedNA(vip6, mac))
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, ok := parseNDP(frame)
		if !ok {
			return
		}
		if again, ok := parseNDP(m.frame()); !ok || again.Target != m.Target || again.Source != m.Source || again.Type != m.Type {
			t.Errorf("read %+v, then %+v", m, again)
		}
		if _, ok := parseNDP(m.answer(mac)); !ok {
			t.Errorf("the answer to %+v is none", m)
		}
	})
}
