//go:build envtest

package v1alpha1_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// bounds is the API's every bound, a row for each field that has one.
// TestBoundsAreTheCRDs compares it with the CRDs, so a changed bound is changed
// here too, by hand, by somebody who means it. TestBounds tries each on the API
// server: at the limit and one past it.
//
//	required              the parent is refused without the field
//	minLength, maxLength  of a string, in characters
//	minimum, maximum      of a number
//	minItems, maxItems    of a list
//	unique=k              no two items have the same k; without k, are the same
//	enum, pattern         examples of the patterns are in examples
//	format                of a time, or a number of 32 bits
var bounds = map[string]string{
	"Session": `
spec                                             required
spec.agent                                       required enum=ClaudeCode
spec.forkedFrom                                  pattern=^[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?$
spec.lines                                       required minimum=0
spec.memoryRef                                   required
spec.memoryRef.name                              required minLength=1 maxLength=63
spec.owner                                       required minLength=1 maxLength=253
spec.project                                     required
spec.project.name                                required minLength=1 maxLength=100
spec.project.remote                              required minLength=1 maxLength=253 pattern=^[a-z0-9._~/-]+$
spec.requests                                    maxItems=16 unique=id
spec.requests[].fromLine                         minimum=1
spec.requests[].id                               required pattern=^[a-z0-9-]{1,36}$
spec.requests[].kind                             required enum=Forget|WrongWhisper
spec.requests[].toLine                           minimum=1
spec.requests[].whisper                          maxLength=64
spec.requests[].workstation                      maxLength=63
spec.sessionID                                   required pattern=^[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?$
spec.writers                                     maxItems=8 unique=workstation
spec.writers[].branch                            maxLength=200
spec.writers[].bytes                             required minimum=0
spec.writers[].chain                             required pattern=^[0-9a-f]{64}$
spec.writers[].gone                              maxItems=64 unique=
spec.writers[].gone[]                            minimum=1
spec.writers[].lines                             required minimum=0
spec.writers[].previousChain                     required pattern=^[0-9a-f]{64}$
spec.writers[].segments                          required minimum=0
spec.writers[].slots                             maxItems=64
spec.writers[].slots[].seq                       required minimum=1
spec.writers[].slots[].slot                      required minimum=1
spec.writers[].state                             required enum=Active|Ended
spec.writers[].workstation                       required minLength=1 maxLength=63
status.answered                                  maxItems=16 unique=id
status.answered[].id                             required minLength=1 maxLength=36
status.answered[].message                        maxLength=1024
status.answered[].result                         required enum=Done|Partial|Refused
status.lag                                       minimum=0
status.lastActivityTime                          format=date-time
status.lines                                     minimum=0
status.lostLines                                 minimum=0
status.observedGeneration                        minimum=0
status.pullRequest                               maxLength=200
status.state                                     enum=Active|Idle|Ended
status.syncState.abandoned                       maxItems=8 unique=
status.syncState.abandoned[]                     maxLength=128
status.syncState.agentID                         maxLength=128
status.syncState.blocks                          maxItems=32 unique=label
status.syncState.blocks[].bytes                  required minimum=0
status.syncState.blocks[].digest                 required pattern=^[0-9a-f]{64}$
status.syncState.blocks[].label                  required pattern=^[a-z0-9][a-z0-9_-]{0,62}$
status.syncState.conversationID                  maxLength=128
status.syncState.corrections                     maxItems=16 unique=
status.syncState.corrections[]                   pattern=^[0-9a-f-]{1,64}$
status.syncState.delivery.answer                 enum=Publish|Drop
status.syncState.delivery.attempts               required minimum=1 format=int32
status.syncState.delivery.at                     format=date-time
status.syncState.delivery.corrections            maxItems=16 unique=
status.syncState.delivery.corrections[]          pattern=^[0-9a-f-]{1,64}$
status.syncState.delivery.from                   required
status.syncState.delivery.from.lines             required minimum=0
status.syncState.delivery.from.segments          required minimum=0
status.syncState.delivery.id                     required minLength=1 maxLength=64
status.syncState.delivery.maxEntryBytes          minimum=1024 maximum=262144 format=int32
status.syncState.delivery.phase                  required enum=Sending|Nudging|Delivered|Published
status.syncState.delivery.renderVersion          required minimum=1 format=int32
status.syncState.delivery.thinking               enum=Deny|Allow
status.syncState.delivery.to                     required
status.syncState.delivery.to.lines               required minimum=0
status.syncState.delivery.to.segments            required minimum=0
status.syncState.delivery.toolResults            enum=Local|All|None
status.syncState.delivery.workstation            required minLength=1 maxLength=63
status.syncState.lastProcessedIndex              required minimum=-1
status.syncState.lastSeenMessageID               maxLength=128
status.syncState.memoryRevision                  maxLength=128
status.syncState.parked                          maxItems=8
status.syncState.parked[].at                     required format=date-time
status.syncState.parked[].delivery               required
status.syncState.parked[].delivery.answer        enum=Publish|Drop
status.syncState.parked[].delivery.attempts      required minimum=1 format=int32
status.syncState.parked[].delivery.at            format=date-time
status.syncState.parked[].delivery.corrections   maxItems=16 unique=
status.syncState.parked[].delivery.corrections[] pattern=^[0-9a-f-]{1,64}$
status.syncState.parked[].delivery.from          required
status.syncState.parked[].delivery.from.lines    required minimum=0
status.syncState.parked[].delivery.from.segments required minimum=0
status.syncState.parked[].delivery.id            required minLength=1 maxLength=64
status.syncState.parked[].delivery.maxEntryBytes minimum=1024 maximum=262144 format=int32
status.syncState.parked[].delivery.phase         required enum=Sending|Nudging|Delivered|Published
status.syncState.parked[].delivery.renderVersion required minimum=1 format=int32
status.syncState.parked[].delivery.thinking      enum=Deny|Allow
status.syncState.parked[].delivery.to            required
status.syncState.parked[].delivery.to.lines      required minimum=0
status.syncState.parked[].delivery.to.segments   required minimum=0
status.syncState.parked[].delivery.toolResults   enum=Local|All|None
status.syncState.parked[].delivery.workstation   required minLength=1 maxLength=63
status.syncState.parked[].lines                  required minimum=0
status.syncState.parked[].memoryGeneration       required minimum=0
status.syncState.record                          minimum=0
status.syncState.seen                            maxLength=64
status.syncState.writers                         maxItems=8 unique=workstation
status.syncState.writers[].chapter               format=int32 minimum=0
status.syncState.writers[].delivered             required
status.syncState.writers[].delivered.lines       required minimum=0
status.syncState.writers[].delivered.segments    required minimum=0
status.syncState.writers[].held                  maxItems=16 unique=segment
status.syncState.writers[].held[].fromLine       required minimum=1
status.syncState.writers[].held[].segment        required minimum=1
status.syncState.writers[].held[].toLine         required minimum=1
status.syncState.writers[].lastProcessedIndex    required minimum=-1
status.syncState.writers[].lines                 required minimum=0
status.syncState.writers[].origin                enum=Archive
status.syncState.writers[].verified              required
status.syncState.writers[].verified.chain        required pattern=^[0-9a-f]{64}$
status.syncState.writers[].verified.segments     required minimum=0
status.syncState.writers[].wanted                maxItems=64 unique=
status.syncState.writers[].wanted[]              minimum=1
status.syncState.writers[].workstation           required minLength=1 maxLength=63
status.tag                                       maxLength=60
status.title                                     maxLength=60
status.usage.day                                 pattern=^[0-9]{4}-[0-9]{2}-[0-9]{2}$
status.usage.dayImportTokens                     minimum=0
status.usage.dayTokens                           minimum=0
status.usage.source                              enum=Reported|Estimated
status.usage.tokens                              minimum=0
status.usage.turns                               minimum=0
status.whispers                                  maxItems=4 unique=id
status.whispers[].at                             required format=date-time
status.whispers[].bytes                          required minimum=0 maximum=2000 format=int32
status.whispers[].id                             required minLength=1 maxLength=64
status.whispers[].sealed                         required minLength=1 maxLength=8192
status.whispers[].text                           maxLength=2000
status.withdrawn                                 maxItems=16 unique=
status.withdrawn[]                               maxLength=64
` + conditionBounds,
	"Workstation": `
spec                                             required
spec.grantRequest                                required minimum=0
spec.memoryRef                                   required
spec.memoryRef.name                              required minLength=1 maxLength=63
spec.os                                          maxLength=64
spec.owner                                       required minLength=1 maxLength=253
spec.publicKey                                   required pattern=^age1[02-9ac-hj-np-z]{58}$
spec.report.backlogSegments                      minimum=0
spec.report.lastError                            maxLength=256
spec.report.lastSeen                             required format=date-time
spec.report.oldestBacklog                        format=date-time
spec.version                                     maxLength=64
status.grant.expiresAt                           required format=date-time
status.grant.fromSlot                            required minimum=1
status.grant.request                             required minimum=1
status.grant.sealed                              required minLength=1 maxLength=32768
status.grant.toSlot                              required minimum=1
status.observedGeneration                        minimum=0
` + conditionBounds,
	"TeamMemory": `
spec                                             required
spec.agent                                       required
spec.agent.id                                    minLength=1 maxLength=128
spec.agent.template.embedding                    maxLength=128
spec.agent.template.model                        required minLength=1 maxLength=128
spec.agent.template.name                         required minLength=1 maxLength=60
spec.budget.dailyTokens                          minimum=1 maximum=100000000000
spec.capture                                     required
spec.capture.headless                            enum=Deny|Allow
spec.capture.outsideGit                          enum=Deny|Allow
spec.capture.projects                            required
spec.capture.projects.exclude                    maxItems=64 unique=
spec.capture.projects.exclude[]                  minLength=1 maxLength=253
spec.capture.projects.include                    required minItems=1 maxItems=64 unique=
spec.capture.projects.include[]                  minLength=1 maxLength=253
spec.capture.redact                              maxItems=32 unique=name
spec.capture.redact[].effect                     enum=Hide|Allow
spec.capture.redact[].name                       required pattern=^[a-z0-9-]{1,32}$
spec.capture.redact[].pattern                    required minLength=1 maxLength=512
spec.capture.thinking                            enum=Deny|Allow
spec.capture.titles                              enum=Show|Hide
spec.capture.toolResults                         enum=Local|All|None
spec.delivery.maxBatchBytes                      minimum=1024 maximum=262144 format=int32
spec.delivery.maxConcurrentTurns                 minimum=1 maximum=64 format=int32
spec.delivery.minIntervalSeconds                 minimum=0 maximum=3600 format=int32
spec.delivery.turnTimeoutSeconds                 minimum=5 maximum=3600 format=int32
spec.letta                                       required
spec.letta.backend                               required enum=API|AppServer
spec.letta.baseURL                               required maxLength=253 pattern=^(http|ws)s?://[A-Za-z0-9.\[\]:-]+$
spec.letta.credentialsSecretRef.name             required minLength=1 maxLength=63
spec.letta.insecure                              enum=Deny|Allow
spec.recall.maxCharacters                        minimum=200 maximum=9500 format=int32
spec.recall.mode                                 enum=Brief|Whisper|Full|Off
spec.scope                                       enum=Project|Team
spec.store                                       required
spec.store.bucket                                required pattern=^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$
spec.store.credentialsSecretRef                  required
spec.store.credentialsSecretRef.name             required minLength=1 maxLength=63
spec.store.endpoint                              required maxLength=253 pattern=^https?://[A-Za-z0-9.\[\]:-]+$
spec.store.insecure                              enum=Deny|Allow
spec.store.prefix                                maxLength=128 pattern=^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$
spec.store.publicEndpoint                        maxLength=253 pattern=^https?://[A-Za-z0-9.\[\]:-]+$
spec.store.region                                maxLength=64
spec.deletionPolicy                              enum=Retain|Erase
spec.onSecret                                    enum=Redact|Quarantine
spec.retention.sessionDays                       minimum=1 maximum=3650 format=int32
spec.retention.transcriptDays                    minimum=1 maximum=3650 format=int32
spec.scrubs                                      maxItems=16 unique=id
spec.scrubs[].digest                             required pattern=^[0-9a-f]{72}$
spec.scrubs[].id                                 required pattern=^[a-z0-9-]{1,32}$
spec.scrubs[].length                             required minimum=8 maximum=8192 format=int32
spec.scrubs[].mode                               required enum=Look|Remove
spec.scrubs[].sealedKey                          required minLength=1 maxLength=1024
spec.suspend                                     enum=None|Delivery|Recall|All
spec.whispers                                    enum=Owner|Team
status.agents                                    maxItems=256 unique=project
status.agents[].agentID                          required minLength=1 maxLength=128
status.agents[].project                          required maxLength=253
status.lagging                                   minimum=0
status.observedGeneration                        minimum=0
status.scrubKey                                  pattern=^age1[02-9ac-hj-np-z]{58}$
status.scrubs                                    maxItems=16 unique=id
status.scrubs[].finishedAt                       format=date-time
status.scrubs[].found                            maxItems=8
status.scrubs[].found[].changed                  required minimum=0
status.scrubs[].found[].found                    required minimum=0
status.scrubs[].found[].looked                   required minimum=0
status.scrubs[].found[].place                    required enum=Archive|Conversations|Blocks|BlockTexts|MemoryBlocks|Sessions|Records|Uploads
status.scrubs[].id                               required pattern=^[a-z0-9-]{1,32}$
status.scrubs[].message                          maxLength=512
status.scrubs[].mode                             required enum=Look|Remove
status.scrubs[].notReached                       maxItems=16 unique=
status.scrubs[].notReached[]                     maxLength=512
status.scrubs[].phase                            required enum=Running|Done|Refused
status.scrubs[].sessions                         maxItems=16 unique=
status.scrubs[].sessions[]                       maxLength=63
status.segmentFormat                             minimum=0 format=int32
status.sessions                                  minimum=0
status.usage.day                                 required pattern=^[0-9]{4}-[0-9]{2}-[0-9]{2}$
status.usage.importTokens                        minimum=0
status.usage.percent                             required minimum=0 format=int32
status.usage.tokens                              required minimum=0
` + conditionBounds,
	"MemoryBlock": `
spec                                             required
spec.description                                 minLength=1 maxLength=200
spec.label                                       required pattern=^[a-z0-9][a-z0-9_-]{0,62}$
spec.memoryRef                                   required
spec.memoryRef.name                              required minLength=1 maxLength=63
spec.mode                                        required enum=Learned|Pinned
spec.project                                     required maxLength=253 pattern=^[a-z0-9._~/-]*$
spec.restore                                     minLength=1 maxLength=128
spec.value                                       minLength=1 maxLength=16384
status.bytes                                     minimum=0
status.digest                                    pattern=^[0-9a-f]{64}$
status.extent                                    enum=Whole|Truncated
status.history                                   maxItems=10
status.history[].at                              required format=date-time
status.history[].bytes                           required minimum=0
status.history[].change                          maxLength=2048
status.history[].digest                          required pattern=^[0-9a-f]{64}$
status.history[].revision                        required minLength=1 maxLength=128
status.history[].session                         maxLength=63
status.lastSession                               maxLength=63
status.observedGeneration                        minimum=0
status.putBackAt                                 format=date-time
status.restored                                  maxLength=128
status.revision                                  maxLength=128
status.updatedAt                                 format=date-time
status.value                                     maxLength=16384
` + conditionBounds,
}

