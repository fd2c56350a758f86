package latest

import "testing"

func TestValue(t *testing.T) {
	var v Value[int]
	first, next := v.Get()
	if _, same := v.Get(); first != 0 || same != next {
		t.Errorf("at first: %d, and each has a channel of its own: %v", first, same != next)
	}
	select {
	case <-next:
		t.Error("another value is said to be there")
	default:
	}
	v.Set(1)
	v.Set(2)
	<-next
	if now, _ := v.Get(); now != 2 {
		t.Errorf("the latest is %d", now)
	}
}
