package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// memoryBlock is a block with three texts.
func memoryBlock(project, label string, mode v1alpha1.BlockMode) v1alpha1.MemoryBlock {
	at := metav1.NewTime(now.Add(-time.Hour))
	old := metav1.NewTime(now.Add(-50 * time.Hour))
	b := v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "alpha", Name: v1alpha1.MemoryBlockName("main", project, label)},
		Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: "main"}, Project: project, Label: label, Mode: mode},
		Status: v1alpha1.MemoryBlockStatus{
			Value: "- tide: tables\n\n- \"two\": # boats\x1b[2J\u202e", Extent: v1alpha1.ExtentWhole, Bytes: 40, UpdatedAt: &at, LastSession: "s1-00000000",
			Revision: "sha256:" + strings.Repeat("c", 64),
			History: []v1alpha1.BlockRevision{
				{Revision: "sha256:" + strings.Repeat("c", 64), At: at, Bytes: 40, Session: "s1-00000000", Change: "-- one boat\n+- two\x1b[2J boats"},
				{Revision: "sha256:cc" + strings.Repeat("b", 62), At: at, Bytes: 30, Change: "+" + strings.Repeat("x", 30) + "…"},
				{Revision: "generation-1", At: old, Bytes: 12, Change: "+- one boat"},
			},
		},
	}
	for i := range b.Status.History {
		b.Status.History[i].Digest = strings.Repeat("a", 64)
	}
	if mode == v1alpha1.BlockPinned {
		b.Spec.Value, b.Spec.Description = "Say: why.\n\nAnd # how.\n", "our \"rules\""
	}
	return b
}

func TestMemoryIsGolden(t *testing.T) {
	learned := memoryBlock("git.example.com/alpha/tide", "pitfalls", v1alpha1.BlockLearned)
	pinned := memoryBlock("", "conventions", v1alpha1.BlockPinned)
	rows := revisions(&learned)
	since, err := between(rows, []string{"generation-1"})
	if err != nil {
		t.Fatal(err)
	}
	yaml, err := exported([]v1alpha1.MemoryBlock{pinned, learned})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "memory", strings.Join([]string{
		renderBlocks([]blockRow{newBlockRow(&pinned), newBlockRow(&learned)}, now), renderBlocks(nil, now),
		safeLines(learned.Status.Value) + "\n",
		renderRevisions(rows, now), renderRevisions(nil, now),
		renderChanges(since, now), renderChanges(nil, now),
		yaml,
	}, "\n"))
}

func TestBetween(t *testing.T) {
	b := memoryBlock("p", "l", v1alpha1.BlockLearned)
	rows := revisions(&b)
	for name, c := range map[string]struct {
		reason string
		named  []string
		want   []int // places in rows
		err    string
	}{
		"newest":      {"without a revision the newest change is shown", nil, []int{0}, ""},
		"since":       {"all that came after it, the oldest first", []string{"generation-1"}, []int{1, 0}, ""},
		"from and to": {"up to the second", []string{"generation-1", "ccbb"}, []int{1}, ""},
		"same":        {"nothing lies between a revision and itself", []string{"ccbb", "ccbb"}, nil, ""},
		"short":       {"with and without the digest's name", []string{"sha256:ccb"}, []int{0}, ""},
		"unclear":     {"two begin like that", []string{"cc"}, nil, "several revisions"},
		"unknown":     {"none does", []string{"nope"}, nil, "no such revision"},
		"empty":       {"nothing names nothing", []string{""}, nil, "no such revision"},
		"turned":      {"the older one comes first", []string{"ccbb", "generation-1"}, nil, "older"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := between(rows, c.named)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("%s: error %v, want %q", c.reason, err, c.err)
			}
			var want []revisionRow
			for _, i := range c.want {
				want = append(want, rows[i])
			}
			if len(got) != len(want) || len(want) > 0 && cmp.Diff(want, got) != "" {
				t.Errorf("%s: (-want +got):\n%s", c.reason, cmp.Diff(want, got))
			}
		})
	}
}

