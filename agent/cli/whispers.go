package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// leastPrefix is how much of an id is enough to name a whisper.
const leastPrefix = 6

// answerEvery is how often it is looked for the cluster's answer.
const answerEvery = time.Second

// whisperRow is one whisper as undersong whispers --json prints it.
type whisperRow struct {
	ID      string         `json:"id"`
	State   string         `json:"state"` // waiting, expired, printed or done
	Session string         `json:"session"`
	Project string         `json:"project,omitempty"`
	Memory  string         `json:"memory,omitempty"`
	Block   string         `json:"block,omitempty"`
	Trust   string         `json:"trust"`
	At      time.Time      `json:"at"`
	Expires time.Time      `json:"expires,omitzero"`
	Text    string         `json:"text"`
	Source  whisper.Source `json:"source,omitzero"`
}

func (s *System) whispersCommand() *cobra.Command {
	var why, wrong string
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "whispers",
		Short: "List what the team's memory told your sessions, the newest first",
		Long: `List what the team's memory said to your sessions on this workstation in the last
week: messages, and blocks of it that the agent was given. A whisper waits, was
printed, or is done: its id was read in the transcript, it expired, it was printed
three times without arriving, or it was withdrawn.

--why says what a whisper came from: whose words the memory's agent had been
given, and which revision of the memory was behind it.

--wrong says that a whisper is wrong: it is withdrawn here at once and everywhere
by the cluster, the team lead sees an event, and the agent is told.

An id may be shortened to its first 6 characters.`,
		Example: `  undersong whispers
  undersong whispers --why 2f1e7d36
  undersong whispers --wrong 2f1e7d36`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case why != "":
				return s.why(why, asJSON)
			case wrong != "":
				return s.wrong(c.Context(), wrong)
			}
			return s.whispers(limit, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&why, "why", "", "say what the whisper of this id came from")
	flags.StringVar(&wrong, "wrong", "", "say that the whisper of this id is wrong")
	flags.BoolVar(&asJSON, "json", false, "print JSON, for programs")
	flags.IntVarP(&limit, "limit", "n", 20, "at most so many; 0 means all")
	cmd.MarkFlagsMutuallyExclusive("why", "wrong")
	cmd.MarkFlagsMutuallyExclusive("wrong", "json")
	return cmd
}

func (s *System) row(k whisper.Kept) whisperRow {
	state := k.State
	switch {
	case state == whisper.Printed:
		state = "printed"
	case state == whisper.Waiting && !k.Expires.IsZero() && !s.Clock.Now().Before(k.Expires):
		state = "expired"
	}
	trust := k.Trust
	if trust == "" {
		trust = whisper.TrustLearned
	}
	return whisperRow{
		ID: k.ID, State: state, Session: k.Session, Project: k.Project, Memory: k.Memory, Block: k.Label, Trust: trust,
		At: k.At, Expires: k.Expires, Text: k.Text, Source: k.Source,
	}
}

func (s *System) whispers(limit int, asJSON bool) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	kept, err := whisper.List(home)
	if err != nil {
		return err
	}
	if limit > 0 {
		kept = kept[:min(len(kept), limit)]
	}
	if asJSON {
		rows := []whisperRow{}
		for _, k := range kept {
			rows = append(rows, s.row(k))
		}
		return s.printJSON(rows)
	}
	if len(kept) == 0 {
		return s.print("The team's memory has told your sessions on this workstation nothing in the last week.\n")
	}
	var b strings.Builder
	table := [][]string{{"ID", "AGE", "STATE", "PROJECT", "SAYS"}}
	for _, k := range kept {
		r := s.row(k)
		says := safe(r.Text)
		if r.Block != "" {
			says = "[" + safe(r.Block) + "] " + says
		}
		table = append(table, []string{safe(shortID(r.ID)), ago(s.Clock.Now(), r.At), r.State, safe(r.Project), clip(says, 60)})
	}
	columns(&b, table)
	return s.print("%s", b.String())
}

// shortID is enough of an id to name it. A block's says which block it is.
func shortID(id string) string {
	if strings.HasPrefix(id, "block-") {
		return id
	}
	return id[:min(len(id), 8)]
}

