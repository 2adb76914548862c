package store

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

var (
	errLinkLocal = errors.New("link-local addresses are not allowed")
	errTooLong   = errors.New("an answer has no end")
)

// Transport returns a transport as Open makes one where Options have none: a
// timeout at every step, no decompression behind our back, and no connection to
// a link-local address, whatever name led there.
func Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second, Control: refuseLinkLocal}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  20 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		// Whoever writes an object by a presigned URL may call it gzip. What is
		// read is then still what is stored, and as long as it says.
		DisableCompression: true,
	}
}

// refuseLinkLocal looks at an address after its name was resolved.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err == nil && ap.Addr().IsLinkLocalUnicast() {
		return errLinkLocal
	}
	return nil
}

// maxList is the most of a list that is read: a page of the longest keys, each
// byte of them escaped, and as much again around them.
const maxList = 2 * 3 * maxKey * pageSize

// bounded ends every answer, so that no reader of the client's own goes on for
// ever.
type bounded struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	most := int64(MaxObject)
	if req.URL.Query().Has("list-type") {
		most = maxList
	}
	res.Body = &boundedBody{ReadCloser: res.Body, left: most}
	return res, nil
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more shows whether there is more
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
