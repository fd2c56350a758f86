// Command draw makes an SVG of each .pic file in docs/pictures.
//
// A .pic file has a command a line; a slash between spaces begins a new line of text:
//
//	size 800 400                        of the picture; the first command
//	group 20 20 300 200 TEXT            a frame with its text at the top
//	box NAME 40 60 120 40 TEXT          a box that arrows may lead to
//	done NAME 40 60 120 40 TEXT         the same, in the colour of what works
//	fail NAME 40 60 120 40 TEXT         the same, in the colour of what doesn't
//	arrow FROM TO TEXT                  from box to box
//	maybe FROM TO TEXT                  the same, dashed
//	line 20 300 780 300                 a line
//	text 40 300 TEXT                    text that begins there
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"html"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if err := drawAll("docs/pictures"); err != nil {
		log.Fatal(err)
	}
}

func drawAll(folder string) error {
	sources, err := filepath.Glob(filepath.Join(folder, "*.pic"))
	if err != nil {
		return err
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		svg, err := draw(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if err := os.WriteFile(strings.TrimSuffix(source, ".pic")+".svg", svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	lineHeight = 16
	head       = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" font-family="sans-serif" font-size="13">
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="#444"/></marker></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
`
)

var fills = map[string]string{"box": "#eef3f8", "done": "#dff1ea", "fail": "#f8e0da"}

// box is a box: its upper left corner and its size.
type box struct{ x, y, w, h float64 }

// picture is one in the making.
type picture struct {
	out   bytes.Buffer
	late  bytes.Buffer // what is drawn above the rest
	boxes map[string]box
}

// draw makes the SVG of a .pic file.
func draw(source string) ([]byte, error) {
	p := &picture{boxes: map[string]box{}}
	number := 0
	for lines := bufio.NewScanner(strings.NewReader(source)); lines.Scan(); {
		number++
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.command(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", number, line, err)
		}
	}
	p.out.Write(p.late.Bytes())
	p.out.WriteString("</svg>\n")
	return p.out.Bytes(), nil
}

func (p *picture) command(words []string) error {
	name, words := words[0], words[1:]
	switch name {
	case "size":
		n, _, err := numbers(words, 2)
		if err == nil {
			fmt.Fprintf(&p.out, head, n[0], n[1])
		}
		return err
	case "group":
		n, text, err := numbers(words, 4)
		if err == nil {
			fmt.Fprintf(&p.out, `<rect x="%g" y="%g" width="%g" height="%g" rx="8" fill="none" stroke="#8899aa" stroke-dasharray="2 3"/>`+"\n", n[0], n[1], n[2], n[3])
			write(&p.out, n[0]+10, n[1]+18, "start", text)
		}
		return err
	case "box", "done", "fail":
		return p.box(fills[name], words)
	case "arrow", "maybe":
		return p.arrow(name == "maybe", words)
	case "line":
		n, _, err := numbers(words, 4)
		if err == nil {
			fmt.Fprintf(&p.out, `<line x1="%g" y1="%g" x2="%g" y2="%g" stroke="#8899aa"/>`+"\n", n[0], n[1], n[2], n[3])
		}
		return err
	case "text":
		n, text, err := numbers(words, 2)
		if err == nil {
			write(&p.late, n[0], n[1], "start", text)
		}
		return err
	}
	return fmt.Errorf("there is no command %q", name)
}

func (p *picture) box(fill string, words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("it has no name")
	}
	n, text, err := numbers(words[1:], 4)
	if err != nil {
		return err
	}
	p.boxes[words[0]] = box{n[0], n[1], n[2], n[3]}
	fmt.Fprintf(&p.out, `<rect x="%g" y="%g" width="%g" height="%g" rx="4" fill="%s" stroke="#557"/>`+"\n", n[0], n[1], n[2], n[3], fill)
	lines := strings.Count(text, "\n")
	write(&p.out, n[0]+n[2]/2, n[1]+n[3]/2+4-float64(lines)*lineHeight/2, "middle", text)
	return nil
}

func (p *picture) arrow(dashed bool, words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("it needs two boxes")
	}
	from, ok := p.boxes[words[0]]
	to, both := p.boxes[words[1]]
	if !ok || !both {
		return fmt.Errorf("there is no box %q or %q before it", words[0], words[1])
	}
	x1, y1 := from.edge(to)
	x2, y2 := to.edge(from)
	dash := ""
	if dashed {
		dash = ` stroke-dasharray="5 4"`
	}
	fmt.Fprintf(&p.out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#444"%s marker-end="url(#tip)"/>`+"\n", x1, y1, x2, y2, dash)
	text := textOf(words[2:])
	lines := float64(strings.Count(text, "\n"))
	write(&p.late, (x1+x2)/2, (y1+y2)/2-4-lines*lineHeight/2, "middle", text)
	return nil
}

// edge is where a line from the middle of the box to that of another one leaves it. Boxes that
// are above each other, or beside each other, are joined by the shortest line.
func (b box) edge(to box) (x, y float64) {
	left, right := max(b.x, to.x), min(b.x+b.w, to.x+to.w)
	top, bottom := max(b.y, to.y), min(b.y+b.h, to.y+to.h)
	switch {
	case left < right && to.y > b.y:
		return (left + right) / 2, b.y + b.h
	case left < right:
		return (left + right) / 2, b.y
	case top < bottom && to.x > b.x:
		return b.x + b.w, (top + bottom) / 2
	case top < bottom:
		return b.x, (top + bottom) / 2
	}
	cx, cy := b.x+b.w/2, b.y+b.h/2
	dx, dy := to.x+to.w/2-cx, to.y+to.h/2-cy
	scale := min(b.w/2/max(dx, -dx), b.h/2/max(dy, -dy))
	return cx + dx*scale, cy + dy*scale
}

// numbers are the first words; the rest is text.
func numbers(words []string, count int) (list []float64, text string, err error) {
	if len(words) < count {
		return nil, "", fmt.Errorf("it needs %d numbers", count)
	}
	for _, w := range words[:count] {
		n, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return nil, "", err
		}
		list = append(list, n)
	}
	return list, textOf(words[count:]), nil
}

func textOf(words []string) string {
	return strings.ReplaceAll(strings.Join(words, " "), " / ", "\n")
}

// write writes lines of text, with a rim that keeps them legible above lines.
func write(out *bytes.Buffer, x, y float64, anchor, text string) {
	for i, line := range strings.Split(text, "\n") {
		if line != "" {
			fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="#222" stroke="#fff" stroke-width="3" paint-order="stroke">%s</text>`+"\n",
				x, y+float64(i)*lineHeight, anchor, html.EscapeString(line))
		}
	}
}
