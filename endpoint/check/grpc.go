package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// askGRPC asks the server's health service (grpc.health.v1). It connects first
// by itself, since the library hides why it couldn't.
func askGRPC(ctx context.Context, t Target, deadline time.Time) (err error) {
	if err := askStream(t, deadline, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	client, err := grpc.NewClient("passthrough:///"+t.Addr.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(t.host()),
		grpc.WithMaxHeaderListSize(maxHeader), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHeader)),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithUserAgent("fairway-health-check"))
	if err != nil {
		return fmt.Errorf("make gRPC client: %w", err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	answer, err := grpc_health_v1.NewHealthClient(client).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: t.Spec.Service})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("gRPC health: %w", context.DeadlineExceeded)
	case err != nil:
		return unexpectedError("gRPC health: " + status.Code(err).String())
	case answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return unexpectedError("gRPC health: " + answer.GetStatus().String())
	}
	return nil
}
