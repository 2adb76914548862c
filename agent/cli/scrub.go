package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/seal"
)

const (
	// scrubFieldOwner owns spec.scrubs.
	scrubFieldOwner = "undersong-cli"
	// maxScrubs is the bound of spec.scrubs.
	maxScrubs = 16
	// scrubTries bounds how often an entry is written when others change the
	// TeamMemory at the same moment.
	scrubTries = 5
)

type scrubFlags struct {
	initFlags
	id, drop string
	wait     time.Duration
}

func (s *System) scrubCommand() *cobra.Command {
	var f scrubFlags
	cmd := &cobra.Command{
		Use:   "scrub",
		Short: "Take a text out of everything that the memory keeps",
		Long: `Take a secret, or any text of 8 to 8192 bytes, out of everything that the memory
keeps, and have it replaced wherever it comes from anew. The text is read from
stdin and does not leave this computer: the cluster is told its length and a
digest under a key of its own. One line end behind it is not part of it.

Without --yes it is looked for, and nothing is changed. The controller does the
work and goes on if this command is interrupted: run it again with --id. At the
end it says what was found where, and what nobody can reach.

Who may change the TeamMemory may do this: a team's lead.`,
		Example: `  undersong admin scrub -n alpha < secret.txt
  read -rs TEXT; printf %s "$TEXT" | undersong admin scrub -n alpha --yes
  undersong admin scrub -n alpha --id 3f9c21d7 --yes`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.scrub(c.Context(), f) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.yes, "yes", "y", false, "take it out; without it, it is only looked for")
	flags.StringVar(&f.id, "id", "", "an earlier scrub: read no text, go on with that one")
	flags.StringVar(&f.drop, "drop", "", "take the scrub of this id away: its text is not replaced any more when it comes again")
	flags.DurationVar(&f.wait, "wait", 10*time.Minute, "how long to wait for the end; it goes on without being waited for")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, or .kube/config in your home)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default its current one)")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "the team's namespace (default that of the context)")
	flags.StringVar(&f.memory, "memory", "", "name of the TeamMemory (default the only one of the namespace)")
	return cmd
}

func (s *System) scrub(ctx context.Context, f scrubFlags) error {
	if f.id != "" && f.drop != "" {
		return errors.New("give --id or --drop")
	}
	target, err := s.target(f.initFlags)
	if err != nil {
		return err
	}
	p := &plan{config: target}
	if p.rest, err = daemon.LoadREST(target.Kubeconfig, target.Context); err != nil {
		return explain(err)
	}
	if p.client, err = kube.New(p.rest); err != nil {
		return err
	}
	memory, err := s.findMemory(ctx, p)
	if err != nil {
		return err
	}
	key := kube.Key{Namespace: memory.Namespace, Name: memory.Name}
	if f.drop != "" {
		if err := s.changeScrubs(ctx, p.client, key, func(m *v1alpha1.TeamMemory) error { return dropScrub(m, f.drop) }); err != nil {
			return err
		}
		return s.print("Taken away. What was taken out stays out; the text is not replaced any more when it comes again.\n")
	}
	id, err := s.askScrub(ctx, p.client, key, f)
	if err != nil {
		return err
	}
	again := fmt.Sprintf("undersong admin scrub -n %s --memory %s --id %s", key.Namespace, key.Name, id)
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	mode, status, err := s.scrubbed(ctx, p.client, key, id)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("the controller is not at its end: %s; it goes on, look again by: %s", scrubSays(status), again)
	case err != nil:
		return err
	case status.Phase == v1alpha1.ScrubRefused:
		return fmt.Errorf("the controller refuses: %s (undersong admin scrub -n %s --memory %s --drop %s)", safe(status.Message), key.Namespace, key.Name, id)
	}
	if err := s.print("%s", scrubReport(status)); err != nil {
		return err
	}
	if mode == v1alpha1.ScrubRemove {
		return s.print("\nIt is replaced wherever it comes from anew, until you take the scrub away:\n\n  undersong admin scrub -n %s --memory %s --drop %s\n", key.Namespace, key.Name, id)
	}
	found := slices.ContainsFunc(status.Found, func(p v1alpha1.ScrubFound) bool { return p.Found > 0 })
	if !found && len(status.NotReached) == 0 {
		return s.changeScrubs(ctx, p.client, key, func(m *v1alpha1.TeamMemory) error { return dropScrub(m, id) })
	}
	return s.print("\nNothing is changed. To take it out, and replace it wherever it comes from anew:\n\n  %s --yes\n", again)
}

