package deploy

import "embed"

// Units are the systemd units, systemd/fairway-ROLE.service, whose program is
// /usr/local/bin/fairway.
//
//go:embed systemd/*.service
var Units embed.FS
