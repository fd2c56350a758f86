package check

// dueQueue is a heap of endpoints by when they are due.
type dueQueue[K comparable] []*entry[K]

func (q dueQueue[K]) Len() int           { return len(q) }
func (q dueQueue[K]) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q dueQueue[K]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *dueQueue[K]) Push(x any) {
	e, ok := x.(*entry[K])
	if !ok {
		return
	}
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop is for package heap.
func (q *dueQueue[K]) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.index = -1
	return e
}
