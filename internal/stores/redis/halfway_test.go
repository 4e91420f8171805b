package redis

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestRevokedRightChargesOnce takes a right of the script away while an instance charges a key. The script
// may have charged before it fails, alone or with other zones and permits: nothing is charged twice.
func TestRevokedRightChargesOnce(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client()
	right := func(change string) {
		if err := admin.Do(context.Background(), "acl", "setuser", "default", change).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"pexpire", "set", "setrange", "get", "getrange", "time", "evalsha"} {
		for name, spec := range lostSpecs() {
			f := newFleet(t, srv, 1)
			f.v.now += storekit.Hour / 2
			c := f.counters(t, command+name, spec)
			fresh := f.counters(t, "fresh"+command+name, spec)
			admitted := 0
			decide := func(zones ...*stores.Counter) *stores.Check {
				check := storekit.CheckOf(1, zones...)
				f.all[0].setTime(f.v.now)
				if f.all[0].Decide(context.Background(), check); check.Admitted {
					admitted++
				}
				return check
			}
			for range 3 {
				f.v.now += 1_000_000
				decide(c[0])
			}
			f.v.now += 1_000_000
			right("-" + command)
			alone := decide(c[0], fresh[0])
			right("+" + command)
			if command == "pexpire" && alone.Mode == stores.ModeShared && name == "gcra" { // which moves the time to live each time
				t.Errorf("%s: Redis decided without the right of %s", name, command)
			}
			f.set(0, noFault)
			f.v.now += rampLasts
			last := decide(c[0])
			used := 100 - int(last.Zones[0].Results[0].Remaining)
			if last.Mode != stores.ModeShared || used > admitted || used < admitted-1 {
				t.Errorf("%s without %s: %d used after %d were admitted, mode %v", name, command, used, admitted, last.Mode)
			}
			if command == "evalsha" && used != admitted {
				t.Errorf("%s: %d used after %d were admitted, though the script did not run", name, used, admitted)
			}
		}
	}
}

// TestRevokedRightChargesHeldOnce takes a right of the script away while the charge of a request that held its cost
// is reported. The report is repeated later: the script may have made the charge before it failed, but does not make it twice.
func TestRevokedRightChargesHeldOnce(t *testing.T) {
	s := newVirtualStore(t)
	s.Observe(silent{})
	right := func(change string) {
		if err := s.v.client.Do(context.Background(), "acl", "setuser", "default", change).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"pexpire", "set", "setrange", "get", "time", "evalsha"} {
		c := kit.NewTestCounter(t, command, 2, true, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
		s.Finish(context.Background(), s.at(0, c, 1), 1)
		held := s.at(1, c, 1)
		s.set(2)
		right("-" + command)
		s.Finish(context.Background(), held, 1)
		right("+" + command)
		s.conn.nodes.first.answers()
		s.set(3)
		s.renewPermits()
		if left := s.at(4, c, 1).Results[0].Remaining; left != 7 && (left != 8 || command != "setrange") {
			t.Errorf("without %s: %d left of 10 after 3 charges, want 7", command, left)
		}
	}
}

// TestAnswersOfHalfAScript tells answers after which a call may have charged from others.
func TestAnswersOfHalfAScript(t *testing.T) {
	for text, want := range map[string]bool{
		"NOPERM User default has no permissions to run the 'pexpire' command script: 0af, on @user_script:85.":           true,
		"NOPERM User default has no permissions to run the 'set' command":                                                true,
		"NOPERM User to run the 'evalsha' command has no permissions to run the 'set' command":                           true,
		"ERR ACL failure in script: User u has no permissions to run the 'set' command script: 0af, on @user_script:85.": true,
		"ERR ACL failure in script: User u has no permissions to run the 'evalsha' command":                              true,
		"ERR ACL failure in script: No permissions to access a key":                                                      true,
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments":     true,
		"ERR The user executing script can't run this command or subcommand script: 0af, on @user_script:85.":            true,
		"ERR Error running script (call to f_0af): @user_script:5: The user executing the script can't run this command": true,
		"ERR user_script:7: attempt to index a nil value":                                                                true,
		"ERR Unknown Redis command called from script script: 0af, on @user_script:85.":                                  true,
		"ERR Unknown command called from script script: on @user_script:85.":                                             true,
		"ERR Script killed by user with SCRIPT KILL.":                                                                    true,
		"ERR Script attempted to access a non local key in a cluster node":                                               true,
		"ERR in a word, -OOM command not allowed":                                                                        true,
		"upstream failure":                        true,
		"ERR handle response, backend conn reset": true,
		"redis: nil":                              true,
		"":                                        true,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                 false,
		"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand":                               false,
		"NOPERM User diana has no permissions to run the 'evalsha' command":                                                false,
		"NOPERM User diana has no permissions to run the 'script|load' command":                                            false,
		"NOPERM this user has no permissions to access one of the keys used as arguments":                                  false,
		"NOPERM No permissions to access a key":                                                                            false,
		"NOSCRIPT No matching script.":                                                                                     false,
		"ERR NOSCRIPT No matching script.":                                                                                 false,
		"BUSY Redis is busy running a script.":                                                                             false,
		"CLUSTERDOWN Hash slot not served":                                                                                 false,
		"OOM command not allowed when used memory > 'maxmemory'. script: 0af, on @user_script:85.":                         false,
		"ERR Error running script (call to f_0af): @user_script:56: @user_script: 56: -OOM command not allowed when used.": false,
		"@user_script: 85: -NOREPLICAS Not enough good replicas to write.":                                                 false,
		"READONLY You can't write against a read only replica. script: 0af, on @user_script:85.":                           false,
		"NOREPLICAS Not enough good replicas to write. script: 0af, on @user_script:85.":                                   false,
		"ERR unknown command 'evalsha', with args beginning with: '0af'":                                                   false,
		"ERR unknown command `EVALSHA`, with args beginning with: `0af`":                                                   false,
		"no upstream host":       false,
		"ERR Connection refused": false,
	} {
		if got := mayHaveRun(reported{refusal(text)}); got != want {
			t.Errorf("%s: may have run %v, want %v", text, got, want)
		}
		if mayHaveRun(dialError{refusal(text)}) || mayHaveRun(failedOp(text)) {
			t.Errorf("%s: may have run, though it was not sent or failed alone", text)
		}
		if !mayHaveRun(algorithmError{[]string{"test"}, refusal(text)}) {
			t.Errorf("%s, in an algorithm: did not run", text)
		}
	}
	if !mayHaveRun(fmt.Errorf("%w: %w", errReply, errors.New("short"))) {
		t.Error("a reply that is not the script's says that nothing has run")
	}
}
