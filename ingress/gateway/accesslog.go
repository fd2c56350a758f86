package gateway

import (
	"log/slog"

	"github.com/fairway-net/fairway/ingress/model"
)

// AccessLog writes a line for every request.
func AccessLog(log *slog.Logger) func(*model.Access) {
	return func(a *model.Access) {
		if a.Unlogged {
			return
		}
		log.Info("request", "client", a.Client, "method", a.Method, "host", a.Host, "path", a.Path, "protocol", a.Protocol,
			"status", a.Status, "bytes", a.Bytes, "seconds", a.Took.Seconds(), "socket", a.Socket, "route", a.Route, "rule", a.Rule,
			"endpoint", a.Endpoint, "reason", a.Reason)
	}
}
