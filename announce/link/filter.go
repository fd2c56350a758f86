package link

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
)

// magicOnly drops frames without a magic.
func magicOnly(magic [4]byte) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: EtherHead, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(magic[:]), SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
}

// all lets through every frame with the magic.
func all(magic [4]byte) []bpf.Instruction {
	return append(magicOnly(magic), bpf.RetConstant{Val: wholeFrame})
}

// narrow lets through the frames of some MACs, and a sample of others': a node that is new is
// heard after a while.
func narrow(magic [4]byte, macs [][6]byte) []bpf.Instruction {
	list := magicOnly(magic)
	for _, mac := range macs {
		list = append(list,
			bpf.LoadAbsolute{Off: 6, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(mac[:]), SkipTrue: 3},
			bpf.LoadAbsolute{Off: 10, Size: 2},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(binary.BigEndian.Uint16(mac[4:])), SkipTrue: 1},
			bpf.RetConstant{Val: wholeFrame},
		)
	}
	return append(list,
		bpf.LoadExtension{Num: bpf.ExtRand},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: sampleOneIn - 1, SkipTrue: 1},
		bpf.RetConstant{Val: wholeFrame},
		bpf.RetConstant{Val: 0},
	)
}

// mostNarrow is how many MACs a filter has room for (BPF_MAXINSNS).
const mostNarrow = 800

const wholeFrame = 65535

func assemble(list []bpf.Instruction) ([]bpf.RawInstruction, error) {
	raw, err := bpf.Assemble(list)
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	return raw, nil
}
