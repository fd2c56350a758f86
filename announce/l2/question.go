package l2

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"net"
	"slices"
	"time"
)

// A node that is silent is asked whether its kernel goes on to answer, in a frame of
// the adverts' type. The kernel sends it back, with the incarnation of the agent in
// whose name it answers. It can't sign: the nonce shows that the answer comes from
// where the question went.
var questionMagic = [4]byte{'F', 'W', 'L', 'Q'}

const (
	kindQuestion   = 1
	kindAnswer     = 2
	questionLength = 24
)

// question writes a question to the node that has a MAC.
func question(to, from net.HardwareAddr, nonce [8]byte) []byte {
	b := append(ethernet(to, from, EtherType), questionMagic[:]...)
	b = append(b, advertVersion, kindQuestion, 0, 0)
	b = append(b, nonce[:]...)
	return append(b, make([]byte, 8)...)
}

// parseAnswer reads a kernel's answer, behind an Ethernet header.
func parseAnswer(frame []byte) (nonce [8]byte, incarnation uint64, ok bool) {
	if len(frame) < etherHead+questionLength {
		return nonce, 0, false
	}
	b := frame[etherHead:]
	if [4]byte(b[:4]) != questionMagic || b[4] != advertVersion || b[5] != kindAnswer {
		return nonce, 0, false
	}
	return [8]byte(b[8:16]), binary.BigEndian.Uint64(b[16:24]), true
}

// isQuestion tells questions and their answers from adverts.
func isQuestion(frame []byte) bool {
	return len(frame) >= etherHead+4 && bytes.Equal(frame[etherHead:etherHead+4], questionMagic[:])
}

// questions are the nonces of the last ones.
type questions struct {
	nonces [8][8]byte
	next   int
}

// ask asks the nodes that may be without an agent.
func (l *Link) ask(now time.Time) {
	l.askNodes(l.election.ask(now))
}

func (l *Link) askNodes(names []string) {
	if len(names) == 0 {
		return
	}
	nonce := &l.asked.nonces[l.asked.next%len(l.asked.nonces)]
	l.asked.next++
	_, _ = rand.Read(nonce[:]) // never fails
	for mac, node := range l.members {
		if !slices.Contains(names, node) {
			continue
		}
		if to, err := net.ParseMAC(mac); err == nil {
			l.write(l.sockets.adverts, question(to, l.device.HardwareAddr, *nonce))
		}
	}
}

// takeAnswer takes in that another node's kernel answers; it reports whether the
// frame is a question or an answer.
func (l *Link) takeAnswer(frame []byte) bool {
	if !isQuestion(frame) {
		return false
	}
	nonce, incarnation, ok := parseAnswer(frame)
	if !ok || !l.isForUs(frame) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.asked.nonces[:min(l.asked.next, len(l.asked.nonces))], nonce) {
		l.counts.refused(errSignature)
		return true
	}
	l.election.answer(time.Now(), l.members[net.HardwareAddr(frame[6:12]).String()], incarnation)
	return true
}
