package lastknown

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// The file begins with magic. Records follow, each of them a change: a header of
// headerBytes, the resource, the key and the value. A later record of a key counts.
// The header has a checksum of its own, so that a length that is damaged isn't taken
// for a record that a crash cut off.

const (
	magic       = "fairway last known 1\n"
	headerBytes = 24
	// maxValue bounds an object: the API's store takes less.
	maxValue = 16 << 20
)

// kind is what a record does.
type kind byte

const (
	setRecord kind = iota + 1
	deleteRecord
	// completeRecord says that its resource has a whole list.
	completeRecord
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is one change as it is read. Its parts are valid until the next one.
type record struct {
	kind          kind
	resource, key string
	value         []byte
	at            time.Time
	offset, size  int64
}

// appendRecord adds a record to a buffer.
func appendRecord(to []byte, k kind, resource, key string, value []byte, at time.Time) []byte {
	var header [headerBytes]byte
	header[0], header[1] = byte(k), byte(len(resource))
	binary.LittleEndian.PutUint16(header[2:], uint16(len(key)))
	binary.LittleEndian.PutUint32(header[4:], uint32(len(value)))
	binary.LittleEndian.PutUint64(header[8:], uint64(at.UnixMilli()))
	body := crc32.Update(0, castagnoli, []byte(resource))
	body = crc32.Update(body, castagnoli, []byte(key))
	body = crc32.Update(body, castagnoli, value)
	binary.LittleEndian.PutUint32(header[16:], body)
	binary.LittleEndian.PutUint32(header[20:], crc32.Checksum(header[:20], castagnoli))
	to = append(to, header[:]...)
	to = append(to, resource...)
	to = append(to, key...)
	return append(to, value...)
}

// errTorn is the end of a file that a crash cut off.
var errTorn = errors.New("cut off")

// scan calls yield with each record of a file. It returns where the last whole record
// ends: a crash may have left a part of one behind it. What is damaged otherwise is a
// DamagedError.
func scan(f *os.File, yield func(*record) error) (end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	reader := bufio.NewReaderSize(f, 64<<10)
	var begin [len(magic)]byte
	if _, err := io.ReadFull(reader, begin[:]); err != nil || string(begin[:]) != magic {
		return 0, &keptfile.DamagedError{Name: f.Name(), Why: "it doesn't begin as it should"}
	}
	end = int64(len(magic))
	var r record
	for memory := make([]byte, 0, 4096); end < info.Size(); {
		memory, err = r.read(reader, memory, info.Size()-end)
		if errors.Is(err, errTorn) {
			return end, nil
		}
		if err != nil {
			return end, &keptfile.DamagedError{Name: f.Name(), Why: fmt.Sprintf("at byte %d: %v", end, err)}
		}
		r.offset = end
		if err := yield(&r); err != nil {
			return end, err
		}
		end += r.size
	}
	return end, nil
}

// read reads a record into memory, which it returns, as it may be more by then. There
// are left bytes of the file.
func (r *record) read(from io.Reader, memory []byte, left int64) ([]byte, error) {
	if left < headerBytes {
		return memory, errTorn
	}
	var header [headerBytes]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return memory, err
	}
	if header == [headerBytes]byte{} { // the file system had made room, and no more
		return memory, zeros(from)
	}
	if crc32.Checksum(header[:20], castagnoli) != binary.LittleEndian.Uint32(header[20:]) {
		return memory, errors.New("the header of a record isn't what was written")
	}
	resource, key := int(header[1]), int(binary.LittleEndian.Uint16(header[2:]))
	value := int(binary.LittleEndian.Uint32(header[4:]))
	size := resource + key + value
	r.size = headerBytes + int64(size)
	switch {
	case value > maxValue:
		return memory, errors.New("a record is longer than any that is written")
	case r.size > left:
		return memory, errTorn
	}
	if size > cap(memory) {
		memory = make([]byte, 0, size)
	}
	body := memory[:size]
	if _, err := io.ReadFull(from, body); err != nil {
		return memory, err
	}
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(header[16:]) {
		if r.size == left {
			return memory, errTorn // the last one, which wasn't written to its end
		}
		return memory, errors.New("a record isn't what was written")
	}
	r.kind, r.at = kind(header[0]), time.UnixMilli(int64(binary.LittleEndian.Uint64(header[8:])))
	r.resource, r.key, r.value = string(body[:resource]), string(body[resource:resource+key]), body[resource+key:]
	return memory, nil
}

// zeros makes sure that nothing but zeros follows.
func zeros(from io.Reader) error {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		for _, b := range buffer[:n] {
			if b != 0 {
				return errors.New("the header of a record is empty, and others follow")
			}
		}
		if errors.Is(err, io.EOF) {
			return errTorn
		}
		if err != nil {
			return err
		}
	}
}