// scrubSays is what a scrub that is not at its end says.
func scrubSays(status *v1alpha1.ScrubStatus) string {
	switch {
	case status == nil:
		return "it has not begun (is a controller of this version running?)"
	case status.Message != "":
		return safe(status.Message)
	}
	return "it is looking"
}

// askScrub writes the entry, and returns its id.
func (s *System) askScrub(ctx context.Context, c *kube.Client, key kube.Key, f scrubFlags) (string, error) {
	if f.id != "" {
		return f.id, s.changeScrubs(ctx, c, key, func(m *v1alpha1.TeamMemory) error {
			i := slices.IndexFunc(m.Spec.Scrubs, func(e v1alpha1.Scrub) bool { return e.ID == f.id })
			if i < 0 {
				return fmt.Errorf("TeamMemory %s has no scrub %s: leave --id out and give the text", key.Name, safe(f.id))
			}
			if f.yes {
				m.Spec.Scrubs[i].Mode = v1alpha1.ScrubRemove
			}
			return nil
		})
	}
	if s.Terminal() {
		return "", errors.New(`the text is read from stdin, and a terminal would show it: undersong admin scrub < file, or: read -rs TEXT; printf %s "$TEXT" | undersong admin scrub`)
	}
	value, err := io.ReadAll(io.LimitReader(s.In, redact.MaxKnown+3))
	if err != nil {
		return "", fmt.Errorf("read the text from stdin: %w", err)
	}
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	secret := make([]byte, redact.KnownKeySize)
	if _, err := rand.Read(secret); err != nil {
		return "", err
	}
	digest, err := redact.KnownDigest(secret, value)
	if err != nil {
		return "", fmt.Errorf("%w; stdin had %d", err, len(value))
	}
	entry := v1alpha1.Scrub{ID: uuid.NewString()[:8], Mode: v1alpha1.ScrubLook, Length: int32(len(value)), Digest: digest} //nolint:gosec // at most MaxKnown
	if f.yes {
		entry.Mode = v1alpha1.ScrubRemove
	}
	return entry.ID, s.changeScrubs(ctx, c, key, func(m *v1alpha1.TeamMemory) error {
		if m.Status.ScrubKey == "" {
			return fmt.Errorf("TeamMemory %s has no key to seal to: is a controller of this version running, and does it reach the store? kubectl -n %s get teammemory %s", key.Name, key.Namespace, key.Name)
		}
		if len(m.Spec.Scrubs) >= maxScrubs {
			return fmt.Errorf("TeamMemory %s has %d scrubs, and no room for one more: take one away that is Done, undersong admin scrub --drop %s", key.Name, maxScrubs, m.Spec.Scrubs[0].ID)
		}
		var err error
		if entry.SealedKey, err = seal.Seal(secret, m.Status.ScrubKey); err != nil {
			return err
		}
		m.Spec.Scrubs = append(m.Spec.Scrubs, entry)
		return nil
	})
}

func dropScrub(m *v1alpha1.TeamMemory, id string) error {
	n := len(m.Spec.Scrubs)
	m.Spec.Scrubs = slices.DeleteFunc(m.Spec.Scrubs, func(e v1alpha1.Scrub) bool { return e.ID == id })
	if len(m.Spec.Scrubs) == n {
		return fmt.Errorf("TeamMemory %s has no scrub %s", m.Name, safe(id))
	}
	return nil
}

// changeScrubs changes spec.scrubs and nothing else.
func (s *System) changeScrubs(ctx context.Context, c *kube.Client, key kube.Key, change func(*v1alpha1.TeamMemory) error) error {
	ctx, cancel := asking(ctx)
	defer cancel()
	for try := 1; ; try++ {
		m := &v1alpha1.TeamMemory{}
		if err := c.Get(ctx, key, m); err != nil {
			return explain(err)
		}
		before := slices.Clone(m.Spec.Scrubs)
		if err := change(m); err != nil {
			return err
		}
		if slices.Equal(before, m.Spec.Scrubs) {
			return nil
		}
		var scrubs any // null: without any, the field is not there
		if len(m.Spec.Scrubs) > 0 {
			scrubs = m.Spec.Scrubs
		}
		err := c.Merge(ctx, m, map[string]any{"spec": map[string]any{"scrubs": scrubs}}, scrubFieldOwner)
		switch {
		case err == nil:
			return nil
		case apierrors.IsForbidden(err):
			return fmt.Errorf("you may not change TeamMemory %s: a team's lead can do this", key.Name)
		case !apierrors.IsConflict(err) || try == scrubTries:
			return explain(err)
		}
	}
}

