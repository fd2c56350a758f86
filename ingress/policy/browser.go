package policy

import "regexp"

// strictNone are browsers that read SameSite=None as Strict, or drop such a cookie: those
// of iOS 12, Safari of macOS 10.14, Chrome 51 to 66, and UC Browser before 12.13.2
// (https://www.chromium.org/updates/same-site/incompatible-clients).
var (
	strictNone = regexp.MustCompile(`\(iP.+; CPU .*OS 12[_\d]*.*\) AppleWebKit/|\(Macintosh;.*Mac OS X 10_14[_\d]*\) AppleWebKit/[.\d]+ \(KHTML, like Gecko\)( Version/.* Safari/.*)?$|Chrom[^ /]+/(5[1-9]|6[0-6])\.`)
	ucBrowser  = regexp.MustCompile(`UCBrowser/(\d+\.\d+\.\d+)`)
	ucStrict   = regexp.MustCompile(`^(\d|1[01])\.|^12\.(\d|1[0-2])\.|^12\.13\.[01]$`)
)

// ReadsNoneAsStrict reports whether a browser does so with SameSite=None.
func ReadsNoneAsStrict(agent string) bool {
	if m := ucBrowser.FindStringSubmatch(agent); m != nil {
		return ucStrict.MatchString(m[1])
	}
	return strictNone.MatchString(agent)
}
