package deploy

import "embed"

// Units are the systemd units, systemd/fairway-ROLE.service, whose program is
// /usr/local/bin/fairway, and systemd/user.conf, a drop-in for the server's.
//
//go:embed systemd
var Units embed.FS
