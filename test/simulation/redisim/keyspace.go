package redisim

import (
	"maps"
	"slices"
)

// keyspace holds the keys of a server.
type keyspace struct {
	values map[string]*value
}

// value is the value of a key. A list is only there to be of the wrong type.
type value struct {
	data    []byte
	list    []string
	isList  bool
	expires int64 // in milliseconds of the server's clock; 0: never
}

func (v *value) expired(now int64) bool { return v.expires != 0 && v.expires <= now }

func (k *keyspace) clear() { k.values = make(map[string]*value) }

func (k *keyspace) remove(name string) { delete(k.values, name) }

// get returns the value of a key, nil if there is none or if it has expired.
func (k *keyspace) get(name string, now int64) *value {
	v := k.values[name]
	if v != nil && v.expired(now) {
		delete(k.values, name)
		return nil
	}
	return v
}

// names returns the names of all keys in order.
func (k *keyspace) names(now int64) []string {
	names := make([]string, 0, len(k.values))
	for _, n := range slices.Sorted(maps.Keys(k.values)) {
		if !k.values[n].expired(now) {
			names = append(names, n)
		}
	}
	return names
}

// purge deletes the keys that have expired.
func (k *keyspace) purge(now int64) {
	for n, v := range k.values {
		if v.expired(now) {
			delete(k.values, n)
		}
	}
}

func (v *value) clone() *value {
	if v == nil {
		return nil
	}
	w := *v
	w.data, w.list = slices.Clone(v.data), slices.Clone(v.list)
	return &w
}

func (k *keyspace) clone() (all keyspace) {
	all.clear()
	for n, v := range k.values {
		all.values[n] = v.clone()
	}
	return all
}
