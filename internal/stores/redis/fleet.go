package redis

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/stores"
)

const (
	watchLasts   = 15 * time.Second // how long somebody is said to look
	figuresEvery = 5 * time.Second  // how often an instance writes its figures meanwhile
	figuresLast  = 15 * time.Second // after which they are removed
	mostFigures  = 1000             // instances that write figures
	readAtOnce   = 32               // instances whose figures one command reads
	watchedText  = " fleet watched" // the message on the channel of resets, for no zone
)

// figures shares the figures of the instances, in one field each of a hash, while somebody looks.
// Who looks says so on the channel that all listen to anyway, so that a fleet that nobody watches
// sends Redis nothing for it.
type figures struct {
	o        *Options
	conn     *conn
	instance uint64
	until    atomic.Int64 // somebody looks; in milliseconds since 1970
	wake     chan struct{}
}

func (f *figures) key() string {
	if f.o.Fleet != "" {
		return f.o.Prefix + ":fleet:" + f.o.Fleet
	}
	return f.o.Prefix + ":fleet"
}

// watched notes that somebody looks.
func (f *figures) watched() {
	f.until.Store(time.Now().Add(watchLasts).UnixMilli())
	signal(f.wake)
}

// run writes the figures of this instance while somebody looks, until ctx ends.
func (f *figures) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		for time.Now().UnixMilli() < f.until.Load() {
			_ = f.write(ctx) // who looks sees that this instance is missing
			select {
			case <-ctx.Done():
				return
			case <-time.After(jittered(figuresEvery)):
			}
		}
	}
}

// write writes the figures of this instance, with the time.
func (f *figures) write(ctx context.Context) error {
	l, ok := f.conn.observer.get().(stores.FleetObserver)
	if !ok || !f.conn.anyUsable() {
		return nil
	}
	ctx, cancel := f.conn.background(ctx)
	defer cancel()
	client, now, err := f.at(ctx)
	if err != nil {
		return err
	}
	text := l.Figures()
	if len(text) > stores.MaxFigures {
		return nil
	}
	field := strconv.FormatUint(f.instance, 16)
	var added, all *goredis.IntCmd
	_, err = client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		added = p.HSet(ctx, f.key(), field, append(binary.LittleEndian.AppendUint64(nil, uint64(now.UnixMilli())), text...))
		all = p.HLen(ctx, f.key())
		p.PExpire(ctx, f.key(), 4*figuresLast)
		return nil
	})
	if err == nil && added.Val() > 0 && all.Val() > mostFigures { // until who reads has removed those that ended
		err = client.HDel(ctx, f.key(), field).Err()
	}
	return err
}

// at returns the client for the hash, and the time there.
func (f *figures) at(ctx context.Context) (goredis.UniversalClient, time.Time, error) {
	client, err := f.conn.clientAt(ctx, f.key())
	if err != nil {
		return nil, time.Time{}, err
	}
	now, err := client.Time(ctx).Result()
	return client, now, err
}

// look says to all instances that somebody looks.
func (f *figures) look(ctx context.Context) error {
	f.watched() // an instance that is not subscribed at the moment, too
	client, err := f.conn.clientAt(ctx, f.key())
	if err == nil {
		err = client.Publish(ctx, resetChannel(f.o.Prefix), watchedText).Err()
	}
	if err != nil {
		return f.conn.advise(err)
	}
	return nil
}

// read returns the figures of the instances, and removes figures that are no longer written: in parts, so that neither
// Redis nor a slow network takes long for one.
func (f *figures) read(ctx context.Context) (map[uint64]stores.Figures, error) {
	all, cursor := make(map[uint64]stores.Figures), uint64(0)
	for {
		next, err := f.readSome(ctx, cursor, all)
		if err != nil {
			return nil, f.conn.advise(err)
		}
		if cursor = next; cursor == 0 {
			return all, nil
		}
	}
}

// readSome adds the figures of some instances to all, and returns where to go on; 0: those were the last.
func (f *figures) readSome(ctx context.Context, cursor uint64, all map[uint64]stores.Figures) (next uint64, err error) {
	ctx, cancel := f.conn.background(ctx)
	defer cancel()
	client, now, err := f.at(ctx)
	if err != nil {
		return 0, err
	}
	fields, next, err := client.HScan(ctx, f.key(), cursor, "", readAtOnce).Result()
	if err != nil {
		return 0, err
	}
	var old []string
	for pair := range slices.Chunk(fields, 2) {
		id, err := strconv.ParseUint(pair[0], 16, 64)
		value := pair[1]
		if err != nil || len(value) < 8 || len(value) > 8+stores.MaxFigures {
			old = append(old, pair[0])
			continue
		}
		age := now.Sub(time.UnixMilli(int64(binary.LittleEndian.Uint64([]byte(value)))))
		if age.Abs() > figuresLast { // in the future, too: a server with another clock was promoted
			old = append(old, pair[0])
			continue
		}
		all[id] = stores.Figures{Age: age, Text: []byte(value[8:])}
	}
	if old != nil {
		err = client.HDel(ctx, f.key(), old...).Err()
	}
	return next, err
}

// Look implements [stores.Fleet].
func (s *Store) Look(ctx context.Context) error {
	s.Start(0)
	ctx, cancel := s.conn.background(ctx)
	defer cancel()
	if !s.conn.anyUsable() {
		return stores.ErrUnavailable
	}
	return s.figures.look(ctx)
}

// Fleet implements [stores.Fleet].
func (s *Store) Fleet(ctx context.Context) (map[uint64]stores.Figures, error) {
	if !s.conn.anyUsable() {
		return nil, stores.ErrUnavailable
	}
	return s.figures.read(ctx)
}

// Instance implements [stores.Fleet].
func (s *Store) Instance() uint64 { return s.figures.instance }

var _ stores.Fleet = (*Store)(nil)
