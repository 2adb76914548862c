package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// everyProject stands for the blocks of all projects on the command line.
const everyProject = "-"

// maxLabel is how long a label may be, as the MemoryBlock kind has it.
const maxLabel = 63

// blockRow is one block as undersong memory shows it.
type blockRow struct {
	Name      string    `json:"name"`
	Label     string    `json:"label"`
	Project   string    `json:"project"`
	Mode      string    `json:"mode"`
	Bytes     int64     `json:"bytes"`
	Extent    string    `json:"extent,omitempty"`
	Revision  string    `json:"revision,omitempty"`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	Session   string    `json:"session,omitempty"`
	// Value is left out of lists.
	Value string `json:"value,omitempty"`
}

// revisionRow is one text of a block's history.
type revisionRow struct {
	Revision string    `json:"revision"`
	At       time.Time `json:"at"`
	Bytes    int64     `json:"bytes"`
	Session  string    `json:"session,omitempty"`
	Change   string    `json:"change,omitempty"`
}

type memoryFlags struct {
	project string
	asJSON  bool
}

func (f *memoryFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.project, "project", "", "the project, as host/path; - is what is for all projects; omitted means that of this folder, or the only one there is")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON, for programs")
}

func (s *System) memoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "Read what the team's memory knows, and what changed",
		Long: `Read the blocks of the team's memory, as its MemoryBlocks show them.

A learned block is written by the memory's agent. A pinned one is written by the
team: export it, keep it in git, and let a lead apply it.`,
	}
	cmd.AddCommand(s.memoryList(), s.memoryShow(), s.memoryLog(), s.memoryDiff(), s.memoryName(), s.memoryExport())
	return cmd
}

