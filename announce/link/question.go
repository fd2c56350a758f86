package link

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"slices"
)

// The kernel of a node sends a question back as an answer, with the incarnation of the agent
// in whose name it works. It can't sign: the nonce shows that the answer comes from where the
// question went.
const (
	questionVersion = 1
	kindQuestion    = 1
	kindAnswer      = 2
	questionLength  = 24
)

// Questions are those of one kind, with the nonces of the last ones.
type Questions struct {
	Magic     [4]byte
	EtherType uint16

	nonces [8][8]byte
	asked  int
}

// Begin makes the nonce of the questions that are asked now.
func (q *Questions) Begin() {
	q.asked++
	_, _ = rand.Read(q.nonces[q.asked%len(q.nonces)][:]) // never fails
}

// Frame is a question to the node that has a MAC.
func (q *Questions) Frame(to, from net.HardwareAddr) []byte {
	b := append(Ethernet(to, from, q.EtherType), q.Magic[:]...)
	b = append(b, questionVersion, kindQuestion, 0, 0)
	b = append(b, q.nonces[q.asked%len(q.nonces)][:]...)
	return append(b, make([]byte, 8)...)
}

// Is tells questions and their answers from messages.
func (q *Questions) Is(frame []byte) bool {
	return len(frame) >= EtherHead+4 && [4]byte(frame[EtherHead:]) == q.Magic
}

// IsAnswer tells answers from questions.
func (q *Questions) IsAnswer(frame []byte) bool {
	return q.Is(frame) && len(frame) >= EtherHead+questionLength && frame[EtherHead+4] == questionVersion && frame[EtherHead+5] == kindAnswer
}

// Answer reads an answer. ErrNone is of what is none, ErrSignature of one that was not asked for.
func (q *Questions) Answer(frame []byte) (incarnation uint64, err error) {
	if !q.IsAnswer(frame) {
		return 0, ErrNone
	}
	b := frame[EtherHead:]
	nonce := [8]byte(b[8:16])
	if nonce == [8]byte{} || !slices.Contains(q.nonces[:], nonce) {
		return 0, ErrSignature
	}
	return binary.BigEndian.Uint64(b[16:24]), nil
}