// conditionBounds are those of Kubernetes' own type, and ours on the list.
const conditionBounds = `
status.conditions                                maxItems=16 unique=type
status.conditions[].lastTransitionTime           required format=date-time
status.conditions[].message                      required maxLength=32768
status.conditions[].observedGeneration           minimum=0
status.conditions[].reason                       required minLength=1 maxLength=1024 pattern=^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$
status.conditions[].status                       required enum=True|False|Unknown
status.conditions[].type                         required maxLength=316 pattern=^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$
`

// example says what a pattern lets through and what not. The refused ones are
// near misses.
type example struct{ accepted, refused []string }

var (
	hash     = example{accepted: []string{chain("0"), chain("f")}, refused: []string{"", strings.Repeat("a", 63), strings.Repeat("a", 65), chain("g"), chain("A")}}
	identity = example{
		accepted: []string{"a", "0", "a-b", strings.Repeat("a", 54), "8d1f0c52-6a1b-4f6e-9d3c-2b7e5a90c4f1"},
		refused:  []string{"", strings.Repeat("a", 55), "-a", "a-", "A", "a.b", "a/b", "a_b", "a b", "a\n"},
	}
	remote = example{
		accepted: []string{"github.com/example/shop", "local/0a1b2c3d", "host/~user/x_y-z.w"},
		refused:  []string{"Host/x", "https://host/x", "host:22/x", "user@host/x", "host/x?y", "host/x y", "host/x\n"},
	}
	label = example{
		accepted: []string{"a", "0", "open_items", "a-b", strings.Repeat("a", 63)},
		refused:  []string{"", strings.Repeat("a", 64), "-a", "_a", "A", "a.b", "a/b", "a\n"},
	}
	day     = example{accepted: []string{"2026-11-30", "0000-00-00"}, refused: []string{"", "2026-11-3", "2026-11-300", "20261130", "2026-11-30\n"}}
	whisper = example{
		accepted: []string{"a", "0-", strings.Repeat("0", 64)},
		refused:  []string{"", strings.Repeat("a", 65), "A", "g", "a b", "a\n"},
	}
	url = example{
		accepted: []string{"https://host", "https://host.example.com:8443", "https://[::1]:8283"},
		refused:  []string{"", "https://", "host", "ftp://host", "https://host/path", "https://user@host", "https://host?x", "https://host\n"},
	}
)

