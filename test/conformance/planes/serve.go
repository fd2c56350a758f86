package planes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// served is a plane in a process of its own.
type served struct {
	kind    dataplane.Kind
	options kernel.Options
	plane   dataplane.Plane
	table   *model.Table
	drifts  atomic.Int64
}

// Serve makes the plane of the given name and drives it as the lines on in
// say, until in ends. The process must live in the node's network namespace.
func Serve(kindName, stateDir string, in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	kind, err := dataplane.Find(kindName)
	if err != nil {
		return errors.Join(err, answers.Encode(reply{Err: err.Error()}))
	}
	s := &served{kind: kind, table: model.NewTable()}
	s.options = kernel.Options{StateDir: stateDir, IPTablesVariant: os.Getenv(VariantEnv), Cgroup: os.Getenv(CgroupEnv), XDP: kernel.XDPMode(os.Getenv(XDPEnv)), Drift: func() { s.drifts.Add(1) }}
	if s.plane, err = kind.New(s.options); err != nil {
		return answers.Encode(reply{Err: fmt.Sprintf("make plane %s: %v", kindName, err), Missing: kernel.IsMissing(err)})
	}
	if err := answers.Encode(reply{Unsupported: s.plane.Unsupported()}); err != nil {
		return err
	}
	for requests := json.NewDecoder(in); ; {
		var r request
		err := requests.Decode(&r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		if err := answers.Encode(s.answer(context.Background(), r)); err != nil {
			return fmt.Errorf("answer %s: %w", r.Op, err)
		}
	}
}

func (s *served) answer(ctx context.Context, r request) reply {
	var answer reply
	err := s.do(ctx, r, &answer)
	if err != nil {
		answer.Err, answer.Missing = fmt.Sprintf("%s: %v", r.Op, err), kernel.IsMissing(err)
	}
	return answer
}

func (s *served) do(ctx context.Context, r request, answer *reply) (err error) {
	switch r.Op {
	case "apply":
		s.table = r.Change.Apply(s.table)
		var result kernel.Result
		result, err = s.plane.Apply(ctx, s.table, kernel.VerifyIf(r.Verify))
		return errors.Join(err, result.Err())
	case "compare":
		answer.Text, err = s.compare(ctx)
	case "dump":
		var there kernel.Reading
		there, err = s.plane.Read(ctx, kernel.Query{Objects: true})
		answer.Text = lines(there.Objects)
	case "remove":
		s.table = model.NewTable()
		err = s.plane.Remove(ctx, kernel.EndConnections)
	case "retire":
		s.table = model.NewTable()
		err = s.plane.Remove(ctx, kernel.HandOver)
	case "drifted":
		answer.Drifts = int(s.drifts.Swap(0))
	default:
		err = fmt.Errorf("unknown request")
	}
	return err
}

// compare tells how the kernel's objects differ from what Render says.
func (s *served) compare(ctx context.Context) (string, error) {
	want, err := s.kind.Render(s.table, s.options)
	if err != nil {
		return "", fmt.Errorf("render: %w", err)
	}
	there, err := s.plane.Read(ctx, kernel.Query{Objects: true})
	if err != nil {
		return "", fmt.Errorf("read objects: %w", err)
	}
	got := there.Objects
	for what, objects := range map[string][]kernel.Object{"Render": want, "Read": got} {
		if !slices.IsSortedFunc(objects, kernel.Object.Compare) {
			return what + " gives objects that are not sorted by kind and name:\n" + lines(objects), nil
		}
	}
	return cmp.Diff(split(lines(want)), split(lines(got))), nil
}

func lines(objects []kernel.Object) string {
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

func split(text string) []string { return strings.Split(text, "\n") }
