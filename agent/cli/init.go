package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// initFlags are the flags of init.
type initFlags struct {
	join                                   string
	kubeconfig, context, namespace, memory string
	yes, noProbe, discard                  bool
	installHooks, printHooks, managed      bool
}

func (s *System) initCommand() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Connect this workstation to your team's memory",
		Long: `Connect this workstation to your team's memory: find out who you are in the
cluster, pin the cluster and the object store, register this workstation, and
record that you agree to be heard. What was written before is not sent.

Your platform team tells you the namespace and the memory, or gives you a file
for --join. The kubeconfig is the one you use with kubectl; undersong uses your
own rights and never asks for a login by itself.

Run it again at any time: it changes what changed, and nothing else. After
undersong uninstall it goes on with what waited; what was said in between is not
sent. What waits for another team, or as another user, can only go there: it
refuses then, unless --discard gives that up.

At the end it asks, on a terminal, whether to write the hooks into Claude Code's
settings, of which a copy is kept; else it prints them. An administrator who
gives every user the hooks prints a managed-settings file with --managed: that
connects nothing, and each user still runs init: before it the hooks do nothing.`,
		Example: `  undersong init --join join.yaml --install-hooks
  undersong init --namespace alpha --memory main
  undersong init --managed > managed-settings.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.managed {
				return s.managedSettings()
			}
			return s.init(c.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.join, "join", "", "file from your platform team that names cluster, namespace, memory and store")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, or .kube/config in your home)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default its current one)")
	flags.StringVar(&f.namespace, "namespace", "", "your team's namespace (default that of the context)")
	flags.StringVar(&f.memory, "memory", "", "name of the TeamMemory (default the only one of the namespace)")
	flags.BoolVar(&f.yes, "yes", false, "agree to be heard without being asked")
	flags.BoolVar(&f.discard, "discard", false, "give up what another team or user's registration has not archived yet")
	flags.BoolVar(&f.noProbe, "no-probe", false, "do not wait for a first grant and try it")
	flags.BoolVar(&f.installHooks, "install-hooks", false, "write the hooks into Claude Code's settings, without being asked")
	flags.BoolVar(&f.printHooks, "print-hooks", false, "print the hooks, and do not ask whether to write them")
	flags.BoolVar(&f.managed, "managed", false, "only print a managed-settings file with the hooks, for an administrator")
	cmd.MarkFlagsMutuallyExclusive("install-hooks", "print-hooks", "managed")
	for _, name := range []string{"join", "kubeconfig", "context", "namespace", "memory", "yes", "no-probe", "discard"} {
		cmd.MarkFlagsMutuallyExclusive("managed", name)
	}
	cmd.MarkFlagsMutuallyExclusive("join", "namespace")
	cmd.MarkFlagsMutuallyExclusive("join", "memory")
	cmd.MarkFlagsMutuallyExclusive("join", "context")
	return cmd
}

// plan is what init is going to pin.
type plan struct {
	config note.Config
	rest   *rest.Config
	client *kube.Client
	memory *v1alpha1.TeamMemory

	// before is the configuration that this one follows, the zero value without
	// one.
	before note.Config

	// noProbe leaves out the first PUT, discard gives up an earlier backlog.
	noProbe, discard bool
}

func (s *System) init(ctx context.Context, f initFlags) error {
	if err := s.byPerson("init"); err != nil {
		return err
	}
	home, err := s.home()
	if err != nil {
		return err
	}
	command, err := s.hookCommand(home)
	if err != nil {
		return err // before anything is changed: without it nothing would work
	}
	p, err := s.plan(ctx, f)
	if err != nil {
		return err
	}
	if p.before, err = before(home); err != nil {
		return err
	}
	if err := s.ask(p, f.yes); err != nil {
		return err
	}
	if err := s.register(ctx, home, p); err != nil {
		return err
	}
	if err := s.print("This computer is registered as workstation %s. Its configuration is in %s.\n", p.config.Workstation, home); err != nil {
		return err
	}
	return s.hooks(home, command, f)
}

// plan finds out everything that init needs, and changes nothing.
func (s *System) plan(ctx context.Context, f initFlags) (*plan, error) {
	target, err := s.target(f)
	if err != nil {
		return nil, err
	}
	p := &plan{config: target, noProbe: f.noProbe, discard: f.discard}
	if p.rest, err = daemon.LoadREST(target.Kubeconfig, target.Context); err != nil {
		return nil, explain(err)
	}
	p.config.Server = p.rest.Host
	if target.Server != "" && target.Server != p.rest.Host {
		return nil, errors.New("the kubeconfig's context names another API server than the join file")
	}
	if p.client, err = kube.New(p.rest); err != nil {
		return nil, err
	}
	if p.config.Owner, err = daemon.WhoAmI(ctx, p.client); err != nil {
		return nil, explain(err)
	}
	lacks, err := rights(ctx, p.client, p.config.Namespace)
	if err != nil {
		return nil, explain(err)
	}
	if len(lacks) > 0 {
		return nil, errors.New(askForRights(p.config.Owner, p.config.Namespace, lacks))
	}
	if p.memory, err = s.findMemory(ctx, p); err != nil {
		return nil, err
	}
	p.config.Memory = p.memory.Name
	host, err := storeHost(p.memory)
	if err != nil {
		return nil, err
	}
	if target.StoreHost != "" && target.StoreHost != host {
		return nil, fmt.Errorf("the join file names the object store %s, the TeamMemory %s: ask your platform team which is right", safe(target.StoreHost), safe(host))
	}
	p.config.StoreHost = host
	if p.config.Daemon, err = s.Executable(); err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	return p, nil
}

// findMemory reads the TeamMemory that is named, or the only one.
func (s *System) findMemory(ctx context.Context, p *plan) (*v1alpha1.TeamMemory, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ns, name := p.config.Namespace, p.config.Memory
	if name != "" {
		memory := &v1alpha1.TeamMemory{}
		err := p.client.Get(ctx, kube.Key{Namespace: ns, Name: name}, memory)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no TeamMemory %s in namespace %s: check both names, or ask the team lead to create it", safe(name), safe(ns))
		}
		return memory, explain(err)
	}
	list := &v1alpha1.TeamMemoryList{}
	if err := p.client.List(ctx, list, ns, nil); err != nil {
		return nil, explain(err)
	}
	switch len(list.Items) {
	case 0:
		return nil, fmt.Errorf("there is no TeamMemory in namespace %s: check the name, or ask the team lead to create one", safe(ns))
	case 1:
		return &list.Items[0], nil
	}
	var names []string
	for _, memory := range list.Items {
		names = append(names, memory.Name)
	}
	return nil, fmt.Errorf("namespace %s has several memories: choose one with --memory: %s", safe(ns), strings.Join(names, ", "))
}

// storeHost returns scheme, host and port of the store as workstations reach
// it, as presigned URLs have them: without a port that the scheme implies.
func storeHost(memory *v1alpha1.TeamMemory) (string, error) {
	endpoint := memory.Spec.Store.PublicEndpoint
	if endpoint == "" {
		endpoint = memory.Spec.Store.Endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return "", errors.New("the TeamMemory's store has no usable endpoint: ask the team lead")
	}
	host := u.Host
	if port := u.Port(); u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host, nil
}

// explain gives an error of the API the text that a user can act on.
func explain(err error) error {
	switch {
	case err == nil, errors.Is(err, daemon.ErrKubeconfig):
		return err
	}
	return errors.New(upload.Explain(err))
}

// ask tells what will be recorded, and takes the user's consent.
func (s *System) ask(p *plan, yes bool) error {
	capture := p.memory.Spec.Capture.Projects
	lines := []string{
		"", "You are " + safe(p.config.Owner) + " in the cluster " + safe(p.config.Server) + ".", "",
		"From now on, sessions of Claude Code in these projects are recorded for",
		"team " + safe(p.config.Namespace) + ", memory " + safe(p.config.Memory) + ":", "",
	}
	for _, glob := range capture.Include {
		lines = append(lines, "    "+safe(glob))
	}
	if len(capture.Exclude) > 0 {
		lines = append(lines, "", "and not in these:", "")
		for _, glob := range capture.Exclude {
			lines = append(lines, "    "+safe(glob))
		}
	}
	if len(p.before.Exclude) > 0 {
		lines = append(lines, "", "nor in these, which you yourself have excluded:", "")
		for _, glob := range p.before.Exclude {
			lines = append(lines, "    "+safe(glob))
		}
	}
	lines = append(lines, "", "Of a session leave this computer, without known secrets and without binary content:", "")
	for _, what := range heard(&p.memory.Spec.Capture) {
		lines = append(lines, "    "+what)
	}
	lines = append(lines, "",
		"They go to the object store "+safe(p.config.StoreHost)+", and your team's memory",
		"learns from them. Whoever leads the team can change what is heard.")
	if sameTeam(p.before, p.config, false) {
		lines = append(lines, "You agreed on "+clockTime(p.before.ConsentedAt)+"; that goes on, and what waits here is sent.", "")
	} else {
		lines = append(lines, "What was written before now is not sent.", "")
	}
	if err := s.print("%s\n", strings.Join(lines, "\n")); err != nil {
		return err
	}
	if yes {
		return nil
	}
	if !s.Terminal() {
		return errors.New("there is nobody to ask for consent here: run it in a terminal, or with --yes")
	}
	yes, err := s.agree("Do you agree? [y/N] ")
	if err != nil {
		return err
	}
	if !yes {
		return errors.New("nothing was recorded and nothing changed")
	}
	return nil
}

// heard says what a team's memory hears of a session, a line for each.
func heard(c *v1alpha1.Capture) []string {
	list := []string{"what you and the assistant say"}
	if c.Thinking == v1alpha1.AllowanceAllow {
		list = append(list, "what the assistant thinks")
	}
	switch c.ToolResults {
	case v1alpha1.ToolResultsNone:
		list = append(list, "a line for each tool call, and nothing of its result")
	case v1alpha1.ToolResultsAll:
		list = append(list, "a line for each tool call, and beginning and end of its result")
	case v1alpha1.ToolResultsLocal, "":
		list = append(list, "a line for each tool call, and beginning and end of its result if the tool is a local one")
	}
	if c.Titles != v1alpha1.TitlesHide {
		list = append(list, "title, branch and pull request, which everybody in the team sees")
	}
	if c.Headless == v1alpha1.AllowanceAllow {
		list = append(list, "all this of runs without a person, too, as scripts start them")
	}
	if c.OutsideGit == v1alpha1.AllowanceAllow {
		list = append(list, "all this of folders that are no repository, too")
	}
	return list
}

// byPerson refuses what only a person may agree to where the agent runs the command:
// it could speak for the person, and the environment, which init records for the
// daemon, is a repository's to set.
func (s *System) byPerson(command string) error {
	if s.Getenv("CLAUDECODE") == "" {
		return nil
	}
	return fmt.Errorf("run undersong %s in a terminal of your own: in Claude Code the agent could agree for you, and a repository's settings could say where to", command)
}

// agree asks a question of which no answer is no.
func (s *System) agree(question string) (bool, error) {
	if err := s.print("%s", question); err != nil {
		return false, err
	}
	if s.answers == nil {
		s.answers = bufio.NewReader(s.In) // one, or a second question would find nothing
	}
	answer, _ := s.answers.ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// hooks installs or prints the hooks. Somebody who can answer is asked, but for
// a flag that says it; --yes speaks of being heard, not of somebody's settings.
func (s *System) hooks(home, command string, f initFlags) error {
	path, err := s.settingsPath()
	if err != nil {
		return err
	}
	install := f.installHooks
	if !install && !f.printHooks && !f.yes && s.Terminal() {
		if install = hooksThere(path, command); !install {
			if install, err = s.agree("Write the hooks into " + path + "? A copy of it is kept. [y/N] "); err != nil {
				return err
			}
		}
	}
	if install {
		wrote, err := installHooks(home, path, command)
		if err != nil {
			return err
		}
		if !wrote {
			return s.print("The hooks are in %s already.\n", path)
		}
		return s.print("The hooks are in %s. Sessions that run now see them after a restart.\n", path)
	}
	text, err := mergeHooks(nil, command)
	if err != nil {
		return err
	}
	return s.print("\nAdd these hooks to %s,\nor run undersong init again with --install-hooks:\n\n%s", path, text)
}

// hooksThere says whether settings have our hooks as they must be. Settings that
// cannot be read do not; installing the hooks says why.
func hooksThere(path, command string) bool {
	settings, err := durable.ReadFile(path, maxSettings)
	if err != nil {
		return false
	}
	merged, err := mergeHooks(settings, command)
	return err == nil && bytes.Equal(settings, merged)
}

// managedSettings prints the file with which an administrator gives every user
// the hooks. It is the file alone: where it belongs, stderr says.
func (s *System) managedSettings() error {
	command, err := s.hookCommand("")
	if err != nil {
		return err
	}
	text, err := mergeHooks(nil, command)
	if err != nil {
		return err
	}
	if err := s.print("%s", text); err != nil {
		return err
	}
	where := "This is a managed-settings file for Claude Code; on Linux it belongs into /etc/claude-code.\n" +
		"Both binaries must lie in that folder on every computer. Each user still runs undersong init.\n" +
		"These hooks look where a user's own account has its state directory, wherever " + note.HomeVariable + " leads.\n"
	if home, err := s.UserHome(); err == nil && strings.HasPrefix(strings.Trim(command, `'"`), home+string(filepath.Separator)) {
		where += "Note: that folder is in your own home; install the binaries for all users first.\n"
	}
	_, err = fmt.Fprint(s.Err, where)
	return err
}