// clip cuts text for a table.
func clip(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// findWhisper returns the whisper that an id, or its beginning, names.
func (s *System) findWhisper(id string) (whisper.Kept, error) {
	home, err := s.home()
	if err != nil {
		return whisper.Kept{}, err
	}
	kept, err := whisper.List(home)
	if err != nil {
		return whisper.Kept{}, err
	}
	found := map[string]whisper.Kept{}
	for _, k := range kept {
		if k.ID == id {
			return k, nil
		}
		if len(id) >= leastPrefix && strings.HasPrefix(k.ID, id) {
			found[k.ID] = k
		}
	}
	switch len(found) {
	case 0:
		return whisper.Kept{}, errors.New("there is no such whisper on this workstation: undersong whispers lists those of the last week")
	case 1:
		for _, k := range found {
			return k, nil
		}
	}
	return whisper.Kept{}, errors.New("several whispers begin with that id: give more of it")
}

func (s *System) why(id string, asJSON bool) error {
	k, err := s.findWhisper(id)
	if err != nil {
		return err
	}
	r := s.row(k)
	if asJSON {
		return s.printJSON(r)
	}
	rows := [][]string{{"id", safe(r.ID)}, {"said", r.At.UTC().Format("2006-01-02 15:04 MST")}, {"state", r.State}}
	add := func(name, format, value string) {
		if value != "" {
			rows = append(rows, []string{name, fmt.Sprintf(format, safe(value))})
		}
	}
	add("project", "%s", r.Project)
	add("memory", "%s", r.Memory)
	add("for", "your session %s", r.Session)
	if r.Block != "" {
		add("what", "the memory's block %s", r.Block)
		add("more", "undersong memory log %s", r.Block)
	} else {
		add("from", "the words of Session %s", r.Source.Session)
		if f := r.Source; f.ToSegment > 0 {
			rows = append(rows, []string{"lines", fmt.Sprintf("segments %d to %d of workstation %s", f.FromSegment, f.ToSegment, safe(f.Workstation))})
		}
		add("agent", "%s", r.Source.Agent)
		add("talk", "conversation %s", r.Source.Conversation)
		add("revision", "%s of the memory", r.Source.Revision)
	}
	rows = append(rows, []string{"trust", trustText(r.Trust)})
	var b strings.Builder
	columns(&b, rows)
	for line := range strings.Lines(strings.TrimSpace(r.Text)) {
		b.WriteString("\n    " + safe(strings.TrimRight(line, "\n")))
	}
	return s.print("%s\n", b.String())
}

func trustText(trust string) string {
	if trust == whisper.TrustPinned {
		return "pinned: people of your team wrote it"
	}
	return "learned: the memory's agent wrote it, and nobody has checked it"
}

// wrong withdraws a whisper here, and asks the cluster to do so everywhere.
func (s *System) wrong(ctx context.Context, id string) error {
	k, err := s.findWhisper(id)
	if err != nil {
		return err
	}
	home, err := s.home()
	if err != nil {
		return err
	}
	if err := whisper.Withdraw(home, k.Session, k.ID); err != nil {
		return err
	}
	config, c, err := s.configured()
	if err != nil {
		return err
	}
	if k.Label != "" {
		return fmt.Errorf("that is a block of the memory: it is not shown to this session again, and to correct it ask your team lead: kubectl -n %s get memoryblock %s",
			safe(config.Namespace), v1alpha1.MemoryBlockName(config.Memory, k.Project, k.Label))
	}
	if err := s.print("It is withdrawn here.\n"); err != nil {
		return err
	}
	name := k.Source.Session
	if name == "" {
		name = v1alpha1.SessionName(k.Session, config.Owner)
	}
	key := kube.Key{Namespace: config.Namespace, Name: name}
	ctx, cancel := asking(ctx)
	defer cancel()
	q := v1alpha1.Request{ID: requestID(k.ID), Kind: v1alpha1.RequestWrongWhisper, Whisper: k.ID}
	if err := upload.Request(ctx, c, key, q); apierrors.IsNotFound(err) {
		return errors.New("the session is no longer in the cluster, and the whisper with it")
	} else if errors.Is(err, upload.ErrTooManyRequests) {
		return err
	} else if err != nil {
		return fmt.Errorf("the cluster was not told: %w: run it again", explain(err))
	}
	answer, err := s.answer(ctx, c, key, q.ID)
	switch {
	case err != nil:
		return s.print("The cluster will withdraw it everywhere; it has not answered yet.\n")
	case answer.Result == v1alpha1.AnswerRefused:
		return fmt.Errorf("the cluster refuses: %s", safe(answer.Message))
	case answer.Message != "":
		return s.print("The cluster has withdrawn it: %s.\n", safe(answer.Message))
	}
	return s.print("The cluster has withdrawn it everywhere. Your team lead sees it as an event of Session %s.\n", safe(name))
}

// requestID is the id of the request about a whisper: a second one for it is
// the same.
func requestID(id string) string {
	id = "w-" + strings.ToLower(id)
	return id[:min(len(id), 36)]
}

// answer waits for the answer to a request until ctx is done.
func (s *System) answer(ctx context.Context, c *kube.Client, key kube.Key, id string) (v1alpha1.Answer, error) {
	ticker := s.Clock.NewTicker(answerEvery)
	defer ticker.Stop()
	for {
		live := &v1alpha1.Session{}
		if err := c.Get(ctx, key, live); err != nil {
			return v1alpha1.Answer{}, err
		}
		if answer, done := upload.AnswerTo(live, id); done {
			return answer, nil
		}
		select {
		case <-ctx.Done():
			return v1alpha1.Answer{}, ctx.Err()
		case <-ticker.C():
		}
	}
}
