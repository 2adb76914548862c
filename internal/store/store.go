// Package store keeps objects in one bucket of an S3 server. It is the only
// package that knows the S3 client.
//
// Keys go in and come out without the bucket's prefix. Every call has a deadline
// of its own and makes one attempt: who calls decides when to try again, and a
// test that fails the n-th call fails it for good. Redirects are not followed,
// and neither is a route to link-local addresses, where clouds keep credentials.
//
// Errors are one of a few sentinels around the name of the operation and the
// key, in a text that is the same each time: no URL, host, port, signature or
// request id, so that it can stand in a condition. A workstation never uses this
// package, it only has the URLs that PresignPut makes.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// DefaultRegion is the region where Options name none.
	DefaultRegion = "us-east-1"
	// DefaultTimeout bounds a call where Options say nothing: an object of the
	// largest size at about 10 Mbit/s.
	DefaultTimeout = 30 * time.Second
	// MaxExpiry is the longest that a presigned URL is valid.
	MaxExpiry = time.Hour
	// MaxObject is the most bytes that Get and Put move, and the most of any
	// answer that is read.
	MaxObject = 64 << 20

	maxKey   = 1024 // bytes, S3's own limit, prefix included
	pageSize = 1000 // keys, S3's own limit
)

// The client waits after an attempt, also when it is the last one. Nobody else
// uses the client, so its variable is ours.
func init() { minio.DefaultRetryUnit = time.Nanosecond }

// Options say which bucket, and how it is reached.
type Options struct {
	// Endpoint is http:// or https://, host and perhaps port of the server, as
	// this process reaches it.
	Endpoint string
	// PublicEndpoint is the same server as workstations reach it. Empty means
	// Endpoint. Presigned URLs have exactly this host.
	PublicEndpoint string
	// Region of the bucket. Empty means DefaultRegion.
	Region string
	// Bucket holds the objects. It must be there.
	Bucket string
	// Prefix of every key, without a slash at its ends. Empty means none.
	Prefix string
	// AccessKeyID and SecretAccessKey are the credentials.
	AccessKeyID, SecretAccessKey string
	// Transport makes the calls. Nil means Transport().
	Transport http.RoundTripper
	// Timeout bounds each call; of List, each page. Zero means DefaultTimeout.
	Timeout time.Duration
}

// Bucket is a bucket, or the part of one below a prefix. It is safe for
// concurrent use.
type Bucket struct {
	client, public *minio.Client
	bucket, prefix string
	timeout        time.Duration
	pageSize       int
}

// Info describes an object.
type Info struct {
	// Key of the object, without the bucket's prefix.
	Key string
	// Size in bytes.
	Size int64
	// Modified is when the store says that the object was written.
	Modified time.Time
}

// Open prepares a bucket. It makes no call; Check does.
func Open(o Options) (*Bucket, error) {
	if o.PublicEndpoint == "" {
		o.PublicEndpoint = o.Endpoint
	}
	if o.Region == "" {
		o.Region = DefaultRegion
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Transport == nil {
		o.Transport = Transport()
	}
	b := &Bucket{bucket: o.Bucket, timeout: o.Timeout, pageSize: pageSize}
	if o.Prefix != "" {
		if err := checkKey(o.Prefix); err != nil {
			return nil, fmt.Errorf("open store: prefix: %w", err)
		}
		b.prefix = o.Prefix + "/"
	}
	if o.AccessKeyID == "" || o.SecretAccessKey == "" {
		return nil, errors.New("open store: accessKeyID or secretAccessKey is missing")
	}
	var err error
	if b.client, err = connect(o, o.Endpoint); err != nil {
		return nil, fmt.Errorf("open store: endpoint: %w", err)
	}
	if b.public, err = connect(o, o.PublicEndpoint); err != nil {
		return nil, fmt.Errorf("open store: publicEndpoint: %w", err)
	}
	return b, b.checkPublicHost(o.PublicEndpoint)
}

// connect returns a client for an endpoint, which it checks.
func connect(o Options, endpoint string) (*minio.Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" ||
		(u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("not http:// or https:// with a host and nothing else")
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:     credentials.NewStaticV4(o.AccessKeyID, o.SecretAccessKey, ""),
		Secure:    u.Scheme == "https",
		Transport: bounded{o.Transport},
		// With a region the client asks nobody for it, not even to presign.
		Region: o.Region,
		// The bucket in the path: workstations have pinned the host.
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   1,
	})
	if err != nil {
		return nil, errors.New("not an endpoint that the S3 client accepts")
	}
	client.SetS3EnableDualstack(false) // it would change Amazon's host names
	return client, nil
}

