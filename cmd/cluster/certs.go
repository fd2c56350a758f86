//go:build !agentonly

package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/controller/addresses"
	"github.com/fairway-net/fairway/controller/nodecert"
	"github.com/fairway-net/fairway/kube/credentials"
)

func Certs() *cobra.Command {
	c := &cobra.Command{Use: "certs", Short: "Show, renew and revoke certificates", Args: cobra.NoArgs}
	c.AddCommand(showCertsCommand(), rotateCertsCommand(), rotateAuthorityCommand(), revokeCertsCommand())
	return c
}

func showCertsCommand() *cobra.Command {
	var dirs []string
	c := &cobra.Command{
		Use: "show", Short: "List the certificates on this machine, and when they expire", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 3, ' ', 0)
			fmt.Fprintln(table, "FILE\tSUBJECT\tISSUED BY\tENDS\tDAYS LEFT")
			found := false
			for _, dir := range dirs {
				if _, err := os.ReadDir(dir); errors.Is(err, fs.ErrPermission) {
					return fmt.Errorf("look for certificates: %w", err)
				}
				for _, file := range certificateFiles(dir) {
					cert, err := readCertificate(file)
					if err != nil {
						return err
					}
					found = true
					fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\n", file, cert.Subject, cert.Issuer.CommonName,
						cert.NotAfter.UTC().Format(time.DateTime), int(time.Until(cert.NotAfter).Hours()/24))
				}
			}
			if !found {
				return fmt.Errorf("no certificates in %v: is this a server, or a machine that has joined?", dirs)
			}
			return table.Flush()
		},
	}
	c.Flags().StringSliceVar(&dirs, "data-dir", []string{apiserver.DefaultConfig().DataDir, credentials.NodeDir}, "data directories of the server and of join")
	return c
}

// certificateFiles are those of a data directory. The machine's older
// certificates lie beside the current one.
func certificateFiles(dir string) []string {
	var files []string
	for _, pattern := range []string{"pki/*.crt", "pki/serving.pem", "pki/peer.pem", "admin.kubeconfig", "pki/*-current.pem"} {
		// The pattern is well formed.
		matches, _ := filepath.Glob(filepath.Join(dir, pattern))
		files = append(files, matches...)
	}
	return files
}

// readCertificate reads the first certificate of a PEM file or of a kubeconfig.
func readCertificate(file string) (*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if filepath.Ext(file) == ".kubeconfig" {
		config, err := clientcmd.Load(data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		for _, user := range config.AuthInfos {
			data = user.ClientCertificateData
		}
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		return cert, nil
	}
	return nil, fmt.Errorf("read %s: there is no certificate in it", file)
}

func rotateCertsCommand() *cobra.Command {
	dir := apiserver.DefaultConfig().DataDir
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Renew the server's serving certificate and the administrator's now, also while the server runs",
		Long: `Renew the server's serving certificate and the administrator's kubeconfig now.

A running server takes the new serving certificate up within a minute. Servers
renew both by themselves when a third of their year is left, and machines
their certificates of 30 days.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := apiserver.RotateCertificates(dir); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "renewed: the serving certificate, %s\n", apiserver.AdminKubeconfig(dir))
			return nil
		},
	}
	c.Flags().StringVar(&dir, "data-dir", dir, "the server's --data-dir")
	return c
}

func revokeCertsCommand() *cobra.Command {
	kubeconfig := apiserver.AdminKubeconfig(apiserver.DefaultConfig().DataDir)
	var namespace string
	c := &cobra.Command{
		Use: "revoke NODE", Short: "Lock a machine out of the cluster: revoke its certificates, replace the key of adverts, and delete its Node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, client, err := adminClient(kubeconfig)
			if err != nil {
				return err
			}
			if err := nodecert.LockOut(cmd.Context(), client, args[0]); err != nil {
				return err
			}
			// The machine knows the key that nodes sign their adverts with.
			rotated := addresses.RotateKey(cmd.Context(), client, namespace, false)
			if rotated != nil && !apierrors.IsNotFound(rotated) {
				return errors.Join(errors.New("its certificates are revoked; replace the key of adverts with fairway announce rotate-key --now, and delete the Node"), rotated)
			}
			err = client.CoreV1().Nodes().Delete(cmd.Context(), args[0], metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return errors.Join(fmt.Errorf("its certificates are revoked; delete Node %s", args[0]), err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "certificates of %s issued until now are revoked\n", args[0])
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "but there is no Node %[1]s: if that isn't the name that you meant, see fairway kubectl get nodes\n", args[0])
			}
			return nil
		},
	}
	config.AddAnnounceNamespace(c.Flags(), "announce-namespace", &namespace)
	c.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "kubeconfig of an administrator")
	return c
}