func (s *System) memoryList() *cobra.Command {
	var f memoryFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the memory's blocks",
		Example: `  undersong memory list
  undersong memory list --project git.example.com/team/shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			blocks, err := s.memoryBlocks(c.Context())
			if err != nil {
				return err
			}
			if f.project != "" {
				blocks = slices.DeleteFunc(blocks, func(b v1alpha1.MemoryBlock) bool { return b.Spec.Project != projectOf(f.project) })
			}
			rows := make([]blockRow, 0, len(blocks))
			for i := range blocks {
				row := newBlockRow(&blocks[i])
				row.Value = ""
				rows = append(rows, row)
			}
			if f.asJSON {
				return s.printJSON(rows)
			}
			return s.print("%s", renderBlocks(rows, s.Clock.Now()))
		},
	}
	cmd.Flags().StringVar(&f.project, "project", "", "only of this project, as host/path; - is what is for all projects")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func (s *System) memoryShow() *cobra.Command {
	var f memoryFlags
	cmd := &cobra.Command{
		Use:     "show LABEL",
		Short:   "Print the text of a block",
		Example: `  undersong memory show pitfalls`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := s.memoryBlock(c.Context(), args[0], f.project)
			if err != nil {
				return err
			}
			if f.asJSON {
				return s.printJSON(newBlockRow(b))
			}
			if b.Status.Value == "" {
				return s.print("The block is empty.\n")
			}
			if err := s.print("%s\n", safeLines(b.Status.Value)); err != nil {
				return err
			}
			if b.Status.Extent == v1alpha1.ExtentTruncated {
				_, err = fmt.Fprintf(s.Err, "undersong: this is the beginning of %s\n", size(b.Status.Bytes))
			}
			return err
		},
	}
	f.bind(cmd)
	return cmd
}

func (s *System) memoryLog() *cobra.Command {
	var f memoryFlags
	cmd := &cobra.Command{
		Use:   "log LABEL",
		Short: "List the last ten texts of a block, the newest first",
		Long: `List the last ten texts of a block, the newest first: the revision, when it was
first seen, and the session whose words led to it. A lead gives the text of an
earlier revision back to the agent by spec.restore of the MemoryBlock.`,
		Example: `  undersong memory log pitfalls`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := s.memoryBlock(c.Context(), args[0], f.project)
			if err != nil {
				return err
			}
			rows := revisions(b)
			if f.asJSON {
				return s.printJSON(rows)
			}
			return s.print("%s", renderRevisions(rows, s.Clock.Now()))
		},
	}
	f.bind(cmd)
	return cmd
}

func (s *System) memoryDiff() *cobra.Command {
	var f memoryFlags
	cmd := &cobra.Command{
		Use:   "diff LABEL [FROM [TO]]",
		Short: "Show what changed in a block",
		Long: `Show what the newest revision of a block changed, or what changed after FROM, up
to TO or to the present: a minus before each line that went, a plus before each
that came, one revision after the other.

The changes are those that the MemoryBlock keeps, of the last ten revisions and
each cut to 2,048 characters: this workstation cannot read the store that has the
texts.`,
		Example: `  undersong memory diff pitfalls
  undersong memory diff pitfalls 97dde353f6cd`,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := s.memoryBlock(c.Context(), args[0], f.project)
			if err != nil {
				return err
			}
			rows, err := between(revisions(b), args[1:])
			if err != nil {
				return err
			}
			if f.asJSON {
				return s.printJSON(rows)
			}
			return s.print("%s", renderChanges(rows, s.Clock.Now()))
		},
	}
	f.bind(cmd)
	return cmd
}

func (s *System) memoryName() *cobra.Command {
	var project, memory string
	cmd := &cobra.Command{
		Use:   "name LABEL",
		Short: "Print the name that a block's MemoryBlock must have",
		Long: `Print the name that the MemoryBlock of a label must have. It is made of memory,
label and project; a MemoryBlock of another name is not acted on. The cluster is
not asked.`,
		Example: `  undersong memory name conventions --project -
  undersong memory name conventions --project git.example.com/team/shop`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkLabel(args[0]); err != nil {
				return err
			}
			if project == "" {
				if project = repository(); project == "" {
					return errors.New("this folder is in no repository with a remote: name the project with --project, or - for all projects")
				}
			}
			if memory == "" {
				home, err := s.home()
				if err != nil {
					return err
				}
				config, err := note.LoadConfig(home)
				if err != nil {
					return err
				}
				memory = config.Memory
			}
			return s.print("%s\n", v1alpha1.MemoryBlockName(memory, projectOf(project), args[0]))
		},
	}
	cmd.Flags().StringVar(&project, "project", "", "the project, as host/path; - is for all projects; omitted means that of this folder")
	cmd.Flags().StringVar(&memory, "memory", "", "the TeamMemory; omitted means the configured one")
	return cmd
}

func (s *System) memoryExport() *cobra.Command {
	var project string
	cmd := &cobra.Command{
		Use:   "export [LABEL]...",
		Short: "Print blocks as pinned MemoryBlocks, for git",
		Long: `Print the pinned blocks as YAML that a lead can keep in git and apply. With
labels, print those blocks as they are now, learned ones too: applied, they are
pinned, and the agent's changes are put back from then on.`,
		Example: `  undersong memory export > memory.yaml
  undersong memory export conventions --project git.example.com/team/shop`,
		RunE: func(c *cobra.Command, args []string) error {
			var blocks []v1alpha1.MemoryBlock
			if len(args) == 0 {
				all, err := s.memoryBlocks(c.Context())
				if err != nil {
					return err
				}
				blocks = slices.DeleteFunc(all, func(b v1alpha1.MemoryBlock) bool {
					return b.Spec.Mode != v1alpha1.BlockPinned || (project != "" && b.Spec.Project != projectOf(project))
				})
			}
			for _, label := range args {
				b, err := s.memoryBlock(c.Context(), label, project)
				if err != nil {
					return err
				}
				blocks = append(blocks, *b)
			}
			text, err := exported(blocks)
			if err != nil {
				return err
			}
			return s.print("%s", text)
		},
	}
	cmd.Flags().StringVar(&project, "project", "", "the project, as host/path; - is what is for all projects; omitted means that of this folder, or the only one there is")
	return cmd
}

// printJSON prints a value for programs.
func (s *System) printJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return s.print("%s\n", text)
}

// memoryBlocks reads the blocks of the configured memory, sorted by project and
// label.
func (s *System) memoryBlocks(ctx context.Context) ([]v1alpha1.MemoryBlock, error) {
	config, c, err := s.configured()
	if err != nil {
		return nil, err
	}
	ctx, cancel := asking(ctx)
	defer cancel()
	list := &v1alpha1.MemoryBlockList{}
	if err := c.List(ctx, list, config.Namespace, kube.Fields{"spec.memoryRef.name": config.Memory}); err != nil {
		return nil, explain(err)
	}
	// One that the controller does not act on has nothing to show.
	blocks := slices.DeleteFunc(list.Items, func(b v1alpha1.MemoryBlock) bool {
		return b.Name != v1alpha1.MemoryBlockName(b.Spec.MemoryRef.Name, b.Spec.Project, b.Spec.Label)
	})
	slices.SortFunc(blocks, func(a, b v1alpha1.MemoryBlock) int {
		return cmp.Or(cmp.Compare(a.Spec.Project, b.Spec.Project), cmp.Compare(a.Spec.Label, b.Spec.Label))
	})
	return blocks, nil
}

