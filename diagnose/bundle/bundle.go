// Package bundle is one archive for a bug report: the API objects that Services are
// made of, what each node's agent and kernel say of them, and doctor's findings.
// doctor and explain read it elsewhere, offline.
//
//	bundle.go   what is in it, and its files
//	mask.go     what doesn't leave the cluster: values, and addresses of choice
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// Format is the version of the files' form.
const Format = "fairway.dev/bundle/v1"

// most is how many bytes of one file are read: a bundle may be a stranger's.
const most = 256 << 20

// Contents are what a bundle holds.
type Contents struct {
	About   About
	Objects *explain.Objects
	Survey  *doctor.Survey // nil if doctor could not run
	Nodes   []Node
}

// About says where a bundle comes from.
type About struct {
	Format  string    `json:"format"`
	Version string    `json:"version"` // of the program that gathered it
	Time    time.Time `json:"time"`
	Masked  bool      `json:"masked,omitempty"` // addresses of some networks are replaced
	// Missing says what could not be asked for, and why.
	Missing []string `json:"missing,omitempty"`
}

// Node is what the agent of a node says, and what is read where it runs. What could
// not be had is nil, and Problems says why.
type Node struct {
	Name     string             `json:"name"`
	Status   *agentlink.Status  `json:"status,omitempty"`
	Changes  []agentlink.Change `json:"changes,omitempty"` // the last ones in force
	Host     *doctor.Host       `json:"host,omitempty"`    // sysctls, chains of others
	Table    *model.Table       `json:"-"`                 // in force; in a file of its own
	Kernel   *dump.Report       `json:"-"`                 // in a file of its own
	Log      string             `json:"-"`                 // the agent's, its last lines
	Problems []string           `json:"problems,omitempty"`
}

// The names of files in the archive.
const (
	aboutFile   = "bundle.json"
	objectsFile = "objects.json"
	doctorFile  = "doctor.json"
	doctorText  = "doctor.txt"
	nodesDir    = "nodes"
	nodeFile    = "node.json"
	tableFile   = "table.json"
	kernelFile  = "kernel.json"
	kernelText  = "kernel.txt"
	logFile     = "agent.log"
)

// IsName reports whether a file's name is that of a bundle.
func IsName(name string) bool {
	return strings.HasSuffix(name, ".tgz") || strings.HasSuffix(name, ".tar.gz")
}

// Write writes the archive, all of it through the mask.
func (c *Contents) Write(out io.Writer, mask *Mask) error {
	zipped := gzip.NewWriter(out)
	w := &writer{tar: tar.NewWriter(zipped), mask: mask, time: c.About.Time}
	c.About.Format, c.About.Masked = Format, mask.replaces()
	w.json(aboutFile, c.About)
	w.json(objectsFile, withoutValues(c.Objects))
	if c.Survey != nil {
		w.json(doctorFile, c.Survey)
		w.text(doctorText, c.Survey.WriteText)
	}
	for i := range c.Nodes {
		w.node(&c.Nodes[i])
	}
	return errors.Join(w.err, w.tar.Close(), zipped.Close())
}

// writer writes files; the first error stays.
type writer struct {
	tar  *tar.Writer
	mask *Mask
	time time.Time
	err  error
}

func (w *writer) node(n *Node) {
	dir := path.Join(nodesDir, n.Name)
	w.json(path.Join(dir, nodeFile), n)
	if n.Table != nil {
		w.json(path.Join(dir, tableFile), n.Table.Delta(nil))
	}
	if n.Kernel != nil {
		w.json(path.Join(dir, kernelFile), n.Kernel)
		w.text(path.Join(dir, kernelText), func(out io.Writer) error { return n.Kernel.WriteText(out, true) })
	}
	if n.Log != "" {
		w.file(path.Join(dir, logFile), []byte(n.Log))
	}
}

func (w *writer) json(name string, v any) {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("write %s: %w", name, err))
		return
	}
	w.file(name, append(data, '\n'))
}

func (w *writer) text(name string, write func(io.Writer) error) {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("write %s: %w", name, err))
		return
	}
	w.file(name, text.Bytes())
}

func (w *writer) file(name string, data []byte) {
	if w.err != nil {
		return
	}
	data = w.mask.apply(data)
	header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: w.time}
	if w.err = w.tar.WriteHeader(header); w.err == nil {
		_, w.err = w.tar.Write(data)
	}
}

// Read reads a bundle's file. Files that it doesn't know are passed over.
func Read(name string) (*Contents, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	c, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("read bundle %s: %w", name, err)
	}
	return c, nil
}

func read(in io.Reader) (*Contents, error) {
	zipped, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	c := &Contents{}
	files := tar.NewReader(zipped)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := c.take(header.Name, json.NewDecoder(io.LimitReader(files, most))); err != nil {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
	}
	switch {
	case c.About.Format == "":
		return nil, fmt.Errorf("it has no %s: fairway bundle didn't write it", aboutFile)
	case c.About.Format != Format:
		return nil, fmt.Errorf("its format is %s, this program reads %s", c.About.Format, Format)
	case c.Objects == nil:
		return nil, fmt.Errorf("it has no %s", objectsFile)
	}
	c.addTables()
	return c, nil
}

// addTables gives the objects what nodes had in force, as it was known when they were read.
func (c *Contents) addTables() {
	tables, served := map[string]*model.Table{}, map[string][]netip.Addr{}
	for _, n := range c.Nodes {
		if n.Table == nil {
			continue
		}
		tables[n.Name] = n.Table
		if n.Status != nil {
			served[n.Name] = n.Status.Served
		}
	}
	if c.Objects.NoAPI != "" {
		c.Objects = explain.InForce(tables, served, c.Objects.NoAPI)
		return
	}
	c.Objects.AddTables(tables, served)
}

// take takes in one of the archive's files.
func (c *Contents) take(name string, from *json.Decoder) error {
	switch dir, file := path.Split(name); {
	case name == aboutFile:
		return from.Decode(&c.About)
	case name == objectsFile:
		return from.Decode(&c.Objects)
	case name == doctorFile:
		return from.Decode(&c.Survey)
	case file == nodeFile:
		return from.Decode(c.node(path.Base(dir)))
	case file == tableFile:
		d := &model.Delta{}
		if err := from.Decode(d); err != nil {
			return err
		}
		if slices.Contains(d.Frontends, nil) || slices.Contains(d.Pools, nil) {
			return errors.New("null is no frontend and no pool")
		}
		if d.Settings == nil {
			d.Settings = &model.Settings{}
		}
		c.node(path.Base(dir)).Table = d.Apply(model.NewTable())
		return nil
	case file == kernelFile:
		return from.Decode(&c.node(path.Base(dir)).Kernel)
	}
	return nil
}

// node is the node of a name, made if it isn't there.
func (c *Contents) node(name string) *Node {
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i]
		}
	}
	c.Nodes = append(c.Nodes, Node{Name: name})
	return &c.Nodes[len(c.Nodes)-1]
}
