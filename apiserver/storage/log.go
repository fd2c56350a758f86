package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fairway-net/fairway/internal/logdedup"
)

// etcdLog passes etcd's errors on to slog. Its warnings, about slow disks most
// of all, are debug messages there: they ask for nothing to be done.
type etcdLog struct {
	log    *slog.Logger
	fields []zapcore.Field
}

// soonRepeated is an error that a store has in its first seconds: what it asks
// for is written with the next entry, and then it succeeds.
const soonRepeated = "failed to update storage version"

// closing is an error that etcd reports of each listener that it closes. One that
// it doesn't close itself is reported to whoever started it.
const closing = "setting up serving from embedded etcd failed."

// notReady is an error on the leader while a member that joins catches up: that
// one asks again.
const notReady = "rejecting promote learner: learner is not ready"

// newEtcdLogger returns a logger for etcd, which repeats what it tries again. If etcd gives up (zap's Fatal, which
// would end the process), fatal is called and only the goroutine ends.
func newEtcdLogger(log *slog.Logger, fatal func(error)) *zap.Logger {
	log = slog.New(logdedup.New(log.Handler()))
	return zap.New(&etcdLog{log: log}, zap.WithFatalHook(fatalHook(fatal)))
}

// Enabled implements zapcore.Core.
func (l *etcdLog) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (l *etcdLog) With(fields []zapcore.Field) zapcore.Core {
	return &etcdLog{l.log, append(l.fields[:len(l.fields):len(l.fields)], fields...)}
}

// Check implements zapcore.Core.
func (l *etcdLog) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

// Write implements zapcore.Core. What ends etcd is reported by whoever reads the
// backend's failure.
func (l *etcdLog) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	args := make([]any, 0, 2*(len(fields)+len(l.fields)))
	for key, value := range encode(append(l.fields[:len(l.fields):len(l.fields)], fields...)) {
		args = append(args, key, value)
	}
	switch {
	case entry.Level < zapcore.ErrorLevel || entry.Message == soonRepeated || entry.Message == closing || entry.Message == notReady:
		l.log.Debug("etcd: "+entry.Message, args...)
	case entry.Level == zapcore.ErrorLevel:
		l.log.Error("etcd: "+entry.Message, args...)
	}
	return nil
}

// Sync implements zapcore.Core.
func (l *etcdLog) Sync() error { return nil }

func encode(fields []zapcore.Field) map[string]any {
	encoder := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(encoder)
	}
	return encoder.Fields
}

// fatalHook is told of the message after which etcd can't go on.
type fatalHook func(error)

// OnWrite implements zapcore.CheckWriteHook. It must not return.
func (h fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(entry.Message)
	if cause, ok := encode(fields)["error"]; ok {
		err = fmt.Errorf("%s: %v", entry.Message, cause)
	}
	h(err)
	runtime.Goexit()
}