// examples of every pattern, by kind and path. status.conditions are those of
// Kubernetes.
var examples = map[string]map[string]example{
	"Session": {
		"spec.sessionID":                                   identity,
		"spec.forkedFrom":                                  identity,
		"spec.project.remote":                              remote,
		"spec.requests[].id":                               {accepted: []string{"a", "-", strings.Repeat("0", 36)}, refused: []string{"", strings.Repeat("0", 37), "A", "a_b", "a.b", "a\n"}},
		"spec.writers[].chain":                             hash,
		"spec.writers[].previousChain":                     hash,
		"status.usage.day":                                 day,
		"status.syncState.blocks[].digest":                 hash,
		"status.syncState.blocks[].label":                  label,
		"status.syncState.corrections[]":                   whisper,
		"status.syncState.delivery.corrections[]":          whisper,
		"status.syncState.parked[].delivery.corrections[]": whisper,
		"status.syncState.writers[].verified.chain":        hash,
	},
	"Workstation": {
		"spec.publicKey": {
			accepted: []string{key},
			refused:  []string{"", key[:61], key + "q", strings.ToUpper(key), "AGE-SECRET-KEY-1" + strings.ToUpper(key[4:]), strings.Replace(key, "q", "b", 1)},
		},
	},
	"TeamMemory": {
		"spec.letta.baseURL": url,
		"status.usage.day":   day,
		"spec.scrubs[].id": {
			accepted: []string{"a", "-", strings.Repeat("0", 32)}, refused: []string{"", strings.Repeat("0", 33), "A", "a_b", "a\n"},
		},
		"status.scrubs[].id": {
			accepted: []string{"a", "-", strings.Repeat("0", 32)}, refused: []string{"", strings.Repeat("0", 33), "A", "a_b", "a\n"},
		},
		"spec.scrubs[].digest": {
			accepted: []string{strings.Repeat("0a", 36)}, refused: []string{"", strings.Repeat("0", 71), strings.Repeat("0", 73), strings.Repeat("A", 72)},
		},
		"status.scrubKey": {
			accepted: []string{key}, refused: []string{key[:61], key + "q", strings.ToUpper(key), "AGE-SECRET-KEY-1" + strings.ToUpper(key[4:])},
		},
		"spec.capture.redact[].name": {
			accepted: []string{"a", "-", strings.Repeat("0", 32)}, refused: []string{"", strings.Repeat("0", 33), "A", "a_b", "a.b", "a\n"},
		},
		"spec.store.endpoint":       url,
		"spec.store.publicEndpoint": url,
		"spec.store.bucket": {
			accepted: []string{"abc", "a.b-c", strings.Repeat("a", 63)},
			refused:  []string{"", "ab", strings.Repeat("a", 64), "-ab", "ab-", "Abc", "a_b", "a/b", "abc\n"},
		},
		"spec.store.prefix": {
			accepted: []string{"a", "A/b_c/d-e"},
			refused:  []string{"/a", "a/", "a//b", "..", "a/../b", "a b", "a\n"},
		},
	},
	"MemoryBlock": {
		"spec.label":              label,
		"spec.project":            {accepted: append([]string{""}, remote.accepted...), refused: remote.refused},
		"status.digest":           hash,
		"status.history[].digest": hash,
	},
}

