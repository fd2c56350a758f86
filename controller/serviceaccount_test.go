package controller_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testCA stands for the certificate of the API server's authority.
const testCA = "the CA"

// testNamespaceContent: a namespace gets its ServiceAccount and the CA again that
// somebody deletes, and the CA that somebody changes.
func testNamespaceContent(r *rig) {
	ctx := context.Background()
	accounts, configMaps := r.client.CoreV1().ServiceAccounts(r.ns), r.client.CoreV1().ConfigMaps(r.ns)
	ca := func(ctx context.Context) error {
		c, err := configMaps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil && c.Data["ca.crt"] != testCA {
			err = fmt.Errorf("the CA is %q", c.Data["ca.crt"])
		}
		return err
	}
	r.eventually("the CA is there", ca)
	r.eventually("the CA is deleted", func(ctx context.Context) error {
		return configMaps.Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{})
	})
	r.eventually("the CA is there again", ca)
	r.eventually("the CA is changed", func(ctx context.Context) error {
		c, err := configMaps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.Data["ca.crt"] = "another"
		_, err = configMaps.Update(ctx, c, metav1.UpdateOptions{})
		return err
	})
	r.eventually("the CA is as it was", ca)
	account := func(ctx context.Context) error {
		_, err := accounts.Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	r.eventually("the account is there", account)
	if err := accounts.Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.eventually("the account is there again", account)
}
