package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"
)

func newIdentity(tb testing.TB) Identity {
	tb.Helper()
	id, err := NewIdentity()
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

func TestEveryRecipientOpensAndNobodyElse(t *testing.T) {
	a, b, other := newIdentity(t), newIdentity(t), newIdentity(t)
	plain := []byte("what memory knows")
	sealed, err := Seal(plain, a.Recipient(), b.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]Identity{"first": a, "second": b} {
		if got, err := id.Open(sealed); err != nil || !bytes.Equal(plain, got) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, id := range map[string]Identity{"other": other, "zero": {}} {
		if _, err := id.Open(sealed); !errors.Is(err, ErrNotForUs) {
			t.Errorf("%s: error %v, want ErrNotForUs", name, err)
		}
	}
}

func TestIdentityIsKeptAsText(t *testing.T) {
	id := newIdentity(t)
	back, err := ParseIdentity(id.String() + "\n")
	if err != nil || back.String() != id.String() || back.Recipient() != id.Recipient() {
		t.Fatalf("ParseIdentity(String()): other key, error %v", err)
	}
	for name, s := range map[string]string{"Empty": "", "Public": id.Recipient(), "Cut": id.String()[:40], "Typed": strings.ToLower(id.String()) + "!"} {
		_, err := ParseIdentity(s)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if s != "" && strings.Contains(strings.ToUpper(err.Error()), strings.ToUpper(s[:min(20, len(s))])) {
			t.Errorf("%s: the error holds the key: %v", name, err)
		}
	}
}

func TestIdentityIsNotPrinted(t *testing.T) {
	id := newIdentity(t)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("Starting", "identity", id)
	inside := struct{ Key Identity }{id}
	text, err := json.Marshal(inside)
	if err == nil {
		t.Errorf("marshalled: %s", text)
	}
	printed := log.String() + fmt.Sprint(id) + fmt.Sprintf("%v %+v %#v %s %q %x %d", id, id, id, id, id, id, id) +
		fmt.Sprintf("%v %+v", inside, &inside)
	secret := strings.TrimPrefix(id.String(), "AGE-SECRET-KEY-1")
	for _, form := range []string{secret, fmt.Sprintf("%x", secret)} {
		if strings.Contains(strings.ToUpper(printed), strings.ToUpper(form)) {
			t.Errorf("the secret key is in %s", printed)
		}
	}
	for _, text := range []string{log.String(), fmt.Sprint(id)} {
		if !strings.Contains(text, id.Recipient()) {
			t.Errorf("the public key is not in %s", text)
		}
	}
}

func TestSealLimits(t *testing.T) {
	id := newIdentity(t)
	random := make([]byte, MaxPlain+1)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	many := make([]string, MaxRecipients+1)
	for i := range many {
		many[i] = id.Recipient()
	}
	sealed, err := Seal(random[:MaxPlain], many[1:]...)
	if err != nil {
		t.Fatalf("at both limits: %v", err)
	}
	if got, err := id.Open(sealed); err != nil || !bytes.Equal(random[:MaxPlain], got) {
		t.Errorf("opened at both limits to %d bytes, error %v", len(got), err)
	}
	if _, err := Seal(random, id.Recipient()); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte more: %v, want ErrTooLarge", err)
	}
	if sealed, err = Seal(nil, id.Recipient()); err != nil {
		t.Fatalf("nothing: %v", err)
	}
	if got, err := id.Open(sealed); err != nil || len(got) != 0 {
		t.Errorf("nothing opened to %q, %v", got, err)
	}
	for name, keys := range map[string][]string{
		"None": nil, "TooMany": many, "Secret": {id.String()}, "SecondWrong": {id.Recipient(), "age1x"}, "SSH": {"ssh-ed25519 AAAA"},
	} {
		_, err := Seal([]byte("x"), keys...)
		if err == nil {
			t.Errorf("%s: sealed", name)
			continue
		}
		if strings.Contains(err.Error(), id.String()) {
			t.Errorf("%s: the error holds the key", name)
		}
	}
}

// sealRaw seals bytes that need not be zstd.
func sealRaw(t *testing.T, packed []byte, id Identity) string {
	t.Helper()
	var buf bytes.Buffer
	w, err := age.Encrypt(&buf, id.key.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(packed); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(buf.Bytes())
}

func TestOpenErrors(t *testing.T) {
	id := newIdentity(t)
	sealed, err := Seal([]byte("text"), id.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(raw)
	flipped[len(flipped)-1] ^= 1
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		sealed string
		want   error
	}{
		"Empty":    {"nothing", "", ErrCorrupt},
		"NoBase64": {"other characters", "***", ErrCorrupt},
		"NoAge":    {"other bytes", base64.StdEncoding.EncodeToString([]byte("hello")), ErrCorrupt},
		"Flipped":  {"age authenticates", base64.StdEncoding.EncodeToString(flipped), ErrCorrupt},
		"Cut":      {"the end is missing", base64.StdEncoding.EncodeToString(raw[:len(raw)-1]), ErrCorrupt},
		"NoZstd":   {"sealed, but not by Seal", sealRaw(t, []byte("hello"), id), ErrCorrupt},
		"Bomb":     {"256 MiB of zeros", sealRaw(t, e.EncodeAll(make([]byte, 256<<20), nil), id), ErrTooLarge},
		"OneMore":  {"one byte over the limit", sealRaw(t, e.EncodeAll(make([]byte, MaxPlain+1), nil), id), ErrTooLarge},
		"Long":     {"too long to be looked at", strings.Repeat("A", maxSealed+4), ErrTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := id.Open(tc.sealed)
			if diff := cmp.Diff(tc.want, err, cmpopts.EquateErrors()); diff != "" || got != nil {
				t.Errorf("%s: %d bytes (-want +got):\n%s", tc.reason, len(got), diff)
			}
		})
	}
}

func TestGrantIsOpenedUnchanged(t *testing.T) {
	id := newIdentity(t)
	want := Grant{ExpiresAt: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)}
	for n := range int64(MaxSlots) {
		want.Slots = append(want.Slots, Slot{N: n + 1, URL: "https://s3.example.com/b/k", Headers: map[string]string{"If-None-Match": "*"}})
	}
	sealed, err := SealGrant(want, id.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	got, err := id.OpenGrant(sealed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Slots = append(want.Slots, Slot{N: 65, URL: "x"})
	if _, err := SealGrant(want, id.Recipient()); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one slot more: %v, want ErrTooLarge", err)
	}
}

func TestGrantThatDoesNotFitTheStatus(t *testing.T) {
	id := newIdentity(t)
	random := make([]byte, MaxGrant)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	g := Grant{Slots: []Slot{{N: 1, URL: base64.URLEncoding.EncodeToString(random)}}}
	if _, err := SealGrant(g, id.Recipient()); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
}

func TestWhisperIsOpenedUnchanged(t *testing.T) {
	id := newIdentity(t)
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	want := WhisperText{
		ID: "w-1", Session: "s-1", Project: "example.com/a/b", Memory: "team", Text: "Grüße <b> \u2028", At: at, Expires: at.Add(2 * time.Hour),
		Source: WhisperSource{
			Session: "s-1-abc", Workstation: "ws-1", FromSegment: 3, ToSegment: 4, Agent: "agent-1", Conversation: "conv-1", Revision: "r-1",
		},
	}
	sealed, err := SealWhisper(want, id.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	got, err := id.OpenWhisper(sealed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestContentErrors: what is sealed well may still be nonsense, and the error
// does not repeat it.
func TestContentErrors(t *testing.T) {
	id := newIdentity(t)
	many, err := json.Marshal(Grant{Slots: make([]Slot, MaxSlots+1)})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, plain       string
		wantGrant, wantText error
	}{
		"NoJSON":    {"no JSON", "hunter2", ErrCorrupt, ErrCorrupt},
		"WrongType": {"members of other types", `{"slots":"hunter2","id":{"hunter2":1}}`, ErrCorrupt, ErrCorrupt},
		"Nothing":   {"an empty grant is one, a whisper has an id", `{}`, nil, ErrCorrupt},
		"NoURL":     {"a slot has a URL", `{"slots":[{"n":1}],"id":"w"}`, ErrCorrupt, nil},
		"NoNumber":  {"a slot has a number", `{"slots":[{"url":"x"}],"id":"w"}`, ErrCorrupt, nil},
		"Many":      {"more slots than a grant has", string(many), ErrTooLarge, ErrCorrupt},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sealed, err := Seal([]byte(tc.plain), id.Recipient())
			if err != nil {
				t.Fatal(err)
			}
			_, grantErr := id.OpenGrant(sealed)
			_, textErr := id.OpenWhisper(sealed)
			if diff := cmp.Diff([]error{tc.wantGrant, tc.wantText}, []error{grantErr, textErr}, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if strings.Contains(fmt.Sprint(grantErr, textErr), "hunter2") {
				t.Errorf("an error repeats the text: %v, %v", grantErr, textErr)
			}
		})
	}
}

// FuzzOpenNeverPanics: any characters, and any bytes sealed to us, end in a
// bounded text or in one of three errors.
func FuzzOpenNeverPanics(f *testing.F) {
	id := newIdentity(f)
	sealed, err := Seal([]byte(`{"id":"w"}`), id.Recipient())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed, []byte("x"))
	f.Add("", []byte{0x28, 0xb5, 0x2f, 0xfd})
	f.Fuzz(func(t *testing.T, text string, packed []byte) {
		for _, s := range []string{text, sealRaw(t, packed, id)} {
			plain, err := id.Open(s)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrNotForUs) {
				t.Errorf("an error of no kind: %v", err)
			}
			if len(plain) > MaxPlain {
				t.Errorf("opened to %d bytes", len(plain))
			}
		}
	})
}