var conditionExamples = map[string]example{
	"status.conditions[].type":   {accepted: []string{"Ready", "example.com/Ready"}, refused: []string{"", "a b", "/Ready", "Ready-"}},
	"status.conditions[].reason": {accepted: []string{"Succeeded", "A1:b,c_d"}, refused: []string{"1A", "a b", "A-", "A:"}},
}

// says is a part of what the API server says of each kind of bound.
var says = map[string]string{
	"required":  "Required value",
	"minLength": "should be at least",
	"maxLength": "may not be more than",
	"minimum":   "should be greater than or equal to",
	"maximum":   "should be less than or equal to",
	"minItems":  "should have at least",
	"maxItems":  "must have at most",
	"unique":    "Duplicate value",
	"enum":      "Unsupported value",
	"pattern":   "should match",
	"format":    "of type",
}

// alternatives make an object valid again that was changed at a path, where
// another rule than the one under test would object.
func alternatives(o *unstructured.Unstructured, path string) {
	switch path {
	case "spec.agent.id":
		set(o, "spec.agent.template", nil)
	case "spec.restore":
		set(o, "spec.mode", "Learned")
		set(o, "spec.value", nil)
		set(o, "spec.description", nil)
	case "spec.mode":
		if mode, _ := get(o, path); mode == "Learned" {
			set(o, "spec.value", nil)
			set(o, "spec.description", nil)
		}
	case "spec.writers[].segments":
		set(o, "spec.writers[].slots", nil)
	case "spec.lines":
		if lines, ok := get(o, path); ok {
			set(o, "spec.writers[].lines", lines)
		}
	}
	if _, ok := get(o, "spec"); !ok || o.GetKind() != "Session" || path == "spec.lines" {
		return
	}
	sum := int64(0)
	writers, _ := get(o, "spec.writers")
	list, _ := writers.([]any)
	for _, writer := range list {
		entry, _ := writer.(fields)
		lines, _ := entry["lines"].(int64)
		sum += lines
	}
	set(o, "spec.lines", sum)
}