// register makes this state directory a workstation of the team. One that is
// one already stays it. The configuration comes last: until then no hook does
// anything.
func (s *System) register(ctx context.Context, home string, p *plan) error {
	if err := durable.MkdirAll(home); err != nil {
		return err
	}
	if err := os.Chmod(home, 0o700); err != nil { //nolint:gosec // a folder
		return fmt.Errorf("protect the state directory: %w", err)
	}
	if _, err := s.stop(ctx, home); err != nil {
		return err
	}
	held, err := daemon.Hold(ctx, home)
	if err != nil {
		return err
	}
	defer held()
	if err := settle(home); err != nil {
		return err
	}
	name, known, err := s.known(ctx, home, p)
	if err != nil {
		return err
	}
	team := sameTeam(p.before, p.config, known)
	if !team && !known && !p.discard {
		if err := nothingWaits(home); err != nil {
			return err
		}
	}
	if !known {
		if name, err = s.registerNew(ctx, home, p, team); err != nil {
			return err
		}
	}
	if !team {
		if err := s.startOver(home); err != nil {
			return err
		}
		p.before.ConsentedAt = s.Clock.Now().UTC()
	}
	if err := s.installed(ctx, home); err != nil {
		return err
	}
	if err := s.keepUnusable(home); err != nil {
		return err
	}
	if err := s.saveConfig(home, p, name); err != nil {
		return err
	}
	if known || p.noProbe {
		return nil
	}
	return s.tellProbe(s.probe(ctx, home, p.config, p.client), p.config.StoreHost)
}

