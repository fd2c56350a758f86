package explain

import "testing"

// TestDifferences: an agent that refuses what nobody serves, since it knows the ranges of
// cluster IPs, says nothing else than the API; one that refuses a Service does.
func TestDifferences(t *testing.T) {
	view := func(action, service string) View {
		return View{Decisions: []Decision{{Frontend: "10.96.0.99:80/tcp", Origin: "pod", Action: action, Service: service}}}
	}
	for _, c := range []struct {
		api, agent View
		differ     bool
	}{
		{view("not a Service", ""), view("refused", ""), false},
		{view("not a Service", ""), view("refused", "default/gone:"), true},
		{view("forwarded", "default/web:"), view("refused", ""), true},
		{view("refused", "default/web:"), view("refused", "default/web:"), false},
		{view("refused", "default/web:"), View{}, true},
	} {
		if got := differences(c.api, c.agent); (len(got) > 0) != c.differ {
			t.Errorf("API %+v, agent %+v: %q", c.api.Decisions, c.agent.Decisions, got)
		}
	}
}
