package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/fairway-net/fairway/apiserver/storage"
)

// AddSecretsKey makes a new key of Secrets. A server that is alone writes with it from its
// next start on; those of a cluster must all be able to read what is written with it first.
func AddSecretsKey(dataDir string) (clustered bool, err error) {
	file := EncryptionKeys(dataDir)
	if clustered, err = IsOfCluster(dataDir); err != nil {
		return clustered, err
	}
	if err := storage.AddEncryptionKey(file); err != nil || clustered {
		return clustered, err
	}
	return false, storage.UseLastEncryptionKey(file)
}

// UseSecretsKey has this server write with the new key, if all servers read with it.
func UseSecretsKey(ctx context.Context, dataDir string, config *rest.Config) error {
	file := EncryptionKeys(dataDir)
	names, err := storage.KeyNames(file)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create API client: %w", err)
	}
	data, err := client.CoreV1().RESTClient().Get().AbsPath(MembersPath).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	var members []Member
	if err := json.Unmarshal(data, &members); err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	for _, m := range members {
		if !slices.Contains(m.SecretKeys, names[len(names)-1]) {
			return fmt.Errorf("server %s doesn't read with the last key of %s: copy the file there, and restart that server first (nothing was changed)", m.Name, file)
		}
	}
	return storage.UseLastEncryptionKey(file)
}

// rewriteAgain is how often a Secret is tried again: for the better part of a minute, longer than
// servers elect a leader.
var rewriteAgain = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 10, Cap: 20 * time.Second, Jitter: 0.1}

// mayPass reports whether a request may succeed when it is made again: somebody else wrote the
// object, or the servers had no leader for a moment, or the one that was asked went.
func mayPass(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsConflict(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || !errors.As(err, &status) && !errors.Is(err, context.Canceled)
}

// RewriteSecrets writes each Secret as it is. The server skips writes that
// change nothing, except where the stored form is not what it would write now.
func RewriteSecrets(ctx context.Context, config *rest.Config) (int, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, fmt.Errorf("create API client: %w", err)
	}
	list, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list Secrets: %w", err)
	}
	for i, item := range list.Items {
		secrets := client.CoreV1().Secrets(item.Namespace)
		err := retry.OnError(rewriteAgain, mayPass, func() error {
			secret, err := secrets.Get(ctx, item.Name, metav1.GetOptions{})
			if err == nil {
				_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) { // it was deleted meanwhile
			return i, fmt.Errorf("rewrite Secret %s/%s: %w", item.Namespace, item.Name, err)
		}
	}
	return len(list.Items), nil
}
