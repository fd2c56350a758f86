//go:build sites

package planes

// everySite says that TestSites plays on all sites, in all modes.
const everySite = true
