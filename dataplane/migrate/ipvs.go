package migrate

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// IPVSServes reports whether IPVS has virtual servers at frontends of the table, or
// remembers connections to them.
func IPVSServes(want *model.Table) (bool, error) {
	for _, list := range []struct {
		file string
		key  func(line string) (model.Key, bool)
	}{{"ip_vs", serverOfIPVS}, {"ip_vs_conn", connectionOfIPVS}} {
		found, err := anyFrontend(want, "/proc/thread-self/net/"+list.file, list.key)
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// anyFrontend reports whether a file has a line about a frontend.
func anyFrontend(want *model.Table, file string, key func(line string) (model.Key, bool)) (found bool, err error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // no IPVS in this kernel
	}
	if err != nil {
		return false, fmt.Errorf("look for IPVS: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if k, ok := key(lines.Text()); ok && want.Frontend(k) != nil {
			return true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("read %s: %w", file, err)
	}
	return false, nil
}

var protocolsOfIPVS = map[string]model.Protocol{"TCP": model.TCP, "UDP": model.UDP, "SCTP": model.SCTP}

// serverOfIPVS reads a line of ip_vs: "TCP  0A60000A:0050 rr", or with an IPv6
// address in brackets. Those of backends begin with an arrow.
func serverOfIPVS(line string) (model.Key, bool) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return model.Key{}, false
	}
	at := strings.LastIndexByte(fields[1], ':')
	if at < 0 {
		return model.Key{}, false
	}
	return keyOfIPVS(fields[0], fields[1][:at], fields[1][at+1:])
}

// connectionOfIPVS reads a line of ip_vs_conn: "TCP 0AF40102 8CE2 0A60000A 0050
// 0AF40002 1F90 ...". Without a client's port it is the memory of session affinity.
func connectionOfIPVS(line string) (model.Key, bool) {
	fields := strings.Fields(line)
	if len(fields) < 7 || fields[2] == "0000" {
		return model.Key{}, false
	}
	return keyOfIPVS(fields[0], fields[3], fields[4])
}

func keyOfIPVS(proto, addr, port string) (model.Key, bool) {
	k := model.Key{Proto: protocolsOfIPVS[proto]}
	n, err := strconv.ParseUint(port, 16, 16)
	if k.Proto == 0 || err != nil {
		return k, false
	}
	k.Port = uint16(n)
	if inner, v6 := strings.CutPrefix(addr, "["); v6 {
		k.Addr, err = netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return k, err == nil
	}
	raw, err := hex.DecodeString(addr)
	if err != nil || len(raw) != 4 {
		return k, false
	}
	k.Addr = netip.AddrFrom4([4]byte(raw))
	return k, true
}
