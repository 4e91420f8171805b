package redis

// signal wakes who waits for c, unless it is awake already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