// attempt is one object to send.
type attempt struct {
	name    string
	value   any // at the path; nil removes it
	refused bool
	at      string // the field that is refused, where it is not the path itself
	says    string // what is said of it, where it is not what the keyword says
}

// attempts returns what to send for one bound of a field.
func attempts(t *testing.T, base *unstructured.Unstructured, path, bound string) []attempt {
	t.Helper()
	keyword, limit, _ := strings.Cut(bound, "=")
	number, _ := strconv.ParseInt(limit, 10, 64)
	value, _ := get(base, path)
	switch keyword {
	case "required":
		return []attempt{{name: "absent", refused: true}, {name: "present", value: value}}
	case "minLength":
		return []attempt{
			{name: "at", value: text(path, number)},
			{name: "below", value: text(path, number-1), refused: true},
		}
	case "maxLength":
		return []attempt{
			{name: "at", value: text(path, number)},
			{name: "above", value: text(path, number+1), refused: true},
		}
	case "minimum":
		return []attempt{{name: "at", value: number}, {name: "below", value: number - 1, refused: true}}
	case "maximum":
		return []attempt{{name: "at", value: number}, {name: "above", value: number + 1, refused: true}}
	case "minItems":
		return []attempt{
			{name: "at", value: items(t, value, number)},
			{name: "below", value: items(t, value, number-1), refused: true},
		}
	case "maxItems":
		return []attempt{
			{name: "at", value: items(t, value, number)},
			{name: "above", value: items(t, value, number+1), refused: true},
		}
	case "unique":
		twice := append(items(t, value, 1), items(t, value, 1)...)
		return []attempt{
			{name: "two", value: items(t, value, 2)},
			{name: "twice", value: twice, refused: true, at: fieldPath(path+"[]", 1)},
		}
	case "enum":
		list := []attempt{{name: "unknown", value: "Nonsense", refused: true}}
		for allowed := range strings.SplitSeq(limit, "|") {
			list = append(list, attempt{name: allowed, value: allowed})
		}
		return list
	case "pattern":
		all := maps.Clone(examples[base.GetKind()])
		maps.Copy(all, conditionExamples)
		example, ok := all[path]
		if !ok {
			t.Fatalf("%s has a pattern and no examples", path)
		}
		var list []attempt
		for _, s := range example.accepted {
			list = append(list, attempt{name: "accepted " + s, value: s})
		}
		for _, s := range example.refused {
			list = append(list, attempt{name: "refused " + s, value: s, refused: true})
		}
		return list
	case "format":
		if limit == "int32" {
			// Said of the part as a whole, which has no name in a spec.
			part, rest, _ := strings.Cut(fieldPath(path, 0), ".")
			if part == "spec" {
				part, rest = "<nil>", "spec."+rest
			}
			return []attempt{
				{name: "33 bits", value: int64(1) << 32, refused: true, at: part, says: "integer with format int32 in " + rest},
				{name: "32 bits", value: value},
			}
		}
		return []attempt{{name: "no time", value: "yesterday", refused: true}, {name: "a time", value: when}}
	}
	t.Fatalf("%s: unknown bound %s", path, bound)
	return nil
}

