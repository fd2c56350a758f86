package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/rpmpack"
)

// machines are the architectures as RPM calls them.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// writeRPM writes an RPM package of the files of an unpacked Debian one, with the scripts of a folder. Data of a
// package that is removed stay, since RPM has no purge.
func (r release) writeRPM(root, architecture, scripts, folder string) error {
	version := rpmVersion(r.version)
	pack, err := rpmpack.NewRPM(rpmpack.RPMMetaData{
		Name: "fairway", Version: version, Release: "1", Arch: machines[architecture], OS: "linux",
		Vendor: "Fairway", Packager: "The Fairway authors <maintainers@fairway.dev>", Licence: "Apache-2.0", URL: "https://github.com/fairway-net/fairway",
		BuildTime: r.time, BuildHost: "localhost", Compressor: "gzip:9", Summary: "Kubernetes Services in one binary",
		Description: "The Service API, the controllers behind it, and load balancing by nftables, eBPF, IPVS, iptables or in userspace,\nwith cluster DNS and addresses that plain machines announce.",
	})
	if err != nil {
		return err
	}
	for name, add := range map[string]func(string){"postin": pack.AddPostin, "preun": pack.AddPreun, "postun": pack.AddPostun} {
		text, err := os.ReadFile(filepath.Join(scripts, name))
		if err != nil {
			return err
		}
		add(string(text))
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() { // folders belong to other packages
			return err
		}
		file, err := r.rpmFile(root, path, entry)
		if err == nil {
			pack.AddFile(file)
		}
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(folder, fmt.Sprintf("fairway-%s-1.%s.rpm", version, machines[architecture])))
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // closed below
	if err := pack.Write(out); err != nil {
		return err
	}
	return out.Close()
}

// rpmFile is a file or a link as RPM packages have it. What an administrator changes stays.
func (r release) rpmFile(root, path string, entry fs.DirEntry) (file rpmpack.RPMFile, err error) {
	name, err := filepath.Rel(root, path)
	if err != nil {
		return file, err
	}
	name = "/" + name
	if below, is := strings.CutPrefix(name, "/lib/"); is { // a link where there is RPM
		name = "/usr/lib/" + below
	}
	file = rpmpack.RPMFile{Name: name, Owner: "root", Group: "root", MTime: uint32(r.time.Unix())} //nolint:gosec // until 2106
	if entry.Type()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		file.Mode, file.Body = 0o120777, []byte(to)
		return file, err
	}
	info, err := entry.Info()
	if err != nil {
		return file, err
	}
	file.Mode = 0o100644
	if info.Mode()&0o111 != 0 {
		file.Mode = 0o100755
	}
	if strings.HasPrefix(name, "/etc/") {
		file.Type = rpmpack.ConfigFile | rpmpack.NoReplaceFile
	}
	file.Body, err = os.ReadFile(path)
	return file, err
}

// rpmVersion is a version as RPM has it: without hyphens; a commit alone is older than all versions.
func rpmVersion(version string) string {
	if first := strings.TrimPrefix(version, "v"); first != "" && first[0] >= '0' && first[0] <= '9' && strings.Contains(first, ".") {
		version = first
	} else {
		version = "0~git." + version
	}
	return strings.ReplaceAll(version, "-", "+")
}
