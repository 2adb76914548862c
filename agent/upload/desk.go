package upload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// ErrRevoked: a person deleted the Workstation.
var ErrRevoked = errors.New("this workstation was revoked in the cluster: nothing is uploaded; run undersong init to register again")

// maxLastError is the bound of WorkstationReport.lastError, in characters.
const maxLastError = 256

// unanswered is what is said while the controller does not answer a request
// for slots.
const unanswered = "the cluster has not granted upload slots yet: is the undersong controller running?"

// ReportTiming says how often a daemon reports.
type ReportTiming struct {
	Every time.Duration // with nothing to say
	Gap   time.Duration // that a change must last, so that a turn is none
	Grant time.Duration // after which a request without answer is trouble
}

// DefaultReportTiming is what a daemon uses.
var DefaultReportTiming = ReportTiming{Every: 10 * time.Minute, Gap: 10 * time.Second, Grant: 30 * time.Second}

// Desk keeps this workstation's own Workstation: it asks for slots and
// reports. Its exported fields are set once.
type Desk struct {
	Client    *kube.Client
	Registry  *Registry
	Grants    *Grants
	Namespace string
	Owner     string
	Memory    string
	PublicKey string
	Version   string
	Clock     clock.Clock
	Timing    ReportTiming
	Backoff   Backoff
	Trouble   Trouble
	Log       *slog.Logger

	// Backlog returns the number of segments that are not verified, and when
	// the oldest was made. LastError returns the newest trouble, or "".
	Backlog   func() (int64, time.Time)
	LastError func() string

	wake    chan struct{}
	retries retries // of Run

	mu        sync.Mutex
	live      *v1alpha1.Workstation
	revoked   bool
	ask       bool      // slots are wanted
	requested int64     // newest request written
	askedAt   time.Time // when
	reported  v1alpha1.WorkstationReport
	changedAt time.Time // since when the report is another one; zero: it is not
}

// Init makes the desk ready. It must be called once, before anything else.
func (d *Desk) Init() {
	d.wake = make(chan struct{}, 1)
	d.retries = retries{clock: d.Clock, backoff: d.Backoff, after: map[string]retry{}}
}

// Register makes the Workstation. It is for init: a Workstation that was
// deleted is not made again by the daemon.
func (d *Desk) Register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	w := &v1alpha1.Workstation{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Registry.Name()},
		Spec:       d.spec(),
	}
	w.Spec.GrantRequest = 1 // the first slots are needed in any case
	err := d.Client.Create(ctx, w, createManager)
	if apierrors.IsAlreadyExists(err) { // a try that got no answer
		err = d.Client.Get(ctx, kube.Key{Namespace: w.Namespace, Name: w.Name}, w)
		if err == nil && (w.Spec.Owner != d.Owner || w.Spec.PublicKey != d.PublicKey) {
			err = errors.New("another workstation has this name")
		}
	}
	if err != nil {
		return fmt.Errorf("register workstation: %w", err)
	}
	return d.Registry.Registered(string(w.UID))
}

// Seen takes the Workstation as the cluster has it; nil when there is none.
func (d *Desk) Seen(w *v1alpha1.Workstation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.revoked = w == nil || string(w.UID) != d.Registry.UID()
	if d.revoked {
		d.live = nil
		d.Trouble.Set(PartWorkstation, ErrRevoked.Error())
		return
	}
	d.Trouble.Set(PartWorkstation, "")
	d.live = w
	d.requested = max(d.requested, w.Spec.GrantRequest)
	if d.requested == 0 {
		d.ask = true // the first grant, so that the first segment need not wait
	}
	if w.Spec.Report != nil && d.reported.LastSeen.IsZero() {
		d.reported = *w.Spec.Report
	}
	d.wakeUp()
}

// Revoked says whether a person deleted the Workstation.
func (d *Desk) Revoked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.revoked
}

// Ask asks for more slots, unless a request is under way. It never blocks.
func (d *Desk) Ask() {
	d.mu.Lock()
	d.ask = true
	d.mu.Unlock()
	d.wakeUp()
}

// Wake lets Run look whether there is something to report. It never blocks.
func (d *Desk) Wake() { d.wakeUp() }

