package main

import "github.com/anishathalye/porcupine"

// Operation is a read or a write of one of several numbers. Each value is written
// once.
type Operation struct {
	Client, Key int
	Write       bool
	Value       int  // that was written, or read
	Unanswered  bool // a write whose client doesn't know whether it was done
	Call        int64
	Return      int64
}

// numbers is the model: each key holds the number that was written last.
var numbers = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int][]porcupine.Operation{}
		for _, op := range all {
			key := op.Input.(Operation).Key
			byKey[key] = append(byKey[key], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range byKey {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		op := input.(Operation)
		if op.Write {
			return true, op.Value
		}
		return op.Value == state.(int), state
	},
}

// bounded gives writes without an answer an end, so that the history can be
// checked in time. A write that nobody has read may as well not have been done,
// and one that somebody has read was done by then.
func bounded(history []Operation) []porcupine.Operation {
	read := map[int]int64{} // when a value was first read
	for _, op := range history {
		if first, ok := read[op.Value]; !op.Write && (!ok || op.Return < first) {
			read[op.Value] = op.Return
		}
	}
	var out []porcupine.Operation
	for _, op := range history {
		end := op.Return
		if op.Unanswered {
			seen, ok := read[op.Value]
			if !ok {
				continue
			}
			end = max(seen, op.Call)
		}
		out = append(out, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: end})
	}
	return out
}