// tellProbe says what came of the first PUT. It never fails init: what is
// recorded waits here until the store takes it.
func (s *System) tellProbe(err error, host string) error {
	switch {
	case err == nil:
		return s.print("The object store %s takes what this workstation sends.\n", safe(host))
	case errors.Is(err, errNoGrant):
		return s.print("Note: %s. What is recorded waits here until it does;\nsee undersong status, and kubectl describe workstation.\n", err)
	}
	return s.print("Note: %s.\nWhat is recorded waits here until that is right; undersong doctor looks again.\n", safe(err.Error()))
}

// before returns the configuration that a new one follows: the one that is there,
// or the one that uninstall put away. One that cannot be used says nothing.
func before(home string) (note.Config, error) {
	config, err := note.LoadConfig(home)
	if errors.Is(err, note.ErrNotConfigured) {
		config, err = note.LoadFormer(home)
	}
	if errors.Is(err, note.ErrNotConfigured) || errors.Is(err, note.ErrConfig) {
		return note.Config{}, nil
	}
	return config, err
}

// keepUnusable keeps a configuration that cannot be used beside the next one.
func (s *System) keepUnusable(home string) error {
	_, err := note.LoadConfig(home)
	if !errors.Is(err, note.ErrConfig) {
		return nil
	}
	aside := filepath.Join(home, note.ConfigFile+".bad")
	if rerr := durable.Rename(filepath.Join(home, note.ConfigFile), aside); rerr != nil {
		return errors.Join(err, rerr)
	}
	return s.print("Note: %s. It is kept as %s;\nwhat you excluded or switched off in it does not hold any more.\n", safe(err.Error()), aside)
}

