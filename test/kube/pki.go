package kube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"
)

// lifetime of certificates. Leaves are made anew at each start; the authority
// is kept with the cluster, because kubeconfigs name it.
const lifetime = 5 * 365 * 24 * time.Hour

// pki is the cluster's own certificate authority and what it signed.
type pki struct {
	dir    string
	ca     *x509.Certificate
	caPEM  []byte
	key    crypto.Signer
	adminC []byte // client certificate of a member of system:masters
	adminK []byte
}

// newPKI reads the authority and the ServiceAccount key of dir, or makes them,
// and signs the leaves.
func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificate folder: %w", err)
	}
	var err error
	if p.key, err = p.keepKey("ca.key"); err != nil {
		return nil, err
	}
	if _, err = p.keepKey("sa.key"); err != nil {
		return nil, err
	}
	if err := p.keepAuthority(); err != nil {
		return nil, err
	}
	for name, subject := range map[string]pkix.Name{
		"server": {CommonName: "kube-apiserver"},
		"etcd":   {CommonName: "etcd"},
		"admin":  {CommonName: "undersong-admin", Organization: []string{"system:masters"}},
	} {
		certificate, key, err := p.leaf(subject)
		if err != nil {
			return nil, fmt.Errorf("sign certificate of %s: %w", name, err)
		}
		if err := errors.Join(p.write(name+".crt", certificate), p.write(name+".key", key)); err != nil {
			return nil, err
		}
		if name == "admin" {
			p.adminC, p.adminK = certificate, key
		}
	}
	return p, nil
}

// path of a file of the folder.
func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) write(name string, data []byte) error {
	if err := os.WriteFile(p.path(name), data, 0o600); err != nil {
		return fmt.Errorf("write certificate file: %w", err)
	}
	return nil
}

// keepKey reads a key, or makes it.
func (p *pki) keepKey(name string) (crypto.Signer, error) {
	data, err := os.ReadFile(p.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		key, data, err := newKey()
		if err != nil {
			return nil, err
		}
		return key, p.write(name, data)
	}
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("read key %s: not PEM", name)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", name, err)
	}
	return key, nil
}

// keepAuthority reads the authority's certificate, or makes it.
func (p *pki) keepAuthority() error {
	data, err := os.ReadFile(p.path("ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		now := clock.RealClock{}.Now()
		template := &x509.Certificate{
			SerialNumber:          big.NewInt(1),
			Subject:               pkix.Name{CommonName: "undersong-test-ca"},
			NotBefore:             now.Add(-time.Hour),
			NotAfter:              now.Add(lifetime),
			KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			BasicConstraintsValid: true,
			IsCA:                  true,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, p.key.Public(), p.key)
		if err != nil {
			return fmt.Errorf("make certificate authority: %w", err)
		}
		data = encode("CERTIFICATE", der)
		if err := p.write("ca.crt", data); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("read certificate authority: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return errors.New("read certificate authority: not PEM")
	}
	p.caPEM = data
	p.ca, err = x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("read certificate authority: %w", err)
	}
	return nil
}

// leaf signs a certificate that serves on loopback and authenticates clients.
func (p *pki) leaf(subject pkix.Name) (certificate, key []byte, err error) {
	signer, key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	now := clock.RealClock{}.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, signer.Public(), p.key)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", der), key, nil
}

// trust returns how the administrator speaks to the cluster's own servers.
func (p *pki) trust() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(p.adminC, p.adminK)
	if err != nil {
		return nil, fmt.Errorf("load administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.ca)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return key, encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
