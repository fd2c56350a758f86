package policy

import "testing"

// TestReadsNoneAsStrict: agents as browsers write them.
func TestReadsNoneAsStrict(t *testing.T) {
	for agent, want := range map[string]bool{
		"Mozilla/5.0 (iPhone; CPU iPhone OS 12_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/12.1.2 Mobile/15E148 Safari/604.1":     true,
		"Mozilla/5.0 (iPhone; CPU iPhone OS 13_3 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.0.4 Mobile/15E148 Safari/604.1":     false,
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_14_6) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/12.1.2 Safari/605.1.15":                       true,
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_14_6) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/80.0.3987.100 Safari/537.36":                     false,
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/61.0.3163.100 Safari/537.36":                                     true,
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/67.0.3396.62 Safari/537.36":                                      false,
		"Mozilla/5.0 (Linux; U; Android 8.1.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/57.0.2987.108 UCBrowser/12.13.1.1189 Mobile Safari/537.36": true,
		"Mozilla/5.0 (Linux; U; Android 8.1.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/57.0.2987.108 UCBrowser/12.13.2.1005 Mobile Safari/537.36": false,
		"curl/8.0": false,
		"":         false,
	} {
		if got := ReadsNoneAsStrict(agent); got != want {
			t.Errorf("%s: %v, want %v", agent, got, want)
		}
	}
}