// sameTeam says whether a configuration is for the same person and memory. A
// cluster that knows this workstation is the same one under whatever address.
func sameTeam(a, b note.Config, known bool) bool {
	return (a.Server == b.Server || known) && a.Namespace == b.Namespace && a.Memory == b.Memory && a.Owner == b.Owner && !a.ConsentedAt.IsZero()
}

// nothingWaits refuses to leave behind what is not archived: only the registration
// that it was made under can send it.
func nothingWaits(home string) error {
	waiting := backlogOf(home)
	if waiting == "" {
		return nil
	}
	return fmt.Errorf("%s not archived yet under an earlier registration of this computer, and this is another cluster, team, memory or user: they would never leave. Run undersong init for that one again to let them go, or give them up with --discard", waiting)
}

// backlogOf says how many segments wait to be archived, with the verb; empty means
// none.
func backlogOf(home string) string {
	segments := int64(0)
	for _, state := range spool.States(filepath.Join(home, daemon.SessionsDir)) {
		segments += int64(len(state.Segments))
	}
	switch segments {
	case 0:
		return ""
	case 1:
		return "1 segment is"
	}
	return many(segments, "segment") + " are"
}

// settle ends what a crash left of another registration, for who holds the daemon
// off and looks at what waits, or puts it away.
func settle(home string) error {
	if err := spool.Settle(filepath.Join(home, daemon.SessionsDir)); err != nil {
		return fmt.Errorf("settle an earlier registration: %w", err)
	}
	return nil
}

