package pki

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// Sign issues a client certificate for the key and subject of a request,
// PEM encoded. The caller has decided that whoever asks may have it. life is at
// most NodeLife. The certificate says that it was issued after the time after, even if
// that is to come: so it isn't among those that were revoked until then.
func (a *Authority) Sign(request *x509.CertificateRequest, life time.Duration, after time.Time) ([]byte, error) {
	if life <= 0 || life > NodeLife {
		life = NodeLife
	}
	template, err := newTemplate(request.Subject, life)
	if err != nil {
		return nil, err
	}
	if !time.Now().After(after) {
		if template.SerialNumber, err = newSerial(after.Add(1)); err != nil {
			return nil, err
		}
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", request.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
