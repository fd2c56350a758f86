package legacytrace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// loggers is the folder of the setting, of the network namespace of who opens a file in it.
const loggers = "/proc/sys/net/netfilter/nf_log"

// wanted is the logger that tells a socket.
const wanted = "nfnetlink_log"

// families are the address families that have rules of iptables-legacy.
var families = map[uint8]string{unix.NFPROTO_IPV4: "ip_tables_names", unix.NFPROTO_IPV6: "ip6_tables_names"}

// InUse reports whether iptables-legacy has tables here.
func InUse() bool {
	for _, file := range families {
		if names, err := os.ReadFile("/proc/thread-self/net/" + file); err == nil && len(strings.TrimSpace(string(names))) > 0 {
			return true
		}
	}
	return false
}

// setting is the logger of each address family as it was.
type setting map[uint8]string

func fileOf(family uint8) string { return filepath.Join(loggers, strconv.Itoa(int(family))) }

// take has the wanted logger take over, and returns what was there before of the families
// whose logger was another one. What that was is marked first. Where a keeper was killed
// with all its clients, it is what was there before those.
func take() (before setting, err error) {
	if before, err = readMark(); err != nil {
		return nil, err
	}
	if before == nil {
		before = setting{}
	}
	for family := range families {
		text, err := os.ReadFile(fileOf(family))
		if errors.Is(err, fs.ErrNotExist) {
			continue // without IPv6
		}
		if err != nil {
			return nil, err
		}
		if was := strings.TrimSpace(string(text)); was != wanted {
			before[family] = was
		}
	}
	if len(before) == 0 {
		return before, nil
	}
	if err := before.mark(); err != nil {
		return nil, err
	}
	for family := range before {
		if err := set(family, wanted); err != nil {
			return nil, errors.Join(err, before.restore(), unmark())
		}
	}
	return before, nil
}

// restore puts the setting back, unless somebody has changed it since.
func (s setting) restore() error {
	var errs []error
	for family, was := range s {
		if text, err := os.ReadFile(fileOf(family)); err == nil && strings.TrimSpace(string(text)) == wanted {
			errs = append(errs, set(family, was))
		}
	}
	return errors.Join(errs...)
}

func set(family uint8, logger string) error {
	if err := os.WriteFile(fileOf(family), []byte(logger), 0); err != nil {
		return fmt.Errorf("set net.netfilter.nf_log.%d to %s: %w", family, logger, err)
	}
	return nil
}

// String is the setting as it is sent: "2=NONE 10=nf_log_syslog".
func (s setting) String() string {
	var words []string
	for family, was := range s {
		words = append(words, fmt.Sprintf("%d=%s", family, was))
	}
	return strings.Join(words, " ")
}

// parseSetting reads it back.
func parseSetting(text string) setting {
	s := setting{}
	for _, word := range strings.Fields(text) {
		number, was, _ := strings.Cut(word, "=")
		if family, err := strconv.ParseUint(number, 10, 8); err == nil && was != "" {
			s[uint8(family)] = was
		}
	}
	return s
}