func TestPick(t *testing.T) {
	shop, tide := memoryBlock("h/shop", "brief", v1alpha1.BlockLearned), memoryBlock("h/tide", "brief", v1alpha1.BlockLearned)
	all := memoryBlock("", "brief", v1alpha1.BlockPinned)
	single := memoryBlock("h/shop", "glossary", v1alpha1.BlockLearned)
	blocks := []v1alpha1.MemoryBlock{all, shop, tide, single}
	for name, c := range map[string]struct {
		reason, label, project, folder string
		want                           string
		err                            string
	}{
		"named":         {"the flag decides", "brief", "h/tide", "h/shop", tide.Name, ""},
		"capitals":      {"remotes are lower case", "brief", "H/Tide", "", tide.Name, ""},
		"all":           {"a dash is for all projects", "brief", "-", "h/shop", all.Name, ""},
		"folder":        {"else that of this folder", "brief", "", "h/shop", shop.Name, ""},
		"only":          {"else the only one there is", "glossary", "", "h/other", single.Name, ""},
		"several":       {"else it must be said", "brief", "", "", "", "name one with --project, of -, h/shop, h/tide"},
		"none":          {"there is none", "pitfalls", "", "", "", "no block pitfalls"},
		"not of it":     {"that project has none", "glossary", "h/tide", "", "", "that project has no block"},
		"not of folder": {"another's is not taken for this folder's where there are several", "brief", "", "h/other", "", "several projects"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := pick(blocks, c.label, c.project, c.folder)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("%s: error %v, want %q", c.reason, err, c.err)
			}
			if err == nil && b.Name != c.want {
				t.Errorf("%s: got %s, want %s", c.reason, b.Name, c.want)
			}
		})
	}
}

func TestWhatCannotBeExported(t *testing.T) {
	long := memoryBlock("p", "l", v1alpha1.BlockLearned)
	long.Status.Extent = v1alpha1.ExtentTruncated
	empty := memoryBlock("p", "l", v1alpha1.BlockLearned)
	empty.Status.Value = ""
	for name, c := range map[string]struct {
		reason string
		blocks []v1alpha1.MemoryBlock
		says   string
	}{
		"none":  {"there is nothing", nil, "no pinned block"},
		"long":  {"half a text is not pinned", []v1alpha1.MemoryBlock{long}, "too long"},
		"empty": {"nothing is not pinned", []v1alpha1.MemoryBlock{empty}, "nothing to pin"},
	} {
		if _, err := exported(c.blocks); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %s: error %v, want %q", name, c.reason, err, c.says)
		}
	}
}

func TestMemoryName(t *testing.T) {
	m := newMachine(t)
	t.Chdir(m.dir) // no repository
	for name, c := range map[string]struct {
		reason    string
		args      []string
		out, errs string
	}{
		"all":         {"as the example of the spec has it", []string{"conventions", "--project", "-", "--memory", "alpha"}, "alpha-conventions-a9a00161\n", ""},
		"one":         {"the project is part of it", []string{"pitfalls", "--project", "github.com/example/shop", "--memory", "alpha"}, "alpha-pitfalls-564ea4e5\n", ""},
		"no label":    {"what can be no label is refused", []string{"../x\x1b[2J", "--project", "-"}, "", "a label has"},
		"no project":  {"outside a repository it must be said", []string{"conventions", "--memory", "alpha"}, "", "--project"},
		"no memory":   {"without init it must be said", []string{"conventions", "--project", "-"}, "", "undersong init"},
		"beyond long": {"a label has a bound", []string{strings.Repeat("a", 64), "--project", "-"}, "", "a label has"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := m.run(append([]string{"memory", "name"}, c.args...)...)
			if out != c.out || (code != 0) != (c.errs != "") || !strings.Contains(errs, c.errs) || strings.Contains(errs, "\x1b") {
				t.Errorf("%s: exit %d, printed %q, %q", c.reason, code, out, errs)
			}
		})
	}
	if err := note.SaveConfig(m.dir+"/state", note.Config{Owner: "ada", Namespace: "alpha", Memory: "main", ConsentedAt: now}); err != nil {
		t.Fatal(err)
	}
	if _, out, errs := m.run("memory", "name", "conventions", "--project", "-"); out != v1alpha1.MemoryBlockName("main", "", "conventions")+"\n" {
		t.Errorf("with the configured memory: %q, %q", out, errs)
	}
}
