package iptables

import (
	"bytes"
	"slices"
)

// Input builds what iptables-restore reads: blocks of one table, each of which
// comes into force at once. The zero value is empty.
type Input struct {
	blocks []*Block
}

// Block is what happens to one table in one step.
type Block struct {
	table                   string
	declared, rules, delete []byte
}

// Block begins the next block.
func (in *Input) Block(table string) *Block {
	b := &Block{table: table}
	in.blocks = append(in.blocks, b)
	return b
}

// Chain makes the chain or empties it, and fills it with these rules. Other
// chains may refer to it before or after in the block.
func (b *Block) Chain(name string, rules ...string) {
	b.declared = append(append(append(b.declared, ':'), name...), " - [0:0]\n"...)
	for _, r := range rules {
		b.Append(name, r)
	}
}

// Append adds a rule at the end of a chain.
func (b *Block) Append(chain, rule string) { b.line("-A ", chain, rule) }

// Insert adds a rule at the beginning of a chain.
func (b *Block) Insert(chain, rule string) { b.line("-I ", chain, rule) }

// DeleteRule removes a rule, which must be there.
func (b *Block) DeleteRule(chain, rule string) { b.line("-D ", chain, rule) }

// DeleteChain removes a chain, which must be there, with its rules. Nothing
// may refer to it any more once the rest of the block is done.
func (b *Block) DeleteChain(name string) {
	b.declared = append(append(append(b.declared, ':'), name...), " - [0:0]\n"...)
	b.delete = append(append(append(b.delete, "-X "...), name...), '\n')
}

func (b *Block) line(verb, chain, rule string) {
	b.rules = append(append(append(append(b.rules, verb...), chain...), ' '), rule...)
	b.rules = append(b.rules, '\n')
}

// Empty reports whether the input does nothing.
func (in *Input) Empty() bool { return !slices.ContainsFunc(in.blocks, (*Block).any) }

func (b *Block) any() bool { return len(b.declared)+len(b.rules)+len(b.delete) > 0 }

// Commits is how many steps such a text comes into force in.
func Commits(input []byte) uint32 { return uint32(bytes.Count(input, []byte("\nCOMMIT\n"))) }

// Bytes is the text for iptables-restore.
func (in *Input) Bytes() []byte {
	var out bytes.Buffer
	for _, b := range in.blocks {
		if !b.any() {
			continue
		}
		out.WriteString("*" + b.table + "\n")
		out.Write(b.declared)
		out.Write(b.rules)
		out.Write(b.delete)
		out.WriteString("COMMIT\n")
	}
	return out.Bytes()
}
