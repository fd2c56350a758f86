package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// kernelPackage is Debian's package that depends on the current cloud kernel.
const kernelPackage = "linux-image-cloud-amd64"

// mirrors have the packages of a release: as long as it is maintained, and
// afterwards.
var mirrors = []string{"http://deb.debian.org", "http://archive.debian.org"}

// keyring has the keys that Debian's releases are signed with, old ones too.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// releaseName is what may stand in apt's sources and in names of files.
var releaseName = regexp.MustCompile(`^[a-z]+(-backports)?$`)

// download gets the package of a release's kernel into a directory; that of the
// release that runs here if it is "".
func download(dir, release string) error {
	if release == "" {
		return downloadFrom(dir, nil)
	}
	if !releaseName.MatchString(release) {
		return fmt.Errorf("kernel %q: must be the name of a Debian release, such as bullseye", release)
	}
	var failed []error
	for _, mirror := range mirrors {
		options, err := aptOf(dir, mirror, release)
		if err != nil {
			return err
		}
		// One of the suites may have gone: what counts is whether the package is found.
		update := command(dir, "apt-get", append(options, "update", "-qq")...)
		if err = downloadFrom(dir, options); err == nil {
			return nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", mirror, errors.Join(update, err)))
	}
	return errors.Join(failed...)
}

// aptOf are the options with which apt knows the packages of a release, and
// leaves those of this machine alone.
func aptOf(dir, mirror, release string) ([]string, error) {
	state := filepath.Join(dir, "apt")
	if err := errors.Join(os.RemoveAll(state), os.MkdirAll(filepath.Join(state, "lists", "partial"), 0o755),
		os.MkdirAll(filepath.Join(state, "cache", "archives", "partial"), 0o755)); err != nil {
		return nil, err
	}
	var sources strings.Builder
	suites := map[string]string{release: "debian"}
	if !strings.HasSuffix(release, "-backports") {
		suites[release+"-security"] = "debian-security"
	}
	for suite, path := range suites {
		fmt.Fprintf(&sources, "deb [signed-by=%s arch=amd64] %s/%s %s main\n", keyring, mirror, path, suite)
	}
	list := filepath.Join(state, "sources.list")
	if err := os.WriteFile(list, []byte(sources.String()), 0o644); err != nil {
		return nil, err
	}
	return []string{
		"-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State::lists=" + filepath.Join(state, "lists"), "-o", "Dir::Cache=" + filepath.Join(state, "cache"),
		"-o", "Acquire::Check-Valid-Until=false", // releases that are no longer maintained
		"-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20",
	}, nil
}

// downloadFrom gets the package that kernelPackage depends on.
func downloadFrom(dir string, options []string) error {
	name, err := currentKernelPackage(options)
	if err != nil {
		return err
	}
	return command(dir, "apt-get", append(options, "download", name)...)
}

func currentKernelPackage(options []string) (string, error) {
	out, err := exec.Command("apt-cache", append(options, "depends", kernelPackage)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("apt-cache depends %s: %w: %s", kernelPackage, err, strings.TrimSpace(string(out)))
	}
	for _, line := range strings.Split(string(out), "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			return "linux-image-" + name, nil
		}
	}
	return "", fmt.Errorf("apt-cache depends %s names no kernel; is this Debian, and has apt-get update been run?", kernelPackage)
}

func command(dir string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
