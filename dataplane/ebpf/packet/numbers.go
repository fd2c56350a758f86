package packet

import "sync"

// Numbers of the programs, as generated from their sources.
const (
	atIngress = uint8(tcHookAT_INGRESS)
	atEgress  = uint8(tcHookAT_EGRESS)

	stepCloses  = uint8(tcStepCLOSES)
	stepResets  = uint8(tcStepRESETS)
	stepAcks    = uint8(tcStepACKS)
	stepResumed = uint8(tcStepRESUMED)
	stepUsed    = uint8(tcStepUSED)

	tcpOpening     = uint32(tcTimeoutTCP_OPENING)
	tcpEstablished = uint32(tcTimeoutTCP_ESTABLISHED)
	tcpHalfClosed  = uint32(tcTimeoutTCP_HALF_CLOSED)
	tcpClosed      = uint32(tcTimeoutTCP_CLOSED)
	tcpReset       = uint32(tcTimeoutTCP_RESET)
	directClosed   = uint32(tcTimeoutDIRECT_CLOSED)
	tcpResumed     = uint32(tcTimeoutTCP_RESUMED)
	udpOnce        = uint32(tcTimeoutUDP_ONCE)
	udpStream      = uint32(tcTimeoutUDP_STREAM)

	inForce  = uint32(tcHandoverPhaseIN_FORCE)
	aside    = uint32(tcHandoverPhaseASIDE)
	entering = uint32(tcHandoverPhaseENTERING)

	uplinkTakes = uint16(tcUplinkFlagsTAKES)
	uplinkSends = uint16(tcUplinkFlagsSENDS)
	uplinkVeth  = uint16(tcUplinkFlagsVETH)
)

// kinds is the programs' table of what is to know of each kind of entry: bpf/kind.h.
var kinds = sync.OnceValue(func() (table [tcKindKINDS]tcKindTraits) {
	spec, err := loadTc()
	if err == nil {
		err = spec.Variables[tcVarKinds].Get(&table)
	}
	if err != nil {
		panic("the object that is part of this program can't be read: " + err.Error())
	}
	return table
})

// about is what is to know of an entry's kind.
func (c *tcConn) about() tcKindTraits { return kinds()[c.Kind&^tcKindFROZEN] }

// has reports whether an entry's kind has one of some traits.
func (c *tcConn) has(traits tcTraits) bool { return c.about().Traits&traits != 0 }
