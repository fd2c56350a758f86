package join

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CredentialName is the name of the systemd credential that holds a token
// (LoadCredential=, SetCredentialEncrypted=).
const CredentialName = "fairway-token"

// maxTokenFile bounds what is read of a file.
const maxTokenFile = 4096

// ReadTokenFile reads a token from a file, or from in if the name is "-". At a
// terminal it is asked for. The token itself is no argument of any command: these
// can be read by every user of the machine.
func ReadTokenFile(name string, in *os.File, ask io.Writer) (string, error) {
	if name == "-" {
		if IsTerminal(in) {
			fmt.Fprint(ask, "Join token (`fairway token create` on a server prints one): ")
			return readLine(in)
		}
		return readToken(in)
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	token, err := readToken(f)
	if fd, found := strings.CutPrefix(name, "/proc/self/fd/"); found && err == nil {
		if n, convErr := strconv.Atoi(fd); convErr == nil {
			err = unix.Close(n) // nobody who is started from here on has it
		}
	}
	return token, err
}

func readToken(from io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxTokenFile))
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	if token := strings.TrimSpace(string(data)); token != "" {
		return token, nil
	}
	return "", errors.New("there is no token in it")
}

// readLine reads up to the end of a line, and not what follows it.
func readLine(from io.Reader) (string, error) {
	var line strings.Builder
	for one := make([]byte, 1); line.Len() < maxTokenFile; {
		n, err := from.Read(one)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read token: %w", err)
		}
		if n == 0 || one[0] == '\n' {
			break
		}
		line.WriteByte(one[0])
	}
	return readToken(strings.NewReader(line.String()))
}

// CredentialToken reads the token that systemd gives this process; "" if it gives none.
func CredentialToken() (string, error) {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return "", nil
	}
	token, err := ReadTokenFile(filepath.Join(dir, CredentialName), nil, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("credential %s: %w", CredentialName, err)
	}
	return token, nil
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