// memoryBlock finds the block of a label: of the project that is named, else of
// this folder's, else the only one there is.
func (s *System) memoryBlock(ctx context.Context, label, project string) (*v1alpha1.MemoryBlock, error) {
	if err := checkLabel(label); err != nil {
		return nil, err
	}
	all, err := s.memoryBlocks(ctx)
	if err != nil {
		return nil, err
	}
	return pick(all, label, project, repository())
}

func pick(all []v1alpha1.MemoryBlock, label, project, folder string) (*v1alpha1.MemoryBlock, error) {
	var of []*v1alpha1.MemoryBlock
	for i := range all {
		if all[i].Spec.Label == label {
			of = append(of, &all[i])
		}
	}
	wanted := projectOf(project)
	if project == "" {
		wanted = folder
	}
	for _, b := range of {
		if b.Spec.Project == wanted && (project != "" || folder != "") {
			return b, nil
		}
	}
	switch {
	case len(of) == 0:
		return nil, fmt.Errorf("the memory has no block %s; undersong memory list shows those it has", label)
	case project != "":
		return nil, fmt.Errorf("that project has no block %s; undersong memory list shows those there are", label)
	case len(of) == 1:
		return of[0], nil
	}
	var projects []string
	for _, b := range of {
		projects = append(projects, cmp.Or(safe(b.Spec.Project), everyProject))
	}
	return nil, fmt.Errorf("several projects have a block %s: name one with --project, of %s", label, strings.Join(projects, ", "))
}

// repository is the remote of the repository that this folder is in, empty for none.
func repository() string {
	folder, err := os.Getwd()
	if err != nil {
		return ""
	}
	p, err := new(consent.Finder).Project(folder)
	if err != nil || p.Outside {
		return ""
	}
	return p.Remote
}

// projectOf is the project that a flag names.
func projectOf(flag string) string {
	if flag == everyProject {
		return ""
	}
	return strings.ToLower(flag)
}

