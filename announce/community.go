package announce

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

// Communities are what a route is marked with, sorted.
type Communities struct {
	Standard []uint32    // RFC 1997
	Large    [][3]uint32 // RFC 8092
}

// parse adds a community, "65000:100" or "large:65000:1:2".
func (c *Communities) parse(text string) error {
	if rest, large := strings.CutPrefix(text, "large:"); large {
		parts, err := numbers(rest, 3, 32)
		if err != nil {
			return fmt.Errorf("%q: must be large:a:b:c with numbers of 32 bits", text)
		}
		c.Large = append(c.Large, [3]uint32(parts))
		return nil
	}
	parts, err := numbers(text, 2, 16)
	if err != nil {
		return fmt.Errorf("%q: must be a:b with numbers of 16 bits, large:a:b:c, or the name of a Community", text)
	}
	c.Standard = append(c.Standard, parts[0]<<16|parts[1])
	return nil
}

func numbers(text string, count, bits int) ([]uint32, error) {
	fields := strings.Split(text, ":")
	if len(fields) != count {
		return nil, strconv.ErrSyntax
	}
	list := make([]uint32, count)
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, bits)
		if err != nil {
			return nil, err
		}
		list[i] = uint32(n)
	}
	return list, nil
}

// and returns the communities of both.
func (c Communities) and(other Communities) Communities {
	all := Communities{slices.Concat(c.Standard, other.Standard), slices.Concat(c.Large, other.Large)}
	slices.Sort(all.Standard)
	slices.SortFunc(all.Large, func(a, b [3]uint32) int { return slices.Compare(a[:], b[:]) })
	all.Standard, all.Large = slices.Compact(all.Standard), slices.Compact(all.Large)
	return all
}

// String lists the communities as they are written in the API.
func (c Communities) String() string {
	var list []string
	for _, s := range c.Standard {
		list = append(list, fmt.Sprintf("%d:%d", s>>16, s&0xffff))
	}
	for _, l := range c.Large {
		list = append(list, fmt.Sprintf("large:%d:%d:%d", l[0], l[1], l[2]))
	}
	return strings.Join(list, " ")
}

// aliases reads the names that Communities give. Of two with a name, that of the
// first object by name counts.
func (r *reader) aliases(objects map[string]*v1beta1.Community) map[string]Communities {
	aliases := map[string]Communities{}
	for _, o := range sorted(objects) {
		for i, alias := range o.Spec.Communities {
			field := fmt.Sprintf("spec.communities[%d]", i)
			if alias.Name == "" {
				r.problem("Community "+o.Name, field+".name: empty")
				continue
			}
			if _, ok := aliases[alias.Name]; ok {
				r.problem("Community "+o.Name, fmt.Sprintf("%s.name: %q is defined already", field, alias.Name))
				continue
			}
			var value Communities
			if err := value.parse(alias.Value); err != nil {
				r.problem("Community "+o.Name, fmt.Sprintf("%s.value: %v", field, err))
				continue
			}
			aliases[alias.Name] = value
		}
	}
	return aliases
}

// communities reads values and names of communities.
func communities(texts []string, aliases map[string]Communities) (Communities, error) {
	var list Communities
	for i, text := range texts {
		text = strings.TrimSpace(text)
		if alias, ok := aliases[text]; ok {
			list = list.and(alias)
			continue
		}
		if !strings.Contains(text, ":") {
			return Communities{}, fmt.Errorf("[%d]: no Community defines %q", i, text)
		}
		if err := list.parse(text); err != nil {
			return Communities{}, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return list.and(Communities{}), nil
}

// Annotations of Services about BGP.
const (
	// AnnotationPrepend is how often the own AS number is put in front of the AS
	// path once more, which makes a route less attractive: 1 to 10.
	AnnotationPrepend = "fairway.dev/bgp-prepend"
	// AnnotationCommunities are further communities of the Service's routes,
	// comma separated, as in a BGPAdvertisement.
	AnnotationCommunities = "fairway.dev/bgp-communities"
)

const maxPrepend = 10

// wishes are what a Service's annotations ask for.
type wishes struct {
	prepend     int
	communities Communities
}

// wishesOf reads a Service's annotations. Problems name those that are left out.
func (c *Config) wishesOf(s Service) (w wishes, problems []string) {
	if text, ok := s.Annotations[AnnotationPrepend]; ok {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > maxPrepend {
			problems = append(problems, fmt.Sprintf("annotation %s is ignored: %q: must be a number from 1 to %d", AnnotationPrepend, text, maxPrepend))
		} else {
			w.prepend = n
		}
	}
	if text, ok := s.Annotations[AnnotationCommunities]; ok {
		list, err := communities(strings.Split(text, ","), c.aliases)
		if err != nil {
			problems = append(problems, fmt.Sprintf("annotation %s is ignored: %v", AnnotationCommunities, err))
		}
		w.communities = list
	}
	return w, problems
}

// wishesOfAll joins what the Services of an address ask for.
func (c *Config) wishesOfAll(names []string, serviceOf func(string) Service, problems map[string][]string) wishes {
	var all wishes
	for _, name := range names {
		w, faults := c.wishesOf(serviceOf(name))
		all.prepend = max(all.prepend, w.prepend)
		all.communities = all.communities.and(w.communities)
		if len(faults) > 0 {
			problems[name] = faults
		}
	}
	return all
}

func compareCommunities(a, b Communities) int {
	return cmp.Or(slices.Compare(a.Standard, b.Standard),
		slices.CompareFunc(a.Large, b.Large, func(x, y [3]uint32) int { return slices.Compare(x[:], y[:]) }))
}
