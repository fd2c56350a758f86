package main

import (
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	write := func(client, value int, call, end int64) Operation {
		return Operation{Client: client, Write: true, Value: value, Call: call, Return: end}
	}
	read := func(client, value int, call, end int64) Operation {
		return Operation{Client: client, Value: value, Call: call, Return: end}
	}
	unanswered := Operation{Client: 2, Write: true, Value: 9, Unanswered: true, Call: 25}
	elsewhere := read(1, 0, 30, 40)
	elsewhere.Key = 1
	for _, c := range []struct {
		name    string
		history []Operation
		good    bool
	}{
		{"what was written is read", []Operation{write(0, 1, 0, 10), read(1, 1, 20, 30)}, true},
		{"keys are apart", []Operation{write(0, 1, 0, 10), elsewhere}, true},
		{"either of two writes at once", []Operation{write(0, 1, 0, 10), write(1, 2, 0, 10), read(2, 1, 20, 30)}, true},
		{"a lost write", []Operation{write(0, 1, 0, 10), read(1, 0, 20, 30)}, false},
		{"a stale read", []Operation{write(0, 1, 0, 10), write(0, 2, 20, 30), read(1, 2, 40, 50), read(1, 1, 60, 70)}, false},
		{"a value that nobody wrote", []Operation{read(0, 7, 0, 10)}, false},
		{"a write without an answer was done", []Operation{write(0, 1, 0, 10), unanswered, read(1, 9, 30, 40)}, true},
		{"a write without an answer wasn't done", []Operation{write(0, 1, 0, 10), unanswered, read(1, 1, 30, 40)}, true},
		{"a write without an answer was lost again", []Operation{write(0, 1, 0, 10), unanswered, read(1, 9, 30, 40), read(1, 1, 50, 60)}, false},
	} {
		if err := check(c.history, time.Minute); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
