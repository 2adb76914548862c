//go:build envtest

package v1alpha1_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// change is what a case does to an object. Paths are those of set.
type change map[string]any

// absent removes a field.
var absent any

// grown is wks-a's entry of full one segment later.
func grown(with change) change {
	all := change{
		"spec.lines":                   int64(40),
		"spec.writers[].segments":      int64(4),
		"spec.writers[].lines":         int64(40),
		"spec.writers[].bytes":         int64(400),
		"spec.writers[].chain":         chain("4"),
		"spec.writers[].previousChain": chain("3"),
	}
	maps.Copy(all, with)
	return all
}

// two is a second entry beside that of full.
func two(lines int64) []any {
	first, _ := get(full("Session", ""), "spec.writers")
	list, _ := first.([]any)
	return append(list, fields{
		"workstation": "wks-b", "state": "Active", "segments": int64(1), "lines": lines, "bytes": int64(1),
		"chain": chain("b"), "previousChain": chain("0"),
	})
}

// ruleCase tries one rule of a CRD. The object is full, changed by before;
// refused and accepted are changes of that, and differ by what the rule is
// about.
type ruleCase struct {
	reason   string
	rule     string // its message, which names it
	kind     string
	create   bool // the rule is tried at create, not at update
	before   change
	refused  change
	accepted change
}

const (
	ruleTogether = "segments, chain, previousChain, lines and bytes change together: an entry without a new segment keeps them"
	ruleContinue = "previousChain must be the chain that the cluster has, and lines and bytes can only grow"
	ruleBack     = "segments cannot be taken back"
	ruleNewChain = "a new segment has a new chain"
	ruleBeyond   = "slots cannot name a segment beyond segments"
	ruleSum      = "lines must be the sum of the writers' lines"
	ruleStays    = "a writer's entry cannot be removed"
	ruleFixed    = "owner, sessionID, agent, memoryRef and project cannot be changed"
	ruleFork     = "forkedFrom cannot be changed"

	ruleMachine = "owner, publicKey and memoryRef cannot be changed"
	ruleRequest = "grantRequest can only grow"

	ruleHTTPS  = "baseURL must be https or wss, or insecure must be Allow"
	ruleSocket = "ws and wss are for the backend AppServer"
	ruleStore  = "endpoint and publicEndpoint must be https, or insecure must be Allow"
	ruleSource = "give exactly one of template and id"
	ruleScrub  = "another text needs another id"
	ruleScrubs = "what is removed is not looked for only: take the entry away"
	ruleName   = "the name of a TeamMemory has at most 40 characters"

	ruleBlock    = "memoryRef, project and label cannot be changed"
	rulePinned   = "a Pinned block has a value, and a Learned one has none"
	ruleDescribe = "description is for Pinned blocks"
	ruleRestore  = "restore is for Learned blocks"
)

var (
	template = fields{"name": "n", "model": "m"}
	harmless = change{"spec.requests[].kind": "WrongWhisper"}
)