// checkPublicHost finds out by presigning whether URLs will have the host that
// they should. The client replaces some of Amazon's host names.
func (b *Bucket) checkPublicHost(endpoint string) error {
	signed, _, err := b.PresignPut(context.Background(), "x", time.Minute)
	if err != nil {
		return fmt.Errorf("open store: bucket or publicEndpoint: %w", err)
	}
	want, err := url.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("open store: publicEndpoint: %w", err)
	}
	got, err := url.Parse(signed)
	if err != nil {
		return fmt.Errorf("open store: %w", errors.New("the client's URL cannot be parsed")) // it is signed
	}
	if host(got) != host(want) {
		return fmt.Errorf("open store: presigned URLs would have the host %s: name it in publicEndpoint", got.Host)
	}
	return nil
}

// host is host and port, without the port that the scheme implies.
func host(u *url.URL) string {
	port := u.Port()
	if u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		return strings.TrimSuffix(u.Host, ":"+port)
	}
	return u.Host
}

// call returns the context for one call. The caller's own context stays the one
// that says whether the caller gave up.
func (b *Bucket) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.timeout)
}

// Check returns nil if the bucket is there and the credentials may list it.
func (b *Bucket) Check(ctx context.Context) error {
	return b.probe(ctx, "check bucket")
}

// probe asks for one key of the list. An answer to GET has a body with the
// server's reason, which the usual HEAD has not: it makes every 404 a missing
// bucket and every 403 a lack of rights.
func (b *Bucket) probe(ctx context.Context, op string) error {
	_, err := b.page(ctx, op, "", "", 1)
	return err
}

// Get returns an object's bytes. More than limit, of at most MaxObject, is
// ErrTooLarge, found out before they are read where the server says how many
// there are. An object that is not there is ErrNotExist.
func (b *Bucket) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if err := b.check(key); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	limit = min(limit, MaxObject)
	cctx, cancel := b.call(ctx)
	defer cancel()
	core := minio.Core{Client: b.client} // GetObject of Client reads ahead in a goroutine
	body, info, _, err := core.GetObject(cctx, b.bucket, b.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, failed(ctx, "get "+key, err)
	}
	defer func() { _ = body.Close() }() // only read
	if info.Size > limit {
		return nil, fmt.Errorf("get %s: %w", key, ErrTooLarge)
	}
	var data bytes.Buffer
	if info.Size > 0 {
		data.Grow(int(info.Size) + bytes.MinRead)
	}
	if _, err := data.ReadFrom(io.LimitReader(body, limit+1)); err != nil {
		return nil, failed(ctx, "get "+key, err)
	}
	if int64(data.Len()) > limit {
		return nil, fmt.Errorf("get %s: %w", key, ErrTooLarge)
	}
	return data.Bytes(), nil
}

// Put writes an object, in place of one that is there. Doing it again changes
// nothing.
func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	if err := b.check(key); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if len(data) > MaxObject {
		return fmt.Errorf("put %s: %w", key, ErrTooLarge)
	}
	cctx, cancel := b.call(ctx)
	defer cancel()
	_, err := b.client.PutObject(cctx, b.bucket, b.prefix+key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{
		ContentType:      contentType(key),
		DisableMultipart: true, // an object is there whole or not at all, after one call
	})
	if err != nil {
		return failed(ctx, "put "+key, err)
	}
	return nil
}

// contentType goes by the ending of our own keys.
func contentType(key string) string {
	switch {
	case strings.HasSuffix(key, ".zst"):
		return "application/zstd"
	case strings.HasSuffix(key, ".json"):
		return "application/json"
	default:
		return "application/octet-stream"
	}
}

// Stat returns an object's size without reading it. An object that is not there
// is ErrNotExist.
func (b *Bucket) Stat(ctx context.Context, key string) (Info, error) {
	if err := b.check(key); err != nil {
		return Info{}, fmt.Errorf("stat: %w", err)
	}
	cctx, cancel := b.call(ctx)
	defer cancel()
	info, err := b.client.StatObject(cctx, b.bucket, b.prefix+key, minio.StatObjectOptions{})
	if err == nil {
		return Info{Key: key, Size: info.Size, Modified: info.LastModified}, nil
	}
	if answered(err) {
		// The answer has no body, so a missing bucket or unknown credentials
		// look like a missing object, and nobody should give up an object for
		// that. If nothing else is wrong, it is the object.
		if perr := b.probe(ctx, "stat "+key); perr != nil {
			return Info{}, perr
		}
	}
	return Info{}, failed(ctx, "stat "+key, err)
}

