package haproxy

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"unicode"
)

// maxProgram bounds a regular expression's program: what it costs a request is
// its length times that of the text.
const maxProgram = 1000

// compileRegexp is the expression as Go itself would run it, so that it means the
// same, and takes no more time for a text that was made to take long.
func compileRegexp(re *regexp.Regexp) (*syntax.Prog, error) {
	tree, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("read regular expression: %w", err)
	}
	p, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, fmt.Errorf("compile regular expression: %w", err)
	}
	if len(p.Inst) > maxProgram {
		return nil, fmt.Errorf("a regular expression of %d steps; %d at most", len(p.Inst), maxProgram)
	}
	return p, nil
}

// regexp writes an expression's program. One that can't be is found before
// ([Lacking]), and matches nothing.
func (w *writer) regexp(name string, re *regexp.Regexp) {
	p, err := compileRegexp(re)
	w.table(name, func() {
		if err != nil {
			w.WriteString("start=1,{5},")
			return
		}
		w.intField("start", int64(p.Start)+1)
		for i := range p.Inst {
			w.instruction(&p.Inst[i])
		}
	})
}

func (w *writer) instruction(i *syntax.Inst) {
	number := func(n uint32) { w.WriteString(strconv.FormatUint(uint64(n), 10)); w.WriteByte(',') }
	w.WriteByte('{')
	switch i.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		number(1)
		number(i.Out + 1)
		number(i.Arg + 1)
	case syntax.InstCapture:
		number(2)
		number(i.Out + 1)
		number(i.Arg)
	case syntax.InstEmptyWidth:
		number(3)
		number(i.Out + 1)
		number(i.Arg)
	case syntax.InstMatch:
		number(4)
	case syntax.InstFail:
		number(5)
	case syntax.InstNop:
		number(6)
		number(i.Out + 1)
	default:
		number(7)
		number(i.Out + 1)
		w.WriteByte('{')
		for _, r := range runes(i) {
			number(uint32(r))
		}
		w.WriteByte('}')
	}
	w.WriteString("},")
}

// runes are those that an instruction takes: pairs of first and last.
func runes(i *syntax.Inst) []rune {
	switch i.Op {
	case syntax.InstRuneAny:
		return []rune{0, unicode.MaxRune}
	case syntax.InstRuneAnyNotNL:
		return []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}
	}
	if len(i.Rune) != 1 {
		return i.Rune
	}
	out := []rune{i.Rune[0], i.Rune[0]}
	if syntax.Flags(i.Arg)&syntax.FoldCase != 0 {
		for r := unicode.SimpleFold(i.Rune[0]); r != i.Rune[0]; r = unicode.SimpleFold(r) {
			out = append(out, r, r)
		}
	}
	return out
}
