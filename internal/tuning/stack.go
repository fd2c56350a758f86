package tuning

// stackRoom is what decoding, managing fields, encoding and the filters of an
// API server take of the stack.
const stackRoom = 24 << 10

// GrowStack grows the calling goroutine's stack at once to what a request to the
// API takes. A stack grows by being copied to one of twice the size, and every
// frame of it adjusted; a goroutine that goes deep pays for that four or five
// times on its way down, and one that begins with this hardly. Stacks shrink
// with garbage collections only: it isn't for goroutines that last.
func GrowStack() { use(0) }

// use has a frame of that size; what it does keeps the compiler from leaving the
// array out.
//
//go:noinline
func use(i int) byte {
	var room [stackRoom]byte
	room[i] = 1
	return room[i/2]
}
