package realcluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Images that aren't Kubernetes' own.
const (
	// ProbeImage answers as lab/echo does, and asks what it is told to (see Client).
	ProbeImage = "fairway.test/probe:1"
	// FairwayImage and tag are what the chart's values say.
	FairwayImage = "fairway.test/fairway"
	FairwayTag   = "test"
	LastTag      = "last" // the last release's
	agnhostImage = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
	// dnsImage asks names by glibc; so does our agnhost, whose programs are Debian's.
	dnsImage     = "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0"
	fairwayAgent = FairwayImage + ":" + FairwayTag
)

// images writes the files of the cluster's images, and returns them.
func (c *Cluster) images() (files []string, err error) {
	list, err := c.imageList()
	if err != nil {
		return nil, err
	}
	for k, i := range list {
		file := filepath.Join(c.dir, fmt.Sprintf("image%d.tar", k))
		if err := i.write(file); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (c *Cluster) imageList() ([]image, error) {
	o := c.options
	out, err := exec.Command(filepath.Join(o.Programs, "kubeadm"), "config", "images", "list", "--kubernetes-version", "v"+o.Version).Output()
	if err != nil {
		return nil, fmt.Errorf("ask kubeadm for its images: %w", err)
	}
	// What the images of a distribution have: iptables in both variants, and modprobe.
	debian := filepath.Join(c.dir, "debian")
	if out, err := exec.Command(filepath.Join(o.Deploy, "collect-programs"), debian).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("collect programs: %w: %s", err, out)
	}
	program := func(at, file string, names ...string) image {
		return image{Names: names, Programs: map[string]string{at: file}, Entrypoint: []string{"/" + at}}
	}
	fairway := program("usr/local/bin/fairway", o.Agent, fairwayAgent)
	fairway.Folder = debian
	list := []image{fairway}
	if o.Last != "" {
		last := program("usr/local/bin/fairway", o.Last, FairwayImage+":"+LastTag)
		last.Folder = debian
		list = append(list, last)
	}
	if o.CNI.isFlannel() {
		list = append(list, c.flannelImage(debian))
	}
	if o.Agnhost != "" {
		agnhost, err := o.agnhost(debian)
		if err != nil {
			return nil, err
		}
		list = append(list, agnhost)
	}
	for _, name := range strings.Fields(string(out)) {
		base, _, _ := strings.Cut(filepath.Base(name), ":")
		i := program("usr/local/bin/"+base, filepath.Join(o.Programs, base), name)
		switch base {
		case "pause":
			c.pause = name
			i = program("probe", o.Probe, name, ProbeImage)
		case "coredns":
			i = program("coredns", o.CoreDNS, name)
		case "kube-proxy":
			nft, err := exec.LookPath("nft")
			if err != nil {
				return nil, err
			}
			i.Folder, i.Programs["usr/sbin/nft"] = debian, nft
		}
		for _, file := range i.Programs {
			if _, err := os.Stat(file); err != nil {
				return nil, fmt.Errorf("program of image %s: %w", name, err)
			}
		}
		list = append(list, i)
	}
	return list, nil
}

// agnhost is the image of Kubernetes' own tests, with the programs that its Dockerfile
// names and those that tests' scripts run.
func (o *Options) agnhost(debian string) (image, error) {
	i := image{Names: []string{agnhostImage, dnsImage}, Folder: debian, Entrypoint: []string{"/agnhost"}, Args: []string{"pause"},
		Programs: map[string]string{"agnhost": o.Agnhost, "coredns": o.CoreDNS}}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		i.Programs[name] = filepath.Join(filepath.Dir(o.Agnhost), name)
	}
	for at, name := range map[string]string{"sh": "dash", "nc": "nc.openbsd"} {
		file, err := exec.LookPath(name)
		if err != nil {
			return i, fmt.Errorf("image of agnhost: %w", err)
		}
		i.Programs["usr/bin/"+at] = file
	}
	for name := range strings.FieldsSeq("bash cat curl date dig getent grep hostname ip ls mkdir nslookup rm seq sleep ss sysctl tail test wc") {
		file, err := exec.LookPath(name)
		if err != nil {
			return i, fmt.Errorf("image of agnhost: %w", err)
		}
		i.Programs["usr/bin/"+name] = file
	}
	return i, nil
}
