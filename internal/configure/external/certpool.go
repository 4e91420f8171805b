package external

import (
	"crypto/x509"
	"fmt"
	"os"
)

// CertPool returns the certificate authorities in a PEM file.
func CertPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file) //nolint:gosec // the operator's file
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca %s: want a PEM file with certificates", file)
	}
	return pool, nil
}