// text returns a string of n characters that fits the field otherwise. Some
// are not ASCII where the field takes any: a limit in characters is not one in
// bytes.
func text(path string, n int64) string {
	head, fill := "", "é"
	switch {
	case strings.HasSuffix(path, "URL"), strings.HasSuffix(path, "ndpoint"):
		head, fill = "https://", "a"
	case strings.HasSuffix(path, "remote"), strings.HasSuffix(path, "project"), strings.HasSuffix(path, "prefix"),
		strings.HasSuffix(path, "type"), strings.HasSuffix(path, "reason"), strings.HasSuffix(path, "owner"):
		fill = "a"
	}
	if n < int64(len(head)) {
		return ""
	}
	return head + strings.Repeat(fill, int(n)-len(head))
}

// items returns n items made after the first one of a list, each different.
func items(t *testing.T, list any, n int64) []any {
	t.Helper()
	first, ok := list.([]any)
	if !ok || len(first) == 0 {
		t.Fatalf("no item to copy in %v", list)
	}
	made := []any{}
	for i := range n {
		item := (&unstructured.Unstructured{Object: fields{"item": first[0]}}).DeepCopy().Object["item"]
		suffix := strconv.FormatInt(i, 10)
		switch value := item.(type) {
		case string:
			item = value + suffix
		case int64:
			item = value + i
		case map[string]any:
			for _, name := range []string{"id", "workstation", "label", "project", "type", "name"} {
				if key, ok := value[name].(string); ok {
					value[name] = key + suffix
					break
				}
			}
			if key, ok := value["segment"].(int64); ok {
				value["segment"] = key + i
			}
		}
		made = append(made, item)
	}
	return made
}

