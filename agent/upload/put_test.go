package upload

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/internal/seal"
)

func TestPut(t *testing.T) {
	type test struct {
		reason string
		answer http.HandlerFunc
		want   error
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, tt := range map[string]test{
		"stored":        {"the usual answer", status(http.StatusOK), nil},
		"created":       {"some stores say so", status(http.StatusCreated), nil},
		"there already": {"an earlier try, whose answer was lost", status(http.StatusPreconditionFailed), nil},
		"expired":       {"the laptop's clock is not asked", status(http.StatusForbidden), ErrForbidden},
		"no bucket":     {"nothing here can help", status(http.StatusNotFound), ErrNoBucket},
		"overloaded":    {"later", status(http.StatusServiceUnavailable), ErrStore},
		"conflict":      {"two writes at once", status(http.StatusConflict), ErrStore},
		"redirect": {
			"a slot is one exact URL",
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			}, ErrStore,
		},
		"hangs up": {
			"no answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var body, condition string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					t.Error("a redirect was followed")
				}
				data, _ := io.ReadAll(r.Body)
				body, condition = string(data), r.Header.Get("If-None-Match")
				tt.answer(w, r)
			}))
			slot := seal.Slot{N: 1, URL: server.URL + "/bucket/key?X-Amz-Signature=secret", Headers: map[string]string{"If-None-Match": "*"}}
			err := Put(t.Context(), NewHTTPClient(server.Client().Transport), slot, []byte("segment"))
			server.Close() // waits for the handler
			if diff := cmp.Diff(tt.want, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
			if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "127.0.0.1")) {
				t.Errorf("the error tells the URL: %v", err)
			}
			if body != "segment" || condition != "*" {
				t.Errorf("sent %q with If-None-Match %q", body, condition)
			}
		})
	}
}

func TestPutWithoutServer(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	err := Put(t.Context(), NewHTTPClient(http.DefaultTransport), seal.Slot{URL: server.URL + "/x?sig=secret"}, nil)
	if diff := cmp.Diff(ErrUnreachable, err, cmpopts.EquateErrors()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err == nil || err.Error() != "put segment: the object store cannot be reached from this workstation (no connection)" {
		t.Errorf("the text is not stable: %v", err)
	}
}