// checkLabel refuses what can be no label.
func checkLabel(label string) error {
	bad := strings.ContainsFunc(label, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
	if label == "" || len(label) > maxLabel || bad || label[0] == '_' || label[0] == '-' {
		return errors.New("a label has 1 to 63 of a-z, 0-9, _ and -, and begins with a letter or digit")
	}
	return nil
}

func newBlockRow(b *v1alpha1.MemoryBlock) blockRow {
	r := blockRow{
		Name: b.Name, Label: b.Spec.Label, Project: b.Spec.Project, Mode: string(b.Spec.Mode), Bytes: b.Status.Bytes,
		Extent: string(b.Status.Extent), Revision: b.Status.Revision, Session: b.Status.LastSession, Value: b.Status.Value,
	}
	if b.Status.UpdatedAt != nil {
		r.UpdatedAt = b.Status.UpdatedAt.Time
	}
	return r
}

// revisions are the texts of a block, the newest first.
func revisions(b *v1alpha1.MemoryBlock) []revisionRow {
	rows := make([]revisionRow, 0, len(b.Status.History))
	for _, h := range b.Status.History {
		rows = append(rows, revisionRow{Revision: h.Revision, At: h.At.Time, Bytes: h.Bytes, Session: h.Session, Change: h.Change})
	}
	return rows
}

// between are the revisions after the first of the named ones up to the second,
// the oldest first.
func between(rows []revisionRow, named []string) ([]revisionRow, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	from, to := 1, 0 // indexes; the newest first
	var err error
	if len(named) > 0 {
		if from, err = find(rows, named[0]); err != nil {
			return nil, err
		}
	}
	if len(named) > 1 {
		if to, err = find(rows, named[1]); err != nil {
			return nil, err
		}
		if to > from {
			return nil, errors.New("the first revision must be older than the second")
		}
	}
	out := slices.Clone(rows[to:min(from, len(rows))])
	slices.Reverse(out)
	return out, nil
}

// find is the place of the newest revision that begins with text.
func find(rows []revisionRow, text string) (int, error) {
	found := -1
	for i, r := range rows {
		switch {
		case r.Revision == text:
			return i, nil
		case text != "" && (strings.HasPrefix(r.Revision, text) || strings.HasPrefix(bare(r.Revision), text)):
			if found >= 0 && rows[found].Revision != r.Revision {
				return 0, errors.New("several revisions begin like that: write more of the one you mean")
			}
			if found < 0 {
				found = i
			}
		}
	}
	if found < 0 {
		return 0, errors.New("the block's history has no such revision; undersong memory log shows those it has")
	}
	return found, nil
}

// bare is a revision without the name of its digest.
func bare(revision string) string { return strings.TrimPrefix(revision, "sha256:") }

// short is as much of a revision as tells it from others.
func short(revision string) string {
	if r := bare(safe(revision)); len(r) > 12 && !strings.HasPrefix(r, "generation-") {
		return r[:12]
	}
	return safe(revision)
}

func renderBlocks(rows []blockRow, now time.Time) string {
	if len(rows) == 0 {
		return "The memory has no blocks yet.\n"
	}
	var b strings.Builder
	table := [][]string{{"LABEL", "PROJECT", "MODE", "BYTES", "UPDATED", "SESSION"}}
	for _, r := range rows {
		updated := ""
		if !r.UpdatedAt.IsZero() {
			updated = ago(now, r.UpdatedAt) + " ago"
		}
		table = append(table, []string{
			safe(r.Label), cmp.Or(safe(r.Project), everyProject), r.Mode, strconv.FormatInt(r.Bytes, 10), updated, safe(r.Session),
		})
	}
	columns(&b, table)
	return b.String()
}

func renderRevisions(rows []revisionRow, now time.Time) string {
	if len(rows) == 0 {
		return "Nothing was written yet.\n"
	}
	var b strings.Builder
	table := [][]string{{"REVISION", "SEEN", "BYTES", "LINES", "SESSION"}}
	for _, r := range rows {
		came, went := 0, 0
		for line := range strings.Lines(r.Change) {
			switch line[0] {
			case '+':
				came++
			case '-':
				went++
			}
		}
		lines := fmt.Sprintf("+%d -%d", came, went)
		if strings.HasSuffix(r.Change, "…") {
			lines += " or more"
		}
		table = append(table, []string{short(r.Revision), ago(now, r.At) + " ago", strconv.FormatInt(r.Bytes, 10), lines, safe(r.Session)})
	}
	columns(&b, table)
	return b.String()
}

func renderChanges(rows []revisionRow, now time.Time) string {
	if len(rows) == 0 {
		return "Nothing changed.\n"
	}
	var b strings.Builder
	for i, r := range rows {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "revision %s, seen %s ago", short(r.Revision), ago(now, r.At))
		if r.Session != "" {
			b.WriteString(", from session " + safe(r.Session))
		}
		b.WriteString("\n" + safeLines(r.Change) + "\n")
	}
	return b.String()
}

// safeLines is safe line by line.
func safeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = safe(line)
	}
	return strings.Join(lines, "\n")
}

// exported is YAML of Pinned blocks with the texts of these.
func exported(blocks []v1alpha1.MemoryBlock) (string, error) {
	if len(blocks) == 0 {
		return "", errors.New("the memory has no pinned block; name a learned one to make one of it")
	}
	type meta struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	var docs []string
	for _, b := range blocks {
		spec := b.Spec
		if spec.Mode != v1alpha1.BlockPinned {
			spec = v1alpha1.MemoryBlockSpec{MemoryRef: spec.MemoryRef, Project: spec.Project, Label: spec.Label, Mode: v1alpha1.BlockPinned, Value: b.Status.Value}
			switch {
			case b.Status.Extent == v1alpha1.ExtentTruncated:
				return "", fmt.Errorf("the block %s is too long to be pinned: %s", spec.Label, size(b.Status.Bytes))
			case spec.Value == "":
				return "", fmt.Errorf("the block %s is empty: there is nothing to pin", spec.Label)
			}
			spec.Value += "\n" // YAML for people; it is trimmed when it is written
		}
		// No agent is given what these take out, and a terminal is not either.
		spec.Value, spec.Description = safeLines(spec.Value), safe(spec.Description)
		doc, err := yaml.Marshal(struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        meta                     `json:"metadata"`
			Spec            v1alpha1.MemoryBlockSpec `json:"spec"`
		}{
			metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MemoryBlock"},
			meta{b.Name, b.Namespace},
			spec,
		})
		if err != nil {
			return "", fmt.Errorf("write the block %s: %w", spec.Label, err)
		}
		docs = append(docs, string(doc))
	}
	return strings.Join(docs, "---\n"), nil
}