// rows returns the bounds of a kind: path, then keyword=limit.
func rows(kind string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(bounds[kind]) {
		if cells := strings.Fields(line); len(cells) > 0 {
			all[cells[0]] = cells[1:]
		}
	}
	return all
}

func TestBounds(t *testing.T) {
	for _, kind := range kinds() {
		known := live(t, full(kind, "bounds"))
		for path, cells := range rows(kind) {
			for _, bound := range cells {
				keyword, _, _ := strings.Cut(bound, "=")
				for _, a := range attempts(t, full(kind, "bounds-new"), path, bound) {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", kind, path, keyword, a.name), func(t *testing.T) {
						err := send(t, known, kind, path, a)
						if !a.refused {
							if err != nil {
								t.Fatalf("refused: %v", err)
							}
							return
						}
						at, said := fieldPath(path, 0), says[keyword]
						if a.at != "" {
							at = a.at
						}
						if a.says != "" {
							said = a.says
						}
						for _, cause := range causes(err) {
							if cause.Field == at && strings.Contains(cause.Message, said) {
								return
							}
						}
						t.Errorf("got %v, want a refusal of %s that says %q", err, at, said)
					})
				}
			}
		}
	}
}

// send tries a full object with one value changed, as a dry run: a new one for
// a spec, the live one for a status.
func send(t *testing.T, known *unstructured.Unstructured, kind, path string, a attempt) error {
	t.Helper()
	o := full(kind, "bounds-new")
	set(o, path, a.value)
	if strings.HasPrefix(path, "status") {
		status := known.DeepCopy()
		status.Object["status"] = o.Object["status"]
		return controller.Status().Update(t.Context(), status, client.DryRunAll)
	}
	alternatives(o, path)
	api := writerOf[kind]
	if name, _ := a.value.(string); path == "spec.owner" && !a.refused {
		var err error
		if api, err = cluster.Client(cluster.User(name)); err != nil {
			t.Fatal(err)
		}
	}
	return api.Create(t.Context(), o, client.DryRunAll)
}

// schemaOf returns the schema of a kind's CRD.
func schemaOf(t *testing.T, kind string) map[string]any {
	t.Helper()
	version, _ := crd(t, kind).Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	return version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
}

