package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fairway-net/fairway/ingress/model"
)

// AccessFormat is the form of the access log's lines.
type AccessFormat string

const (
	// AccessJSON has an object for each request, with AccessFields of choice.
	AccessJSON AccessFormat = "json"
	// AccessCombined is Apache's combined log format, which most tools read. No user is named.
	AccessCombined AccessFormat = "combined"
)

// accessField is one of a line of JSON.
type accessField struct {
	name  string
	usual bool // it is in the line where no fields were chosen
	of    func(*model.Access) slog.Value
}

func text(of func(*model.Access) string) func(*model.Access) slog.Value {
	return func(a *model.Access) slog.Value { return slog.StringValue(of(a)) }
}

// accessFields are in the order of the line. Queries and what browsers say of their users
// are only there if they are asked for.
var accessFields = []accessField{
	{"client", true, func(a *model.Access) slog.Value { return slog.AnyValue(a.Client) }},
	{"method", true, text(func(a *model.Access) string { return a.Method })},
	{"host", true, text(func(a *model.Access) string { return a.Host })},
	{"path", true, text(func(a *model.Access) string { return a.Path })},
	{"query", false, text(func(a *model.Access) string { return a.Query })},
	{"protocol", true, text(func(a *model.Access) string { return a.Protocol })},
	{"status", true, func(a *model.Access) slog.Value { return slog.IntValue(a.Status) }},
	{"bytes", true, func(a *model.Access) slog.Value { return slog.Int64Value(a.Bytes) }},
	{"seconds", true, func(a *model.Access) slog.Value { return slog.Float64Value(a.Took.Seconds()) }},
	{"socket", true, text(func(a *model.Access) string { return a.Socket })},
	{"route", true, text(func(a *model.Access) string { return a.Route })},
	{"rule", true, text(func(a *model.Access) string { return a.Rule })},
	{"endpoint", true, text(func(a *model.Access) string { return a.Endpoint })},
	{"reason", true, text(func(a *model.Access) string { return a.Reason })},
	{"referer", false, text(func(a *model.Access) string { return a.Referer })},
	{"trace", false, text(func(a *model.Access) string { return a.Trace })},
	{"user_agent", false, text(func(a *model.Access) string { return a.UserAgent })},
}

// AccessFieldNames are what may be chosen for a line of JSON.
func AccessFieldNames() []string {
	var names []string
	for _, f := range accessFields {
		names = append(names, f.name)
	}
	return names
}

// AccessLog writes a line for every request. Of JSON it has the fields that are named,
// or the usual ones if none is.
func AccessLog(w io.Writer, format AccessFormat, fields []string) func(*model.Access) {
	line := jsonLine(w, fields)
	if format == AccessCombined {
		line = combinedLine(w)
	}
	return func(a *model.Access) {
		if !a.Unlogged {
			line(a)
		}
	}
}

func jsonLine(w io.Writer, fields []string) func(*model.Access) {
	var chosen []accessField
	for _, f := range accessFields {
		if len(fields) == 0 && f.usual || slices.Contains(fields, f.name) {
			chosen = append(chosen, f)
		}
	}
	log := slog.New(slog.NewJSONHandler(w, nil))
	return func(a *model.Access) {
		attrs := make([]any, 0, len(accessFields))
		for _, f := range chosen {
			attrs = append(attrs, slog.Attr{Key: f.name, Value: f.of(a)})
		}
		log.Info("request", attrs...)
	}
}

// apacheTime is the form of times in Apache's logs.
const apacheTime = "02/Jan/2006:15:04:05 -0700"

// combinedLine writes `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i"` of Apache's
// mod_log_config.
func combinedLine(w io.Writer) func(*model.Access) {
	var mu sync.Mutex
	return func(a *model.Access) {
		client, uri, size := "-", a.Path, "-"
		if a.Client.IsValid() {
			client = a.Client.String()
		}
		if a.Query != "" {
			uri += "?" + a.Query
		}
		if a.Bytes > 0 {
			size = strconv.FormatInt(a.Bytes, 10)
		}
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(w, "%s - - [%s] \"%s %s %s\" %d %s \"%s\" \"%s\"\n", client, a.Time.Format(apacheTime),
			apacheText(a.Method), apacheText(uri), apacheText(a.Protocol), a.Status, size, orDash(a.Referer), orDash(a.UserAgent))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return apacheText(s)
}

// apacheText writes what clients said as Apache does: quotes, backslashes and all that isn't
// printable ASCII are escaped, so that nobody forges lines or fields.
func apacheText(s string) string {
	plain := func(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }
	var out strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case plain(c):
			out.WriteByte(c)
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, `\x%02x`, c)
		}
	}
	return out.String()
}
