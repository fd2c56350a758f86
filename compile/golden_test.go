package compile

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/model"
)

var update = flag.Bool("update", false, "write what comes out into the golden files")

// TestGolden runs the cases in testdata: archives whose sections are steps, in
// order. "config" and "node" set what cmd-line flags and the Node say,
// "*.yaml" applies objects, "delete" removes them ("service ns/name"), and
// "table", "problems", "health" hold what is true then.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := New(testConfig)
			c.SetNode(testNode)
			for i := range archive.Files {
				section := &archive.Files[i]
				if err := step(t, c, section); err != nil {
					t.Fatalf("section %s: %v", section.Name, err)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func step(t *testing.T, c *Compiler, section *txtar.File) error {
	switch {
	case section.Name == "config":
		config, err := parseConfig(section.Data)
		c.SetConfig(config)
		return err
	case section.Name == "node":
		var node Node
		err := yaml.UnmarshalStrict(section.Data, &node)
		c.SetNode(node)
		return err
	case strings.HasSuffix(section.Name, ".yaml"):
		return apply(c, section.Data)
	case section.Name == "delete":
		return remove(c, string(section.Data))
	}
	table := c.Table()
	if err := table.Validate(); err != nil {
		t.Errorf("section %s: %v", section.Name, err)
	}
	got := ""
	switch section.Name {
	case "table":
		got = table.String()
	case "problems":
		for _, p := range c.Problems() {
			got += fmt.Sprintf("%s %s: %s\n", p.Service, p.Reason, p.Message)
		}
	case "health":
		for _, h := range c.HealthChecks() {
			got += fmt.Sprintf("%s port %d: %d local\n", h.Service, h.Port, h.Local)
		}
	default:
		return fmt.Errorf("no such section")
	}
	if *update {
		section.Data = []byte(got)
	} else if got != string(section.Data) {
		t.Errorf("section %s: got\n%s\nwant\n%s", section.Name, got, section.Data)
	}
	return nil
}

var (
	testConfig = Config{
		Pods:         model.PodMatch{Prefixes: prefixes("10.244.0.0/16", "fd00:10:244::/56")},
		ServiceCIDRs: prefixes("10.96.0.0/16", "fd00:10:96::/112"),
	}
	testNode = Node{
		Name:      "n1",
		Zone:      "z1",
		Addresses: addrs("127.0.0.1", "::1", "192.0.2.1", "10.244.1.1", "2001:db8::1", "fe80::1"),
		Primary:   addrs("192.0.2.1", "2001:db8::1"),
		PodCIDRs:  prefixes("10.244.1.0/24", "fd00:10:244:1::/64"),
	}
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// parseConfig reads the configuration that a case begins with.
func parseConfig(data []byte) (Config, error) {
	var in struct {
		Pods               []netip.Prefix
		Interfaces         []string
		PodsOfNode         bool
		ServiceCIDRs       []netip.Prefix
		NodePortAddresses  []string
		LocalhostNodePorts bool
		MasqueradeAll      bool
	}
	if err := yaml.UnmarshalStrict(data, &in); err != nil {
		return Config{}, err
	}
	nodePorts, err := ParseNodePortAddresses(in.NodePortAddresses)
	return Config{
		Pods:               model.PodMatch{Prefixes: in.Pods, Interfaces: in.Interfaces},
		PodsOfNode:         in.PodsOfNode,
		ServiceCIDRs:       in.ServiceCIDRs,
		NodePorts:          nodePorts,
		LocalhostNodePorts: in.LocalhostNodePorts,
		MasqueradeAll:      in.MasqueradeAll,
	}, err
}

// apply sets every object of a YAML stream.
func apply(c *Compiler, data []byte) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			return err
		}
		switch kind.Kind {
		case "Service":
			var s corev1.Service
			if err := yaml.UnmarshalStrict(doc, &s); err != nil {
				return err
			}
			c.SetService(&s)
		case "EndpointSlice":
			var s discoveryv1.EndpointSlice
			if err := yaml.UnmarshalStrict(doc, &s); err != nil {
				return err
			}
			c.SetSlice(&s)
		default:
			return fmt.Errorf("kind %q: neither Service nor EndpointSlice", kind.Kind)
		}
	}
}

func remove(c *Compiler, lines string) error {
	for line := range strings.Lines(lines) {
		var kind, object string
		if _, err := fmt.Sscan(line, &kind, &object); err != nil {
			return err
		}
		namespace, name, _ := strings.Cut(object, "/")
		switch kind {
		case "service":
			c.DeleteService(namespace, name)
		case "slice":
			c.DeleteSlice(namespace, name)
		default:
			return fmt.Errorf("kind %q: neither service nor slice", kind)
		}
	}
	return nil
}