var ruleCases = map[string]ruleCase{
	"chain alone": {
		reason: "a chain without a segment would name bytes that nobody uploaded",
		rule:   ruleTogether, kind: "Session",
		refused:  change{"spec.writers[].chain": chain("4")},
		accepted: change{"spec.writers[].slots": []any{fields{"seq": int64(2), "slot": int64(9)}}},
	},
	"previousChain alone": {
		reason: "it says where the entry last grew",
		rule:   ruleTogether, kind: "Session",
		refused:  change{"spec.writers[].previousChain": chain("3")},
		accepted: change{"spec.writers[].slots": absent},
	},
	"lines alone": {
		reason: "lines come with the segment that holds them",
		rule:   ruleTogether, kind: "Session",
		refused:  change{"spec.writers[].lines": int64(31), "spec.lines": int64(31)},
		accepted: change{"spec.writers[].gone": []any{int64(1), int64(2)}},
	},
	"bytes alone": {
		reason: "bytes come with the segment that holds them",
		rule:   ruleTogether, kind: "Session",
		refused:  change{"spec.writers[].bytes": int64(301)},
		accepted: change{"spec.writers[].state": "Ended", "spec.writers[].branch": "other"},
	},
	"segments taken back": {
		reason: "what is verified cannot become unsaid",
		rule:   ruleBack, kind: "Session",
		refused: grown(change{
			"spec.writers[].segments": int64(2), "spec.writers[].slots": absent,
			"spec.lines": int64(20), "spec.writers[].lines": int64(20), "spec.writers[].bytes": int64(200),
		}),
		accepted: change{"spec.writers[].slots": absent},
	},
	"one segment more": {
		reason: "a segment that does not continue the cluster's chain is another history",
		rule:   ruleContinue, kind: "Session",
		refused:  grown(change{"spec.writers[].previousChain": chain("2")}),
		accepted: grown(nil),
	},
	"many segments more": {
		reason: "after a time offline many segments come at once",
		rule:   ruleContinue, kind: "Session",
		refused:  grown(change{"spec.writers[].segments": int64(9), "spec.writers[].previousChain": chain("8")}),
		accepted: grown(change{"spec.writers[].segments": int64(9)}),
	},
	"fewer lines in more segments": {
		reason: "a segment takes no lines away, and may have none",
		rule:   ruleContinue, kind: "Session",
		refused:  grown(change{"spec.writers[].lines": int64(29), "spec.lines": int64(29)}),
		accepted: grown(change{"spec.writers[].lines": int64(30), "spec.lines": int64(30)}),
	},
	"fewer bytes in more segments": {
		reason: "a segment takes no bytes away",
		rule:   ruleContinue, kind: "Session",
		refused:  grown(change{"spec.writers[].bytes": int64(299)}),
		accepted: grown(change{"spec.writers[].bytes": int64(300)}),
	},
	"the old chain for a new segment": {
		reason: "a chain that does not move does not cover the segment",
		rule:   ruleNewChain, kind: "Session",
		refused:  grown(change{"spec.writers[].chain": chain("3")}),
		accepted: grown(nil),
	},
	"slot of a segment that does not exist": {
		reason: "the controller would wait for it for ever",
		rule:   ruleBeyond, kind: "Session", create: true,
		refused:  change{"spec.writers[].slots": []any{fields{"seq": int64(4), "slot": int64(1)}}},
		accepted: change{"spec.writers[].slots": []any{fields{"seq": int64(3), "slot": int64(1)}}},
	},
	"slot beyond segments at update": {
		reason: "the same for slots that change alone",
		rule:   ruleBeyond, kind: "Session",
		refused:  change{"spec.writers[].slots": []any{fields{"seq": int64(3), "slot": int64(7)}, fields{"seq": int64(4), "slot": int64(8)}}},
		accepted: change{"spec.writers[].slots": []any{fields{"seq": int64(3), "slot": int64(7)}, fields{"seq": int64(3), "slot": int64(8)}}},
	},
	"sum too small": {
		reason: "UPLOADED would be a lie",
		rule:   ruleSum, kind: "Session", create: true,
		refused:  change{"spec.lines": int64(29)},
		accepted: change{"spec.lines": int64(30)},
	},
	"sum too large": {
		reason: "UPLOADED would be a lie",
		rule:   ruleSum, kind: "Session", create: true,
		refused:  change{"spec.lines": int64(31)},
		accepted: change{"spec.lines": int64(30)},
	},
	"sum over two": {
		reason: "all entries count",
		rule:   ruleSum, kind: "Session", create: true,
		refused:  change{"spec.writers": two(12), "spec.lines": int64(30)},
		accepted: change{"spec.writers": two(12), "spec.lines": int64(42)},
	},
	"sum of nobody": {
		reason: "a Session begins without writers",
		rule:   ruleSum, kind: "Session", create: true,
		refused:  change{"spec.writers": absent, "spec.lines": int64(1)},
		accepted: change{"spec.writers": absent, "spec.lines": int64(0)},
	},
	"sum of an empty list": {
		reason: "an empty list is nobody too",
		rule:   ruleSum, kind: "Session", create: true,
		refused:  change{"spec.writers": []any{}, "spec.lines": int64(1)},
		accepted: change{"spec.writers": []any{}, "spec.lines": int64(0)},
	},
	"one entry of two removed": {
		reason: "what a workstation said stays said",
		rule:   ruleStays, kind: "Session",
		before:   change{"spec.writers": two(12), "spec.lines": int64(42)},
		refused:  change{"spec.writers": two(12)[:1], "spec.lines": int64(30)},
		accepted: harmless,
	},
	"all entries removed": {
		reason: "the list as a whole cannot go either",
		rule:   ruleStays, kind: "Session",
		refused:  change{"spec.writers": absent, "spec.lines": int64(0)},
		accepted: change{"spec.writers": two(12), "spec.lines": int64(42)},
	},
	"entry renamed": {
		reason: "a renamed entry is one removed and one made",
		rule:   ruleStays, kind: "Session",
		refused:  change{"spec.writers[].workstation": "wks-b"},
		accepted: harmless,
	},
	"owner": {
		reason: "the owner cannot give a Session away",
		rule:   ruleFixed, kind: "Session",
		refused: change{"spec.owner": "bob"}, accepted: harmless,
	},
	"sessionID": {
		reason: "it is part of the name",
		rule:   ruleFixed, kind: "Session",
		refused: change{"spec.sessionID": "t"}, accepted: harmless,
	},
	"memoryRef": {
		reason: "what one memory heard is not another's",
		rule:   ruleFixed, kind: "Session",
		refused: change{"spec.memoryRef.name": "n"}, accepted: harmless,
	},
	"project's name": {
		reason: "the project is that of the first record",
		rule:   ruleFixed, kind: "Session",
		refused: change{"spec.project.name": "other"}, accepted: harmless,
	},
	"project's remote": {
		reason: "it decides which agent hears the session",
		rule:   ruleFixed, kind: "Session",
		refused: change{"spec.project.remote": "github.com/example/other"}, accepted: harmless,
	},
	"forkedFrom changed": {
		reason: "where a session comes from does not change",
		rule:   ruleFork, kind: "Session",
		refused: change{"spec.forkedFrom": "q"}, accepted: harmless,
	},
	"forkedFrom removed": {
		reason: "nor is it forgotten",
		rule:   ruleFork, kind: "Session",
		refused: change{"spec.forkedFrom": absent}, accepted: harmless,
	},
	"forkedFrom added": {
		reason: "nor found out later",
		rule:   ruleFork, kind: "Session",
		before:  change{"spec.forkedFrom": absent},
		refused: change{"spec.forkedFrom": "p"}, accepted: harmless,
	},

	"Workstation's owner": {
		reason: "grants are for one person",
		rule:   ruleMachine, kind: "Workstation",
		refused: change{"spec.owner": "bob"}, accepted: change{"spec.version": "v2"},
	},
	"Workstation's key": {
		reason: "what is sealed stays readable by the same key alone",
		rule:   ruleMachine, kind: "Workstation",
		refused: change{"spec.publicKey": strings.Replace(key, "q", "z", 1)}, accepted: change{"spec.os": "darwin/arm64"},
	},
	"Workstation's memory": {
		reason: "grants are for one store",
		rule:   ruleMachine, kind: "Workstation",
		refused: change{"spec.memoryRef.name": "n"}, accepted: change{"spec.report": absent},
	},
	"grantRequest smaller": {
		reason: "a counter that falls would ask for an old grant",
		rule:   ruleRequest, kind: "Workstation",
		refused: change{"spec.grantRequest": int64(0)}, accepted: change{"spec.grantRequest": int64(2)},
	},

	"Letta over http": {
		reason: "a key is sent there",
		rule:   ruleHTTPS, kind: "TeamMemory", create: true,
		refused:  change{"spec.letta.baseURL": "http://letta", "spec.letta.insecure": absent},
		accepted: change{"spec.letta.baseURL": "https://letta", "spec.letta.insecure": absent},
	},
	"Letta over http where it is denied": {
		reason: "Deny is what omission means",
		rule:   ruleHTTPS, kind: "TeamMemory", create: true,
		refused:  change{"spec.letta.baseURL": "http://letta", "spec.letta.insecure": "Deny"},
		accepted: change{"spec.letta.baseURL": "http://letta", "spec.letta.insecure": "Allow"},
	},
	"Letta changed to http": {
		reason: "the rule holds at update too",
		rule:   ruleHTTPS, kind: "TeamMemory",
		refused:  change{"spec.letta.baseURL": "http://letta"},
		accepted: change{"spec.letta.baseURL": "https://letta"},
	},
	"Letta over ws": {
		reason: "a token is sent there",
		rule:   ruleHTTPS, kind: "TeamMemory", create: true,
		refused:  change{"spec.letta.backend": "AppServer", "spec.letta.baseURL": "ws://letta:4500", "spec.letta.insecure": absent},
		accepted: change{"spec.letta.backend": "AppServer", "spec.letta.baseURL": "wss://letta:4500", "spec.letta.insecure": absent},
	},
	"a socket for the API": {
		reason: "the API is spoken over HTTP",
		rule:   ruleSocket, kind: "TeamMemory", create: true,
		refused:  change{"spec.letta.baseURL": "wss://letta"},
		accepted: change{"spec.letta.baseURL": "wss://letta", "spec.letta.backend": "AppServer"},
	},
	"the API at the address of a socket": {
		reason: "the rule holds at update too",
		rule:   ruleSocket, kind: "TeamMemory",
		refused:  change{"spec.letta.baseURL": "wss://letta"},
		accepted: change{"spec.letta.backend": "AppServer"},
	},
	"store over http": {
		reason: "words go there",
		rule:   ruleStore, kind: "TeamMemory", create: true,
		refused:  change{"spec.store.endpoint": "http://s3", "spec.store.insecure": absent},
		accepted: change{"spec.store.endpoint": "https://s3", "spec.store.insecure": absent},
	},
	"store over http for workstations": {
		reason: "words go there from every laptop",
		rule:   ruleStore, kind: "TeamMemory", create: true,
		refused:  change{"spec.store.publicEndpoint": "http://s3"},
		accepted: change{"spec.store.publicEndpoint": absent},
	},
	"store over http where it is allowed": {
		reason: "Allow means both endpoints",
		rule:   ruleStore, kind: "TeamMemory", create: true,
		refused:  change{"spec.store.endpoint": "http://s3", "spec.store.publicEndpoint": "http://s3", "spec.store.insecure": "Deny"},
		accepted: change{"spec.store.endpoint": "http://s3", "spec.store.publicEndpoint": "http://s3", "spec.store.insecure": "Allow"},
	},
	"template and id": {
		reason: "one of them would be ignored",
		rule:   ruleSource, kind: "TeamMemory", create: true,
		refused:  change{"spec.agent": fields{"template": template, "id": "a"}},
		accepted: change{"spec.agent": fields{"template": template}},
	},
	"neither template nor id": {
		reason: "there would be no agent",
		rule:   ruleSource, kind: "TeamMemory", create: true,
		refused:  change{"spec.agent": fields{}},
		accepted: change{"spec.agent": fields{"id": "a"}},
	},
	"another text under an id": {
		reason: "what is done for one text would be said of the other",
		rule:   ruleScrub, kind: "TeamMemory",
		refused: change{"spec.scrubs[].length": int64(9)}, accepted: change{"spec.scrubs[].mode": "Remove"},
	},
	"a text that comes back": {
		reason: "who takes it back says so by taking the entry away",
		rule:   ruleScrubs, kind: "TeamMemory",
		before:  change{"spec.scrubs[].mode": "Remove"},
		refused: change{"spec.scrubs[].mode": "Look"}, accepted: change{"spec.scrubs": absent},
	},
	"long name": {
		reason: "names of MemoryBlocks begin with it and have 63 characters",
		rule:   ruleName, kind: "TeamMemory", create: true,
		refused:  change{"metadata.name": strings.Repeat("m", 41)},
		accepted: change{"metadata.name": strings.Repeat("m", 40)},
	},

	"block of another memory": {
		reason: "it is part of the name",
		rule:   ruleBlock, kind: "MemoryBlock",
		refused: change{"spec.memoryRef.name": "n"}, accepted: change{"metadata.labels": fields{"a": "b"}},
	},
	"block of another project": {
		reason: "what is learned in one repository stays there",
		rule:   ruleBlock, kind: "MemoryBlock",
		refused: change{"spec.project": ""}, accepted: change{"metadata.labels": fields{"a": "b"}},
	},
	"pinned without a value": {
		reason: "there would be nothing to put back",
		rule:   rulePinned, kind: "MemoryBlock", create: true,
		refused: change{"spec.value": absent}, accepted: change{"spec.value": "w"},
	},
	"learned with a value": {
		reason: "it would be ignored",
		rule:   rulePinned, kind: "MemoryBlock", create: true,
		before:  change{"spec.description": absent},
		refused: change{"spec.mode": "Learned"}, accepted: change{"spec.mode": "Learned", "spec.value": absent},
	},
	"given back to the agent": {
		reason: "the rule holds at update too",
		rule:   rulePinned, kind: "MemoryBlock",
		before:  change{"spec.description": absent},
		refused: change{"spec.mode": "Learned"}, accepted: change{"spec.mode": "Learned", "spec.value": absent},
	},
	"learned with a description": {
		reason: "it would be ignored",
		rule:   ruleDescribe, kind: "MemoryBlock", create: true,
		before:  change{"spec.mode": "Learned", "spec.value": absent},
		refused: change{"spec.description": "d"}, accepted: change{"spec.description": absent},
	},
	"pinned and restored": {
		reason: "the pinned text would be put back at once",
		rule:   ruleRestore, kind: "MemoryBlock", create: true,
		refused:  change{"spec.restore": "r"},
		accepted: change{"spec.restore": "r", "spec.mode": "Learned", "spec.value": absent, "spec.description": absent},
	},
	"block with another label": {
		reason: "it is part of the name",
		rule:   ruleBlock, kind: "MemoryBlock",
		refused: change{"spec.label": "pitfalls"}, accepted: change{"metadata.labels": fields{"a": "b"}},
	},
}

