package join

import (
	"context"
	"crypto/tls"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// isAccepted asks whether the certificate of a machine that has joined still
// holds. While no server answers it does.
func isAccepted(ctx context.Context, dir string) bool {
	config, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(dir))
	if err != nil {
		return false // its files are gone
	}
	pair, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
	if err != nil || time.Now().After(pair.Leaf.NotAfter) {
		return false
	}
	config.Timeout, config.WarningHandler = askTimeout, rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false
	}
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return !apierrors.IsUnauthorized(err)
}
