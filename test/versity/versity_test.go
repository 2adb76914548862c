package versity

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets this test binary be the parent that is killed in
// TestServerDiesWithItsParent.
func TestMain(m *testing.M) {
	if dir := os.Getenv("VERSITY_TEST_PARENT"); dir != "" {
		s, err := Start(context.Background(), Options{Dir: dir})
		if err != nil {
			panic(err)
		}
		if _, err := os.Stdout.WriteString(s.Endpoint + "\n"); err != nil {
			panic(err)
		}
		select {}
	}
	m.Run()
}

// reachable reports whether something listens at the endpoint.
func reachable(t *testing.T, endpoint string) bool {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(endpoint, "http://"))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func TestServerIsStartedAgainOnItsFolder(t *testing.T) {
	dir := t.TempDir()
	first, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Stop)
	for range 2 { // the second finds it there
		if err := first.MakeBucket(t.Context(), "team"); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.MakeBucket(t.Context(), "No"); err == nil {
		t.Error("made a bucket of a name that S3 does not know")
	}
	address := strings.TrimPrefix(first.Endpoint, "http://")
	if _, err := Start(t.Context(), Options{Dir: t.TempDir(), Address: address}); err == nil {
		t.Error("started a second server on an address in use")
	}
	first.Stop()
	first.Stop()
	if reachable(t, first.Endpoint) {
		t.Error("reachable after Stop")
	}

	second, err := Start(t.Context(), Options{Dir: dir, Address: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Stop)
	got := []string{second.Endpoint, second.AccessKeyID, second.SecretAccessKey}
	if diff := cmp.Diff([]string{first.Endpoint, first.AccessKeyID, first.SecretAccessKey}, got); diff != "" {
		t.Errorf("the server started again is another one (-want +got):\n%s", diff)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, second.Endpoint+"/team", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("answered %s to a stranger", res.Status)
	}
}

func TestCredentialsOfTwoFoldersDiffer(t *testing.T) {
	a, b := t.TempDir()+"/a.json", t.TempDir()+"/b.json"
	ida, secreta, err := credentials(a)
	if err != nil {
		t.Fatal(err)
	}
	idb, secretb, err := credentials(b)
	if err != nil {
		t.Fatal(err)
	}
	if ida == idb || secreta == secretb {
		t.Error("two folders share credentials")
	}
	info, err := os.Stat(a)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(a, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := credentials(a); err == nil {
		t.Error("accepted a file without credentials")
	}
}

func TestStartErrors(t *testing.T) {
	for name, o := range map[string]Options{
		"NoFolder":     {},
		"WrongAddress": {Dir: t.TempDir(), Address: "127.0.0.1:none"},
		"NotOurs":      {Dir: t.TempDir(), Address: "192.0.2.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := Start(t.Context(), o); err == nil {
				s.Stop()
				t.Error("started")
			}
		})
	}
}

func TestServerDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "VERSITY_TEST_PARENT="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	endpoint := strings.TrimSpace(line)
	if !reachable(t, endpoint) {
		t.Fatalf("the parent's server is not at %s", endpoint)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed

	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for reachable(t, endpoint) {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("the server outlived its parent")
		}
	}
}
