package deploy

import "embed"

// Units are the systemd units, systemd/fairway-ROLE.service, whose program is
// /usr/local/bin/fairway, and systemd/user.conf, a drop-in for the server's.
//
//go:embed systemd
var Units embed.FS

// Monitoring is what `fairway monitoring` prints: Prometheus' configuration for plain machines,
// what it needs the right to, alerts, and a dashboard.
//
//go:embed monitoring/prometheus.yaml monitoring/prometheus-rights.yaml monitoring/prometheusrule.yaml monitoring/dashboard.json
var Monitoring embed.FS
