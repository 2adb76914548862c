package main

import (
	"flag"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// parsed are the settings that a command line makes.
func parsed(t *testing.T, args ...string) *settings {
	t.Helper()
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	var s settings
	s.bindFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestTheCacheKeepsNoManagedFields(t *testing.T) {
	for name, args := range map[string][]string{"all namespaces": nil, "some": {"--namespaces=alpha,beta"}} {
		scheme, err := kinds()
		if err != nil {
			t.Fatal(err)
		}
		opts := parsed(t, args...).manager(scheme)
		if opts.Cache.DefaultTransform == nil {
			t.Fatalf("%s: objects are kept as they come", name)
		}
		kept, err := opts.Cache.DefaultTransform(&v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Name: "s", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "undersong-ws"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := kept.(*v1alpha1.Session); !ok || s.Name != "s" || len(s.ManagedFields) != 0 {
			t.Errorf("%s: kept is %+v, want the Session without managedFields", name, kept)
		}
	}
}

func TestWhatIsNoSetting(t *testing.T) {
	for _, args := range [][]string{{"--memory-limit=-1"}, {"--compare-within=-1s"}, {"--namespaces=No_Name"}} {
		if err := parsed(t, args...).validate(); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
