package config

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/kube/join"
)

// The flags by which a command that joins is given a token.
const (
	TokenFlag     = "token"
	TokenFileFlag = "token-file"
)

// AddToken binds the flags by which a command that joins is given a token.
func AddToken(flags *pflag.FlagSet, token *string, create string) {
	flags.Var(&tokenFile{token: token}, TokenFileFlag, "file with the token that `"+create+"` prints; - for standard input, which is asked for at a terminal. A systemd credential named "+join.CredentialName+" needs no flag")
	flags.Lookup(TokenFileFlag).DefValue = ""
	flags.StringVar(token, TokenFlag, *token, "the token itself: every user of the machine can read arguments, so better give --"+TokenFileFlag)
}

// tokenFile is a flag that reads a token.
type tokenFile struct {
	token *string
	name  string
}

// String is part of pflag.Value: the file's name, never the token.
func (f *tokenFile) String() string { return f.name }

// Type is part of pflag.Value.
func (f *tokenFile) Type() string { return "file" }

// Set is part of pflag.Value.
func (f *tokenFile) Set(name string) (err error) {
	f.name = name
	*f.token, err = join.ReadTokenFile(name, os.Stdin, os.Stderr)
	return err
}
