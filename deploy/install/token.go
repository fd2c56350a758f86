package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// The token of a server that joins is given to its unit as a credential of systemd, by
// files in /run that are root's alone and go again.
const (
	tokenFile     = "/run/fairway-join-token"
	runtimeFolder = "/run/systemd/system"
	// credentialName is join.CredentialName.
	credentialName = "fairway-token"
	// joinTime is how long a server may take to join.
	joinTime = 2 * time.Minute
)

// restart starts the role's unit anew, with the token if there is one, and takes that
// away once the server has joined.
func (o *Options) restart(systemctl func(args ...string) error) error {
	if o.Token == "" {
		return systemctl("restart", UnitName(o.Role))
	}
	remove, err := o.lendToken()
	if err == nil {
		err = systemctl("daemon-reload")
	}
	if err == nil {
		err = systemctl("restart", UnitName(o.Role))
	}
	if err == nil {
		err = o.waitJoined()
	}
	return errors.Join(err, remove(), systemctl("daemon-reload"))
}

// lendToken puts the token where the unit's next starts find it.
func (o *Options) lendToken() (remove func() error, err error) {
	r := &record{root: o.Root}
	token, dropIn := r.at(tokenFile), r.at(filepath.Join(runtimeFolder, UnitName(o.Role)+".d", "join.conf"))
	remove = func() error {
		var errs []error
		for _, file := range []string{token, dropIn} {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove what the server joined with: %w", err))
			}
		}
		return errors.Join(errs...)
	}
	for _, file := range []string{token, dropIn} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return remove, fmt.Errorf("make folder: %w", err)
		}
	}
	if err := keptfile.Write(token, []byte(o.Token+"\n"), 0o600); err != nil {
		return remove, err
	}
	return remove, keptfile.Write(dropIn, []byte("[Service]\nLoadCredential="+credentialName+":"+tokenFile+"\n"), 0o644)
}

// waitJoined waits until the server is one of the cluster's.
func (o *Options) waitJoined() error {
	r := &record{root: o.Root}
	file := r.at(filepath.Join(o.dataDir(), "server.json"))
	for began := time.Now(); time.Since(began) < joinTime; time.Sleep(200 * time.Millisecond) {
		data, err := os.ReadFile(file)
		var member struct{ Stored bool }
		if err == nil && json.Unmarshal(data, &member) == nil && member.Stored {
			return nil
		}
	}
	return fmt.Errorf("the server hasn't joined within %s; the token isn't kept: see journalctl -u %s, and run the same command again", joinTime, UnitName(o.Role))
}

func (o *Options) dataDir() string {
	for _, arg := range slices.Backward(o.Args) {
		if dir, found := strings.CutPrefix(arg, "--data-dir="); found {
			return dir
		}
	}
	return dataFolder
}

// sayTokenUnused says that the token was not kept.
func (o *Options) sayTokenUnused() {
	if o.Token != "" {
		fmt.Fprintf(o.Out, "the token isn't kept: give it to the first start, by --token-file\n")
	}
}
