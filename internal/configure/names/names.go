// Package names has the two names of the directive, the handler, the app and the global option:
// diana, which is always this plugin's, and rate_limit, unless another plugin in the binary has it.
package names

import (
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

const (
	// Always is the name that is always this plugin's.
	Always = "diana"

	// Shared is the name that other plugins have, too.
	Shared = "rate_limit"
)

// holder is the plugin that has Shared; empty: this one.
var holder string

// Own returns the names that are this plugin's.
func Own() []string {
	if holder != "" {
		return []string{Always}
	}
	return []string{Shared, Always}
}

// Usual returns the name for texts: Shared, if it is this plugin's.
func Usual() string { return Own()[0] }

// Is reports whether a name is this plugin's.
func Is(name string) bool { return slices.Contains(Own(), name) }

// Share registers Shared unless another plugin has it. register panics if one has registered a
// directive, a place in the order, a global option or a module of that name.
func Share(register func()) {
	if info, ok := debug.ReadBuildInfo(); ok {
		holder = other(info.Deps)
	}
	for _, id := range []string{"http.handlers." + Shared, Shared} {
		if _, err := caddy.GetModule(id); err == nil && holder == "" {
			holder = "another plugin"
		}
	}
	if holder != "" {
		return
	}
	defer func() {
		if recover() != nil {
			holder = "another plugin"
		}
	}()
	register()
}

// other returns the module that registers Shared, of those in a binary. They may be initialized later,
// and could then not start any more.
func other(deps []*debug.Module) string {
	for _, m := range deps {
		if strings.HasSuffix(m.Path, "/caddy-ext/ratelimit") || path.Base(m.Path) == "caddy-ratelimit" { // RussellLuo's, mholt's, and forks
			return m.Path
		}
	}
	return ""
}

// Report logs, once in a process, that Shared belongs to another plugin.
func Report(l *zap.Logger) {
	if holder != "" {
		reported.Do(func() {
			l.Info(fmt.Sprintf("the name %s belongs to another plugin: this one is named %s in configurations", Shared, Always), zap.String("plugin", holder))
		})
	}
}

var reported sync.Once

// ErrBoth is the error of a configuration in which the app has both names.
var ErrBoth = fmt.Errorf("%s and %s are two names of one app, and both are given: want all of it under one of them", Shared, Always)

// App returns the app, under the name that it has in the configuration. Without one, it has the defaults.
func App(ctx caddy.Context) (app any, err error) {
	configured := 0
	for _, name := range Own() {
		v, failed := ctx.AppIfConfigured(name)
		if !errors.Is(failed, caddy.ErrNotConfigured) {
			configured++
			app, err = v, failed
		}
	}
	switch configured {
	case 0:
		return ctx.App(Usual())
	case 1:
		return app, err
	}
	return nil, ErrBoth
}
