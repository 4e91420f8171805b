package replay

// queue implements heap.Interface for what happens at a time.
type queue[T interface{ time() int64 }] []T

func (q queue[T]) Len() int           { return len(q) }
func (q queue[T]) Less(i, j int) bool { return q[i].time() < q[j].time() }
func (q queue[T]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue[T]) Push(x any)        { *q = append(*q, x.(T)) }
func (q *queue[T]) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	clear((*q)[last:])
	*q = (*q)[:last]
	return x
}
