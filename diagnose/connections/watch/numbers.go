package watch

import "sync"

// Numbers of the data plane's programs, as generated from their sources.
const (
	atIngress = uint8(watchHookAT_INGRESS)
	atEgress  = uint8(watchHookAT_EGRESS)

	stepCloses = uint8(watchStepCLOSES)
	stepResets = uint8(watchStepRESETS)
	stepUsed   = uint8(watchStepUSED)
)

// kinds is the programs' table of what is to know of each kind of entry: kind.h.
var kinds = sync.OnceValue(func() (table [watchKindKINDS]watchKindTraits) {
	spec, err := loadWatch()
	if err == nil {
		err = spec.Variables[watchVarKinds].Get(&table)
	}
	if err != nil {
		panic("the object that is part of this program can't be read: " + err.Error())
	}
	return table
})

// has reports whether an entry's kind has one of some traits.
func (c *watchConn) has(traits watchTraits) bool {
	return kinds()[c.Kind&^watchKindFROZEN].Traits&traits != 0
}
