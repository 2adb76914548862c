package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// sessionRow is one session as undersong sessions shows it.
type sessionRow struct {
	Name        string    `json:"name"`
	SessionID   string    `json:"sessionID"`
	Owner       string    `json:"owner"`
	Project     string    `json:"project"`
	Title       string    `json:"title,omitempty"`
	Tag         string    `json:"tag,omitempty"`
	PullRequest string    `json:"pullRequest,omitempty"`
	Branch      string    `json:"branch,omitempty"`
	State       string    `json:"state,omitempty"`
	Uploaded    int64     `json:"uploaded"`
	Processed   int64     `json:"processed"`
	Lost        int64     `json:"lost,omitempty"`
	Ready       string    `json:"ready,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	LastHeard   time.Time `json:"lastHeard,omitzero"`
}

type sessionsFlags struct {
	team, asJSON bool
	project      string
	limit        int
}

func (s *System) sessionsCommand() *cobra.Command {
	var f sessionsFlags
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List your sessions in the team's memory, the newest first",
		Long: `List your sessions as the cluster has them: title, tag and pull request, how many
lines are uploaded and how many the memory has. With --team, those of everybody
in the team; what is shown of others is what kubectl get sessions shows you.

undersong status says what this workstation knows, without the cluster.`,
		Example: `  undersong sessions
  undersong sessions --team --project git.example.com/team/shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.sessions(c.Context(), f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.team, "team", false, "everybody's, not only your own")
	flags.StringVar(&f.project, "project", "", "only of this project, as host/path")
	flags.IntVarP(&f.limit, "limit", "n", 20, "at most so many; 0 means all")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func (s *System) sessions(ctx context.Context, f sessionsFlags) error {
	config, c, err := s.configured()
	if err != nil {
		return err
	}
	ctx, cancel := asking(ctx)
	defer cancel()
	which := kube.Fields{}
	if !f.team {
		which["spec.owner"] = config.Owner
	}
	if f.project != "" {
		which["spec.project.remote"] = f.project
	}
	list := &v1alpha1.SessionList{}
	if err := c.List(ctx, list, config.Namespace, which); err != nil {
		return explain(err)
	}
	rows := make([]sessionRow, 0, len(list.Items))
	for i := range list.Items {
		rows = append(rows, newSessionRow(&list.Items[i]))
	}
	slices.SortFunc(rows, func(a, b sessionRow) int {
		return cmp.Or(b.LastHeard.Compare(a.LastHeard), cmp.Compare(a.Name, b.Name))
	})
	total := len(rows)
	if f.limit > 0 && total > f.limit {
		rows = rows[:f.limit]
	}
	if f.asJSON {
		return s.printJSON(rows)
	}
	if total == 0 && f.project != "" {
		return s.print("There is no session of the project %s; give it as host/path, as undersong status names it.\n", safe(f.project))
	}
	return s.print("%s", renderSessionRows(rows, total, f.team, s.Clock.Now()))
}

func newSessionRow(o *v1alpha1.Session) sessionRow {
	r := sessionRow{
		Name: o.Name, SessionID: o.Spec.SessionID, Owner: o.Spec.Owner, Project: o.Spec.Project.Remote,
		Title: o.Status.Title, Tag: o.Status.Tag, PullRequest: o.Status.PullRequest, State: string(o.Status.State),
		Uploaded: o.Spec.Lines, Processed: o.Status.Lines, Lost: o.Status.LostLines, LastHeard: o.CreationTimestamp.Time,
	}
	if o.Status.LastActivityTime != nil {
		r.LastHeard = o.Status.LastActivityTime.Time
	}
	for _, w := range o.Spec.Writers {
		r.Branch = cmp.Or(w.Branch, r.Branch)
	}
	if ready := apimeta.FindStatusCondition(o.Status.Conditions, v1alpha1.ReadyCondition); ready != nil {
		r.Ready, r.Reason = string(ready.Status), ready.Reason
	}
	return r
}

func renderSessionRows(rows []sessionRow, total int, team bool, now time.Time) string {
	if len(rows) == 0 {
		return "There are no sessions in the memory yet.\n"
	}
	var b strings.Builder
	head := []string{"SESSION", "PROJECT", "TITLE", "BRANCH", "PR", "STATE", "UPLOADED", "PROCESSED", "READY", "LAST"}
	if team {
		head = slices.Insert(head, 1, "OWNER")
	}
	table := [][]string{head}
	for _, r := range rows {
		ready := r.Ready
		if ready != "True" && r.Reason != "" {
			ready += " " + r.Reason
		}
		title := safe(r.Title)
		if r.Tag != "" {
			title = strings.TrimSpace(title + " [" + safe(r.Tag) + "]")
		}
		row := []string{
			safe(r.SessionID), safe(r.Project), title, safe(r.Branch), safe(r.PullRequest), r.State,
			strconv.FormatInt(r.Uploaded, 10), strconv.FormatInt(r.Processed, 10), ready, ago(now, r.LastHeard) + " ago",
		}
		if team {
			row = slices.Insert(row, 1, safe(r.Owner))
		}
		table = append(table, row)
	}
	columns(&b, table)
	if total > len(rows) {
		b.WriteString("\n" + many(int64(total-len(rows)), "older session") + " not shown; -n 0 shows all.\n")
	}
	return b.String()
}
