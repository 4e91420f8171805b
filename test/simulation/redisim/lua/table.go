package lua

import "math"

// Table is a table of Lua.
type Table struct {
	list   []Value // of the keys from 1 on
	fields []field // of strings, in the order in which they were set
	byName map[string]int
	others map[Value]Value // of other keys

	// ReadOnly has an assignment fail, and Strict the read of a field that does not exist.
	ReadOnly, Strict bool
}

type field struct {
	name  string
	value Value
}

// scanned is up to how many fields are found without an index.
const scanned = 16

// NewTable returns a table with room for n elements.
func NewTable(n int) *Table {
	if n == 0 {
		return &Table{}
	}
	return &Table{list: make([]Value, 0, n)}
}

// Len returns what # does.
func (t *Table) Len() int { return len(t.list) }

// SetList replaces the elements of a table by strings.
func (t *Table) SetList(all []string) {
	t.list = t.list[:0]
	for _, s := range all {
		t.list = append(t.list, Str(s))
	}
	t.fields, t.byName, t.others = nil, nil, nil
}

// At returns element i, from 1 on.
func (t *Table) At(i int) Value {
	if uint(i-1) < uint(len(t.list)) {
		return t.list[i-1]
	}
	return t.others[Num(float64(i))]
}

// Append appends an element.
func (t *Table) Append(v Value) { t.set(Num(float64(len(t.list)+1)), v) }

// Field returns a field.
func (t *Table) Field(name string) Value {
	if i := t.find(name); i >= 0 {
		return t.fields[i].value
	}
	return Value{}
}

// SetField sets a field.
func (t *Table) SetField(name string, v Value) {
	if i := t.find(name); i >= 0 {
		t.fields[i].value = v
		return
	}
	if v.kind == Nil {
		return
	}
	t.fields = append(t.fields, field{name, v})
	if t.byName != nil {
		t.byName[name] = len(t.fields) - 1
	} else if len(t.fields) > scanned {
		t.byName = make(map[string]int, 2*len(t.fields))
		for i := range t.fields {
			t.byName[t.fields[i].name] = i
		}
	}
}

func (t *Table) find(name string) int {
	if t.byName != nil {
		if i, is := t.byName[name]; is {
			return i
		}
		return -1
	}
	for i := range t.fields {
		if t.fields[i].name == name {
			return i
		}
	}
	return -1
}

// get returns the value of a key.
func (t *Table) get(key Value) Value {
	switch key.kind {
	case Number:
		f := key.Num()
		if i := int(f); float64(i) == f && uint(i-1) < uint(len(t.list)) {
			return t.list[i-1]
		}
		return t.others[normal(key)]
	case String:
		return t.Field(key.Text())
	}
	return t.others[key]
}

// normal makes the two zeros one key.
func normal(key Value) Value {
	if key.kind == Number && key.Num() == 0 {
		return Num(0)
	}
	return key
}

// set sets the value of a key that is neither nil nor NaN.
func (t *Table) set(key, v Value) {
	switch key.kind {
	case Number:
		t.setNumber(key, v)
	case String:
		t.SetField(key.Text(), v)
	default:
		t.setOther(key, v)
	}
}

func (t *Table) setNumber(key, v Value) {
	f := key.Num()
	i := int(f)
	if float64(i) != f || i < 1 || i > len(t.list)+1 {
		t.setOther(normal(key), v)
		return
	}
	if i <= len(t.list) {
		t.list[i-1] = v
		for v.kind == Nil && len(t.list) > 0 && t.list[len(t.list)-1].kind == Nil {
			t.list = t.list[:len(t.list)-1]
		}
		return
	}
	if v.kind == Nil {
		delete(t.others, key)
		return
	}
	t.list = append(t.list, v)
	for len(t.others) > 0 {
		delete(t.others, Num(float64(len(t.list))))
		next, is := t.others[Num(float64(len(t.list)+1))]
		if !is {
			break
		}
		t.list = append(t.list, next)
	}
}

func (t *Table) setOther(key, v Value) {
	if v.kind == Nil {
		delete(t.others, key)
		return
	}
	if t.others == nil {
		t.others = make(map[Value]Value)
	}
	t.others[key] = v
}

// next returns the key behind another, and its value: elements, fields in the order in
// which they were set, and no other keys. false: the key is not in the table.
func (t *Table) next(key Value) (Value, Value, bool) {
	i := 0
	switch key.kind {
	case String:
		if i = t.find(key.Text()); i < 0 {
			return Value{}, Value{}, false
		}
		i += len(t.list) + 1
	case Number:
		if i = int(key.Num()); i < 1 || i > len(t.list) {
			return Value{}, Value{}, false
		}
	}
	for ; i < len(t.list); i++ {
		if t.list[i].kind != Nil {
			return Num(float64(i + 1)), t.list[i], true
		}
	}
	for i -= len(t.list); i < len(t.fields); i++ {
		if t.fields[i].value.kind != Nil {
			return Str(t.fields[i].name), t.fields[i].value, true
		}
	}
	return Value{}, Value{}, true
}

// valid says whether a value may be a key.
func valid(key Value) bool {
	return key.kind != Nil && (key.kind != Number || !math.IsNaN(key.Num()))
}
