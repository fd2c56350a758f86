package check

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Setting is one setting of a check beside its text: the suffix of its
// annotation and the field of a published endpoint's file.
type Setting struct {
	Name  string
	parse func(*Spec, string) error
}

// Set reads the setting's value into s. An error leaves s as it was.
func (t Setting) Set(s *Spec, value string) error {
	next := *s
	if err := t.parse(&next, strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("%q: %w", value, err)
	}
	*s = next
	return nil
}

// Settings are all settings of a check. The order matters: a timeout is limited
// by the interval.
func Settings() []Setting {
	return []Setting{
		{"interval", parseInterval},
		{"timeout", parseTimeout},
		{"rise", func(s *Spec, v string) error { return parseCount(&s.Rise, v) }},
		{"fall", func(s *Spec, v string) error { return parseCount(&s.Fall, v) }},
		{"status", parseStatus},
		{"text", parseText},
		{"port", parsePort},
		{"host", parseHost},
	}
}

const (
	// longest is the longest interval: whoever wants less wants no check.
	longest = time.Hour
	// longestTimeout is for how long an endpoint that says nothing may hold one of
	// the places for checks under way, which all Services share.
	longestTimeout = time.Minute
)

func parseInterval(s *Spec, text string) error {
	d, err := parseDuration(text)
	if err != nil {
		return err
	}
	s.Interval, s.Timeout = d, min(s.Timeout, d)
	return nil
}

func parseTimeout(s *Spec, text string) error {
	d, err := parseDuration(text)
	if err == nil && d > longestTimeout {
		err = fmt.Errorf("must not be longer than %s", longestTimeout)
	}
	if err == nil && d > s.Interval {
		err = fmt.Errorf("must not be longer than the interval, %s", s.Interval)
	}
	if err != nil {
		return err
	}
	s.Timeout = d
	return nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < Shortest || d > longest {
		return 0, fmt.Errorf("must be a duration from %s to %s, such as 2s", Shortest, longest)
	}
	return d, nil
}

func parseCount(to *int, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 100 {
		return errors.New("must be a whole number from 1 to 100")
	}
	*to = n
	return nil
}

func parseStatus(s *Spec, text string) error {
	var list []StatusRange
	for item := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			to = from
		}
		low, errLow := strconv.Atoi(from)
		high, errHigh := strconv.Atoi(to)
		if errLow != nil || errHigh != nil || low < 100 || high > 599 || low > high {
			return errors.New("must be status codes or ranges of them, such as 200-299,401")
		}
		list = append(list, StatusRange{low, high})
	}
	s.Status = list
	return nil
}

func parseText(s *Spec, text string) error {
	if len(text) > maxPayload {
		return fmt.Errorf("must have at most %d bytes", maxPayload)
	}
	s.Text = text
	return nil
}

func parsePort(s *Spec, text string) error {
	if n, err := strconv.Atoi(text); err == nil && (n < 1 || n > 65535) {
		return errors.New("must be a port's name or a number from 1 to 65535")
	}
	s.Port = text
	return nil
}

func parseHost(s *Spec, text string) error {
	if len(text) > 253 || strings.ContainsFunc(text, func(r rune) bool {
		return r != '.' && r != '-' && r != ':' && r != '[' && r != ']' && r != '_' &&
			(r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return errors.New("must be a host name, such as www.example.org")
	}
	s.Host = text
	return nil
}
