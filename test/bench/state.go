package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// settle is how long memory is left to itself before it is read.
const settle = 5 * time.Second

func measureMemory(ctx context.Context, p *subject) error {
	pause(ctx, settle)
	m, err := p.agent.usage.memory()
	if err != nil {
		return err
	}
	p.record("memory", "%s", m)
	return nil
}

// measureSoak changes endpoints as fast as the API takes it, then compares what
// the kernel has with what a new agent, which has seen none of the changes, puts
// into an empty one.
func measureSoak(ctx context.Context, p *subject) error {
	perWrite := p.stage.size.endpoints
	changes := p.options.Changes
	if p.mode.name != "nftables" { // or all of it takes half an hour
		changes /= 10
	}
	writes := (changes + perWrite - 1) / perWrite
	if writes == 0 {
		return nil
	}
	// Memory is compared with itself after a tenth of the churn: the heap
	// first grows to what churn needs.
	memories, files := make([]memory, 2), make([]int, 2)
	began := time.Now()
	for i, part := range []int{writes / 10, writes - writes/10} {
		if err := p.churn(ctx, part); err != nil {
			return err
		}
		if err := p.quiet(ctx); err != nil {
			return err
		}
		pause(ctx, settle)
		var err error
		if memories[i], err = p.agent.usage.memory(); err != nil {
			return err
		}
		if files[i], err = p.agent.usage.files(ctx); err != nil {
			return err
		}
	}
	took := time.Since(began)
	different, objects, err := p.compareWithFresh(ctx)
	if err != nil {
		return err
	}
	p.record("soak", "%d changes in %.0f s: %d of %d kernel objects differ from a fresh agent's; memory %s, then %s; file descriptors %d, then %d",
		writes*perWrite, took.Seconds(), different, objects, memories[0], memories[1], files[0], files[1])
	if different > 0 {
		return fmt.Errorf("%d kernel objects are not as they should be", different)
	}
	return nil
}

// churn replaces all endpoints of Services, each writer those of its own.
func (p *subject) churn(ctx context.Context, writes int) error {
	list := p.api.world.services
	return each(writers, writers, func(w int) error {
		for i := w; i < writes; i += writers {
			svc := list[w+writers*rand.IntN((len(list)-w)/writers)]
			if err := p.api.setEndpoints(ctx, svc, p.api.world.addresses(len(svc.addrs))); err != nil {
				return err
			}
		}
		return nil
	})
}

// compareWithFresh reads the kernel, has a new agent do everything from the
// start, and reads it again.
func (p *subject) compareWithFresh(ctx context.Context) (different, objects int, err error) {
	churned, err := p.objects(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := p.agent.remove(ctx); err != nil {
		return 0, 0, err
	}
	if err := p.agent.start(ctx); err != nil {
		return 0, 0, err
	}
	if _, err := p.agent.ready(ctx); err != nil {
		return 0, 0, err
	}
	fresh, err := p.objects(ctx)
	if err != nil {
		return 0, 0, err
	}
	count := map[string]int{}
	for _, line := range churned {
		count[string(line)]++
	}
	for _, line := range fresh {
		count[string(line)]--
	}
	for line, n := range count {
		if n != 0 {
			different++
			p.options.Log.Warn("differs", "object", line, "count", n)
		}
	}
	return different, len(fresh), nil
}

// objects has a process in the node print what the plane has in the kernel.
func (p *subject) objects(ctx context.Context) ([][]byte, error) {
	out := filepath.Join(p.options.Dir, "objects")
	args := append([]string{"objects", "--out", out, "--state-dir", p.agent.state}, p.mode.args...)
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own executable: %w", err)
	}
	reader, err := start(p.site.node.Host, "objects", p.options.Dir, exec.Command(self, args...))
	if err != nil {
		return nil, err
	}
	select {
	case <-reader.ended:
	case <-ctx.Done():
	}
	if err := reader.stop(); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	if err := os.Remove(out); err != nil {
		return nil, fmt.Errorf("remove objects: %w", err)
	}
	if len(data) == 0 {
		return nil, errors.New("the plane has no objects in the kernel")
	}
	return bytes.Split(bytes.TrimSuffix(data, []byte{0}), []byte{0}), nil
}