// scrubbed waits until a scrub is at its end.
func (s *System) scrubbed(ctx context.Context, c *kube.Client, key kube.Key, id string) (mode v1alpha1.ScrubMode, status *v1alpha1.ScrubStatus, err error) {
	ticker := s.Clock.NewTicker(answerEvery)
	defer ticker.Stop()
	for {
		m := &v1alpha1.TeamMemory{}
		if err := c.Get(ctx, key, m); err != nil {
			if ctx.Err() != nil {
				return mode, status, ctx.Err()
			}
			return mode, status, explain(err)
		}
		at := slices.IndexFunc(m.Spec.Scrubs, func(e v1alpha1.Scrub) bool { return e.ID == id })
		if at < 0 {
			return mode, status, fmt.Errorf("somebody took the scrub %s away meanwhile", id)
		}
		mode, status = m.Spec.Scrubs[at].Mode, nil
		if i := slices.IndexFunc(m.Status.Scrubs, func(t v1alpha1.ScrubStatus) bool { return t.ID == id && t.Mode == mode }); i >= 0 {
			if status = &m.Status.Scrubs[i]; status.Phase != v1alpha1.ScrubRunning {
				return mode, status, nil
			}
		}
		select {
		case <-ctx.Done():
			return mode, status, ctx.Err()
		case <-ticker.C():
		}
	}
}

// scrubPlaces says what the places are called, in the order in which they are
// shown.
var scrubPlaces = []struct {
	place v1alpha1.ScrubPlace
	name  string
}{
	{v1alpha1.ScrubArchive, "segments of the archive"},
	{v1alpha1.ScrubRecords, "records of sessions in the archive"},
	{v1alpha1.ScrubUploads, "uploads that are not verified"},
	{v1alpha1.ScrubConversations, "conversations at Letta"},
	{v1alpha1.ScrubBlocks, "blocks at Letta"},
	{v1alpha1.ScrubBlockTexts, "texts of blocks in the store"},
	{v1alpha1.ScrubMemoryBlocks, "MemoryBlocks"},
	{v1alpha1.ScrubSessions, "titles and whispers of Sessions"},
}

// beyondReach is what no scrub reaches, ever.
var beyondReach = []string{
	"transcripts on workstations, and what waits there to be sent: it is taken out when it arrives",
	"whispers that were shown already; those that wait are withdrawn with their session's conversation",
	"what the model's provider keeps of requests",
	"backups of etcd, of the bucket, of Letta, and versions that the bucket keeps: after a restore, scrub again",
	"a part of the text, another spelling, or what the memory says of it in its own words",
}

// scrubReport says what was found and what became of it.
func scrubReport(status *v1alpha1.ScrubStatus) string {
	remove := status.Mode == v1alpha1.ScrubRemove
	head := []string{"WHERE", "LOOKED AT", "FOUND IN"}
	if remove {
		head = append(head, "TAKEN OUT OF")
	}
	rows := [][]string{head}
	for _, p := range scrubPlaces {
		f := v1alpha1.ScrubFound{}
		if i := slices.IndexFunc(status.Found, func(f v1alpha1.ScrubFound) bool { return f.Place == p.place }); i >= 0 {
			f = status.Found[i]
		}
		row := []string{p.name, strconv.FormatInt(f.Looked, 10), strconv.FormatInt(f.Found, 10)}
		if remove {
			row = append(row, strconv.FormatInt(f.Changed, 10))
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	columns(&b, rows)
	if len(status.Sessions) > 0 {
		b.WriteString("\nSessions in whose words it stood: " + safe(strings.Join(status.Sessions, ", ")) + "\n")
	}
	list := func(title string, all []string) {
		if len(all) == 0 {
			return
		}
		b.WriteString("\n" + title + "\n")
		for _, one := range all {
			b.WriteString("- " + safe(one) + "\n")
		}
	}
	list("Not reached here:", status.NotReached)
	list("Never reached:", beyondReach)
	return b.String()
}
