package agentlink

import (
	"context"
	"sync"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// decided is what an agent has answered.
type decided struct {
	view explain.View
	err  error
}

// AskAllOnce asks all agents that find finds with the first question, at the same time,
// since it is the same for every node, and answers from that.
func AskAllOnce(ctx context.Context, find func() []Found) explain.Asker {
	var once sync.Once
	answers := map[string]decided{}
	return func(node string, keys []model.Key, from explain.Source) (explain.View, error) {
		once.Do(func() {
			list := find()
			results := make([]decided, len(list))
			Each(ctx, list, func(i int) {
				if list[i].Err != nil {
					results[i].err = explain.ErrSaid
					return
				}
				results[i].view, results[i].err = list[i].Decide(ctx, keys, from)
			})
			for i, a := range list {
				if before, there := answers[a.Name()]; !there || before.err != nil {
					answers[a.Name()] = results[i]
				}
			}
		})
		answer, there := answers[node]
		if !there {
			return explain.View{}, explain.ErrNoAgent
		}
		return answer.view, answer.err
	}
}
