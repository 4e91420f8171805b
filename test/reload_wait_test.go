package test

import "testing"

// TestResetOfAKeyThatWaitsOverAReload resets a key whose request has waited since before a reload: it goes on.
func TestResetOfAKeyThatWaitsOverAReload(t *testing.T) {
	site := func(limit string) setup {
		return setup{site: "rate_limit {\nzone resets {\nkey {header.X-Key}\nrule " + limit + "\nmax_wait 1h\n}\n}\nrespond ok"}
	}
	for name, limit := range map[string]string{"the same rules": "1/30m", "another limit": "2/30m"} {
		t.Run(name, func(t *testing.T) {
			one := req{header: map[string]string{"X-Key": "a"}}
			s := serve(t, site("1/30m"))
			s.want(one, 200)
			before, status := waiting(), make(chan int, 1)
			go func() { status <- s.send(one).status }()
			until(t, "a request that waits", func() bool { return waiting() == before+1 })
			s.reload(site(limit))
			s.key("DELETE", "resets", "a")
			if n := <-status; n != 200 {
				t.Errorf("status %d", n)
			}
		})
	}
}
