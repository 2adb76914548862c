package session

import "sync"

// keySetLimit bounds a keySet. What falls out is only done once more.
const keySetLimit = 65536

// keySet is a bounded set of strings, safe for concurrent use.
type keySet struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

func (k *keySet) has(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.keys[key]
	return ok
}

func (k *keySet) add(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil || len(k.keys) >= keySetLimit {
		k.keys = map[string]struct{}{}
	}
	k.keys[key] = struct{}{}
}