func TestRules(t *testing.T) {
	for name, c := range ruleCases {
		t.Run(name, func(t *testing.T) {
			before := apply(full(c.kind, "rules"), c.before)
			if !c.create {
				before = live(t, before)
			}
			send := func(o *unstructured.Unstructured) error {
				if c.create {
					return writerOf[c.kind].Create(t.Context(), o, client.DryRunAll)
				}
				return writerOf[c.kind].Update(t.Context(), o, client.DryRunAll)
			}
			if err := send(apply(before, c.accepted)); err != nil {
				t.Errorf("%s: the neighbour is refused: %v", c.reason, err)
			}
			if err := send(apply(before, c.refused)); !broke(err, c.rule) {
				t.Errorf("%s: got %v, want a refusal that says %q", c.reason, err, c.rule)
			}
		})
	}
}

// apply returns a changed copy.
func apply(o *unstructured.Unstructured, c change) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, path := range slices.Sorted(maps.Keys(c)) {
		set(o, path, c[path])
	}
	return o
}

// TestEveryRuleHasACase fails when a CRD has a rule that no case names, when a
// case names a rule that is gone, and when two rules of a kind say the same
// words, so that a refusal would not tell which.
func TestEveryRuleHasACase(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range ruleCases {
		tried[c.kind+": "+c.rule] = true
	}
	for _, kind := range kinds() {
		root := schemaOf(t, kind)
		said := map[string]bool{}
		note := func(path string, schema map[string]any, _ bool) {
			rules, _ := schema["x-kubernetes-validations"].([]any)
			for _, rule := range rules {
				message, _ := rule.(map[string]any)["message"].(string)
				if message == "" {
					t.Errorf("%s: a rule of %s has no message, so it prints its expression", kind, path)
				}
				if said[message] {
					t.Errorf("%s: two rules say %q", kind, message)
				}
				said[message] = true
				if !tried[kind+": "+message] {
					t.Errorf("%s: no case tries the rule of %s that says %q", kind, path, message)
				}
				delete(tried, kind+": "+message)
			}
		}
		note("the object", root, false)
		walk(root, note)
	}
	for rule := range tried {
		t.Errorf("a case tries a rule that no CRD has: %s", rule)
	}
}