// Delete removes an object. One that is not there is success.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.check(key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	cctx, cancel := b.call(ctx)
	defer cancel()
	err := b.client.RemoveObject(cctx, b.bucket, b.prefix+key, minio.RemoveObjectOptions{})
	if err == nil {
		return nil
	}
	if err := failed(ctx, "delete "+key, err); !errors.Is(err, ErrNotExist) {
		return err
	}
	return nil
}

// List returns the objects whose key begins with prefix, in the order of their
// keys. An error is the last element.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	op := strings.TrimSpace("list " + prefix)
	return func(yield func(Info, error) bool) {
		for after := ""; ; {
			// A page is read before it is given out, so that the deadline is
			// the server's and not that of who works on the objects.
			page, err := b.page(ctx, op, prefix, after, b.pageSize)
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
				after = info.Key
			}
			if err != nil {
				yield(Info{}, err)
				return
			}
			if len(page) < b.pageSize {
				return
			}
		}
	}
}

// page returns the n objects after a key, or fewer when there are no more.
func (b *Bucket) page(ctx context.Context, op, prefix, after string, n int) ([]Info, error) {
	cctx, cancel := b.call(ctx)
	defer cancel()
	noOwner := false
	opts := minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true, MaxKeys: n, FetchOwner: &noOwner}
	if after != "" {
		opts.StartAfter = b.prefix + after
	}
	var page []Info
	for object := range b.client.ListObjectsIter(cctx, b.bucket, opts) {
		if object.Err != nil {
			return nil, failed(ctx, op, object.Err)
		}
		page = append(page, Info{Key: strings.TrimPrefix(object.Key, b.prefix), Size: object.Size, Modified: object.LastModified})
		if len(page) == n {
			return page, nil
		}
	}
	// The client ends the list without a word when the context has ended.
	if err := cctx.Err(); err != nil {
		return nil, failed(ctx, op, err)
	}
	return page, nil
}

// PresignPut returns a URL by which one object can be written at key, once, by
// whoever has it, until expiry is over: from a second to MaxExpiry. The headers
// are to be sent with it and are signed; they make the server refuse to replace
// an object that is there. It makes no call.
//
// The server answers 200, 412 when there is an object, 403 when the URL has
// expired or is not as it was made. It may do so before it has read the body and
// close, and then the answer to a large one is lost now and then: seen with
// versitygw from 512 KiB. Who uploads tries again when the connection breaks.
//
// The URL is a secret: it must not be logged or printed.
func (b *Bucket) PresignPut(ctx context.Context, key string, expiry time.Duration) (signed string, headers map[string]string, err error) {
	if err := b.check(key); err != nil {
		return "", nil, fmt.Errorf("presign: %w", err)
	}
	if expiry < time.Second || expiry > MaxExpiry {
		return "", nil, fmt.Errorf("presign %s: valid for %v, not from 1s to %v", key, expiry, MaxExpiry)
	}
	headers = map[string]string{"If-None-Match": "*"}
	header := make(http.Header, len(headers))
	for name, value := range headers {
		header.Set(name, value)
	}
	u, err := b.public.PresignHeader(ctx, http.MethodPut, b.bucket, b.prefix+key, expiry, nil, header)
	if err != nil {
		return "", nil, fmt.Errorf("presign %s: the S3 client refuses the bucket or the key", key)
	}
	return u.String(), headers, nil
}

// check refuses a key of this bucket that is not fit for one.
func (b *Bucket) check(key string) error {
	if len(b.prefix)+len(key) > maxKey {
		return fmt.Errorf("key of more than %d bytes", maxKey)
	}
	return checkKey(key)
}

// checkKey accepts letters, digits and ._~- in parts between single slashes,
// none of them . or .. . Such a key is the same in a URL, for every client and
// server, and stays where it is.
func checkKey(key string) error {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, notInKey) {
			return errors.New("key with an empty or climbing part or another character than letters, digits and ._~-")
		}
	}
	return nil
}

func notInKey(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	default:
		return !strings.ContainsRune("._~-", r)
	}
}