// known says whether the state directory is a registered workstation of this
// person and memory in this cluster, and of which name.
func (s *System) known(ctx context.Context, home string, p *plan) (string, bool, error) {
	registry, err := upload.OpenRegistry(home)
	if err != nil {
		return "", false, nil // then it is made
	}
	identity, err := daemon.ReadIdentity(home)
	if err != nil {
		return "", false, nil // then it is made
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	live := &v1alpha1.Workstation{}
	err = p.client.Get(ctx, kube.Key{Namespace: p.config.Namespace, Name: registry.Name()}, live)
	if apierrors.IsNotFound(err) {
		return "", false, nil // it was revoked, or is of another cluster
	}
	if err != nil {
		return "", false, explain(err)
	}
	same := string(live.UID) == registry.UID() && live.Spec.PublicKey == identity.Recipient() &&
		live.Spec.Owner == p.config.Owner && live.Spec.MemoryRef.Name == p.config.Memory
	return registry.Name(), same, nil
}

// registerNew makes a key, a name and the Workstation. Of the same team, what an
// earlier one had spooled goes on under the new name; else it is put aside: its
// chain is not this one's.
func (s *System) registerNew(ctx context.Context, home string, p *plan, team bool) (string, error) {
	if !team {
		if err := putAside(home); err != nil {
			return "", err
		}
	}
	identity, err := daemon.NewIdentity(home)
	if err != nil {
		return "", err
	}
	registry, err := upload.NewRegistry(home)
	if err != nil {
		return "", err
	}
	if team {
		err := spool.Renew(spool.Options{
			Dir: filepath.Join(home, daemon.SessionsDir), Owner: p.config.Owner, Workstation: p.before.Workstation,
		}, registry.Name())
		if err != nil {
			return "", err
		}
	}
	desk := &upload.Desk{
		Client: p.client, Registry: registry, Namespace: p.config.Namespace, Owner: p.config.Owner,
		Memory: p.config.Memory, PublicKey: identity.Recipient(), Version: s.Version,
	}
	if err := desk.Register(ctx); err != nil {
		return "", explain(err)
	}
	return registry.Name(), nil
}

// putAside moves the sessions of an earlier workstation out of the way.
func putAside(home string) error {
	registry, err := upload.OpenRegistry(home)
	if err != nil {
		return nil //nolint:nilerr // there was none
	}
	from := filepath.Join(home, daemon.SessionsDir)
	if _, err := os.Stat(from); err != nil {
		return nil //nolint:nilerr // nothing was read
	}
	if err := durable.Rename(from, from+"."+registry.Name()); err != nil {
		return fmt.Errorf("put the sessions of workstation %s aside: %w", registry.Name(), err)
	}
	return nil
}

// startOver notes how large every transcript is now, for another team must not
// hear what was said before, and forgets the earlier team's policy.
func (s *System) startOver(home string) error {
	dir, err := s.claudeDir()
	if err != nil {
		return err
	}
	if _, err := daemon.WriteBaseline(home, filepath.Join(dir, "projects")); err != nil {
		return err
	}
	return status.ForgetView(home)
}

// installed ends what uninstall began: from now on something may be heard again.
func (s *System) installed(ctx context.Context, home string) error {
	known, err := consent.LoadSilences(home)
	if err != nil {
		return err
	}
	if known.Current(consent.ReasonUninstalled, "", s.Clock.Now()) == nil {
		return nil
	}
	return s.quiet(ctx, home, func(known *consent.Silences, _ string, sizes map[string]int64) {
		known.End(consent.ReasonUninstalled, "", s.Clock.Now().UTC(), sizes)
	})
}

// saveConfig writes the configuration, with what the user chose before.
func (s *System) saveConfig(home string, p *plan, workstation string) error {
	c := p.config
	c.Workstation = workstation
	c.ConsentedAt, c.Exclude, c.IdleExitSeconds = p.before.ConsentedAt, p.before.Exclude, p.before.IdleExitSeconds
	c.Recall, c.Off = p.before.Recall, p.before.Off
	env, stripped := s.environment()
	c.Env = env
	if err := note.SaveConfig(home, c); err != nil {
		return err
	}
	p.config = c
	if err := note.ForgetFormer(home); err != nil {
		return fmt.Errorf("forget the configuration of before: %w", err)
	}
	if c.Off {
		err := s.print("Note: undersong is switched off in config.json (\"off\"), as you left it; nothing is recorded.\n")
		if err != nil {
			return err
		}
	}
	for _, l := range s.leftovers() {
		if err := s.print("Note: %s %s.\n", l.What, strings.TrimPrefix(l.Says, "that plugin ")); err != nil {
			return err
		}
	}
	if len(stripped) > 0 {
		return s.print("Note: the password in %s is not recorded; a proxy that needs it will refuse undersong.\n", strings.Join(stripped, ", "))
	}
	return nil
}