func (d *Desk) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run writes what is asked for and reported, until ctx is done.
func (d *Desk) Run(ctx context.Context) {
	for {
		wait := d.step(ctx)
		timer := d.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-d.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// step writes once, if there is something to write, and returns when to look
// again.
func (d *Desk) step(ctx context.Context) time.Duration {
	d.retries.begin()
	d.judge()
	spec, due, wait := d.next()
	if !due || !d.retries.due(PartAPI) {
		if again, ok := d.retries.wait(); ok {
			wait = min(wait, again)
		}
		return wait
	}
	err := d.apply(ctx, spec)
	if err == nil {
		d.wrote(spec)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		err = d.look(ctx) // deleted, or made again by somebody
	}
	if ctx.Err() != nil {
		return wait
	}
	if err != nil {
		d.retries.failed(PartAPI)
		d.Log.Error("API call does not work", "Workstation", d.Registry.Name(), "error", Explain(err))
	} else {
		d.retries.worked(PartAPI)
	}
	Report(d.Trouble, PartAPI, err)
	if again, ok := d.retries.wait(); ok {
		wait = min(wait, again)
	}
	return wait
}

// look reads the Workstation after a write that met another one, or none.
func (d *Desk) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	live := &v1alpha1.Workstation{}
	err := d.Client.Get(ctx, kube.Key{Namespace: d.Namespace, Name: d.Registry.Name()}, live)
	switch {
	case apierrors.IsNotFound(err):
		d.Seen(nil)
		return nil
	case err != nil:
		return fmt.Errorf("read workstation: %w", err)
	}
	d.Seen(live)
	return nil
}

// next returns the spec that should be written, whether that is due, and when
// to look again if it is not.
func (d *Desk) next() (v1alpha1.WorkstationSpec, bool, time.Duration) {
	backlog, oldest := d.Backlog()
	now := d.Clock.Now()
	report := v1alpha1.WorkstationReport{
		LastSeen: metav1.NewTime(now.Truncate(time.Second)), BacklogSegments: backlog, LastError: cut(d.LastError(), maxLastError),
	}
	if backlog > 0 {
		report.OldestBacklog = &metav1.Time{Time: oldest.Truncate(time.Second)}
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live == nil {
		return v1alpha1.WorkstationSpec{}, false, d.Timing.Every
	}
	spec := d.spec()
	spec.GrantRequest = d.requested
	asking, wait := d.askingLocked(now)
	if asking {
		spec.GrantRequest++
	}
	spec.Report = &report
	age := now.Sub(d.reported.LastSeen.Time)
	switch {
	case asking, d.reported.LastSeen.IsZero(), age.Abs() >= d.Timing.Every:
		return spec, true, d.Timing.Every
	case report.LastError == d.reported.LastError && (backlog > 0) == (d.reported.BacklogSegments > 0):
		d.changedAt = time.Time{}
		return spec, false, min(wait, d.Timing.Every-age)
	case d.changedAt.IsZero():
		d.changedAt = now
	}
	left := d.changedAt.Add(d.Timing.Gap).Sub(now)
	return spec, left <= 0, min(wait, max(left, 0))
}

// askingLocked says whether a request for slots should be written now, and
// else when to look again.
func (d *Desk) askingLocked(now time.Time) (bool, time.Duration) {
	switch {
	case d.outstandingLocked():
		return false, d.Timing.Grant
	case !d.ask || !d.Grants.Low():
		return false, d.Timing.Every
	}
	if wait := d.askedAt.Add(d.Grants.pace(d.Backoff)).Sub(now); wait > 0 {
		return false, wait
	}
	return true, 0
}

// outstandingLocked says whether a request waits for its answer.
func (d *Desk) outstandingLocked() bool {
	answered := int64(0)
	if d.live != nil && d.live.Status.Grant != nil {
		answered = d.live.Status.Grant.Request
	}
	return d.requested > answered
}

// judge tells of a request that nobody answers.
func (d *Desk) judge() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.live == nil, !d.outstandingLocked():
		return
	case d.Clock.Now().Sub(d.askedAt) < d.Timing.Grant:
		return
	}
	message := unanswered
	if c := apimeta.FindStatusCondition(d.live.Status.Conditions, v1alpha1.GrantedCondition); c != nil && c.Status == metav1.ConditionFalse {
		message = "the cluster does not grant upload slots: " + c.Message
	}
	d.Trouble.Set(PartGrant, message)
}

// wrote notes what was written.
func (d *Desk) wrote(spec v1alpha1.WorkstationSpec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if spec.GrantRequest > d.requested {
		d.requested, d.askedAt, d.ask = spec.GrantRequest, d.Clock.Now(), false
	}
	d.reported, d.changedAt = *spec.Report, time.Time{}
}

// spec is what does not change while the daemon runs.
func (d *Desk) spec() v1alpha1.WorkstationSpec {
	return v1alpha1.WorkstationSpec{
		Owner:     d.Owner,
		MemoryRef: v1alpha1.LocalRef{Name: d.Memory},
		PublicKey: d.PublicKey,
		Version:   cut(d.Version, 64),
		OS:        runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// apply writes the spec onto the object that was registered, and no other.
func (d *Desk) apply(ctx context.Context, spec v1alpha1.WorkstationSpec) error {
	fields, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return fmt.Errorf("encode workstation: %w", err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "Workstation",
		"metadata": map[string]any{
			"namespace": d.Namespace, "name": d.Registry.Name(), "uid": d.Registry.UID(),
		},
		"spec": fields,
	}}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return d.Client.Apply(ctx, object, applyManager+d.Registry.Name())
}