// crd reads the CRD of a kind as it is committed.
func crd(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "undersong.dev_*.yaml"))
	if err != nil || len(files) != len(kinds()) {
		t.Fatalf("CRDs: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &o.Object); err != nil {
			t.Fatal(err)
		}
		if name, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind"); name == kind {
			return o
		}
	}
	t.Fatalf("no CRD of %s", kind)
	return nil
}

// walk calls visit for every field of a schema below spec and status.
func walk(schema map[string]any, visit func(path string, schema map[string]any, required bool)) {
	var down func(path string, schema map[string]any, required bool)
	down = func(path string, schema map[string]any, required bool) {
		visit(path, schema, required)
		properties, _ := schema["properties"].(map[string]any)
		needed, _ := schema["required"].([]any)
		for name, property := range properties {
			if child, ok := property.(map[string]any); ok {
				down(path+"."+name, child, slices.Contains(needed, any(name)))
			}
		}
		if child, ok := schema["items"].(map[string]any); ok {
			down(path+"[]", child, false)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	needed, _ := schema["required"].([]any)
	for _, part := range []string{"spec", "status"} {
		if child, ok := properties[part].(map[string]any); ok {
			down(part, child, slices.Contains(needed, any(part)))
		}
	}
}

// TestBoundsAreTheCRDs fails when a CRD has a bound that the table does not
// name, and the other way round.
func TestBoundsAreTheCRDs(t *testing.T) {
	silent := []string{
		"description", "type", "properties", "items", "required",
		"x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
	}
	for _, kind := range kinds() {
		got := map[string][]string{}
		walk(schemaOf(t, kind), func(path string, schema map[string]any, required bool) {
			var cells []string
			if required {
				cells = append(cells, "required")
			}
			for keyword, limit := range schema {
				switch keyword {
				case "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems":
					if f, ok := limit.(float64); ok {
						limit = strconv.FormatFloat(f, 'f', -1, 64) // not 1e+06
					}
					cells = append(cells, fmt.Sprintf("%s=%v", keyword, limit))
				case "pattern":
					cells = append(cells, fmt.Sprintf("pattern=%s", limit))
				case "enum":
					values, _ := limit.([]any)
					names := make([]string, 0, len(values))
					for _, value := range values {
						names = append(names, fmt.Sprint(value))
					}
					cells = append(cells, "enum="+strings.Join(names, "|"))
				case "format":
					if limit != "int64" { // JSON's own
						cells = append(cells, fmt.Sprintf("format=%s", limit))
					}
				default:
					if !slices.Contains(silent, keyword) {
						t.Errorf("%s: %s has the keyword %s, which this test does not know", kind, path, keyword)
					}
				}
			}
			switch schema["x-kubernetes-list-type"] {
			case "map":
				keys, _ := schema["x-kubernetes-list-map-keys"].([]any)
				cells = append(cells, fmt.Sprintf("unique=%v", keys[0]))
			case "set":
				cells = append(cells, "unique=")
			}
			if len(cells) > 0 {
				slices.Sort(cells)
				got[path] = cells
			}
			if _, bounded := schema["maxLength"]; schema["type"] == "string" && !bounded && schema["pattern"] == nil && schema["enum"] == nil && schema["format"] == nil {
				t.Errorf("%s: the string %s has no bound", kind, path)
			}
			if schema["type"] == "array" && schema["maxItems"] == nil {
				t.Errorf("%s: the list %s has no bound", kind, path)
			}
			if schema["type"] == "boolean" {
				t.Errorf("%s: %s is a boolean; use an enum, which can grow", kind, path)
			}
		})
		want := rows(kind)
		for _, cells := range want {
			slices.Sort(cells)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: bounds of the table against the CRD (-table +CRD):\n%s", kind, diff)
		}
	}
}

// TestFullObjectsAreFull: a field that full leaves out would be bounded by a
// test that never sends it.
func TestFullObjectsAreFull(t *testing.T) {
	for _, kind := range kinds() {
		o := full(kind, "full")
		walk(schemaOf(t, kind), func(path string, _ map[string]any, _ bool) {
			// Excluded by spec.agent.template, and by mode Pinned.
			if _, ok := get(o, path); !ok && path != "spec.agent.id" && path != "spec.restore" {
				t.Errorf("%s: %s is not filled", kind, path)
			}
		})
	}
}
