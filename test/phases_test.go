package test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	limiterPath = "github.com/dianalimiter/diana/internal/limiter"
	storesPath  = "github.com/dianalimiter/diana/stores"
	configPath  = "github.com/dianalimiter/diana/config"
)

// phases have the functions that write a field of a request, by when they do, in order. A request may have several
// decisions, and those of error routes come before its end.
var phases = map[string]string{
	// A request from the pool begins anew.
	poolPhase:   "makeRequest Limiter.newRequest request.release request.reset newWriter",
	"before":    "request.collect request.result request.skip request.deny request.denyAlways request.add request.count request.grow request.addFingerprint request.addShadows",
	"decision":  "request.needsStores request.ask request.conclude request.takePlace request.refuse request.waitForPlace request.acquireSlots request.passAll request.denyDelays request.wait request.collectAgain request.peek",
	"report":    "request.setOutcomes request.exceeded request.reportShadow request.reportBlocks request.countRequest request.countRepeated visit.meet request.addToAccessLog request.addToSpan request.logged zoneResult.values",
	"denial":    "exceeded.setHeaders request.setDenialHeaders request.reject noteDenied writer.addDenial",
	"turn":      "request.reportLeft",
	"admission": "request.watch request.visit request.fillHeaders request.fillFamilies request.rateLimit request.policy request.familyValues request.notePassed request.measure request.serve underway.add",
	"headers":   "writer.setHeaders writer.begin writer.mergeHeaders headers.add headers.addDenial headers.removeFrom measured.begin",
	"body":      "writer.note",
	"end":       "writer.finish writer.ending measured.end request.end Recorded.Finish request.countCost request.logCost request.leavePlaces request.releasePlaces request.releaseSlots underway.remove request.settleCut",
	"error":     "request.answeredLater failure.answers failed withBody openCharge.follow ErrorRoute.ServeHTTP",

	// A request, a check or a copy of one that is nobody else's.
	ownPhase: "Limiter.Record Quota.Peek SkipZones Zone.Peek Key.peek Key.peekDuplicate zoneResult.explain request.look Zone.linger ending.of",
}

const poolPhase, ownPhase = "pool", "own"

// rewritten have the fields that are written in several phases, and why.
var rewritten = map[string]string{
	"decision.verdict":    "a zone may refuse the request before stores decide, and a client may leave while a leaky_bucket delays it",
	"zoneResult.label":    "a denial without a store: by the zone, or for want of a place",
	"zoneResult.cause":    "as zoneResult.label",
	"zoneResult.outcome":  "known before for zones that no store decides, and Left while a leaky_bucket delays the request",
	"zoneResult.place":    "taken by the decision, given back at the end",
	"zoneResult.spare":    "belongs to no request: kept from one to the next, unless it lingers",
	"zoneResult.slot":     "acquired by the decision, released at the end",
	"passage.outcome":     "as zoneResult.outcome",
	"logDecision.zone":    "a request that all zones allowed has it only with its cost, at the end",
	"logDecision.outcome": "as logDecision.zone",

	"headers.draft":    "filled at admission, joined with those of handlers inside and of error routes",
	"headers.families": "as headers.draft",
	"measured.ends":    "only the header says whether the response is a stream",
	"writer.status":    "the header has it or, if none is written, the end",
	"writer.gone":      "as writer.status",
	"writer.placed":    "told of the header, not of the end",
	"writer.failure":   "the denial by a handler inside, given to a handler around or to an error route",
	"writer.headers":   "an error route has a writer of its own",

	"failure.error":     "an error has it where it arises: a denial, or a next handler",
	"failure.denial":    "by this handler, or by one inside",
	"failure.status":    "as failure.denial",
	"failure.openAI":    "as failure.denial",
	"openCharge.next":   "a list that the request is in from its admission to its end",
	"openCharge.prev":   "as openCharge.next",
	"openCharge.writer": "an error route has a writer of its own",
}

// TestPhases checks that each field of a request is written in one phase, so that what comes later can rely on it, and
// that no function of the limiter writes what a store answered.
func TestPhases(t *testing.T) {
	phaseOf := map[string]string{}
	for phase, functions := range phases {
		for name := range strings.FieldsSeq(functions) {
			phaseOf[name] = phase
		}
	}
	writes := writesOf(t)
	for field, functions := range writes {
		var in []string
		for _, name := range functions {
			switch phase := phaseOf[name]; {
			case phase == "":
				t.Errorf("%s writes %s: want it in the table of phases", name, field)
			case phase == ownPhase, phase == poolPhase, slices.Contains(in, phase):
			case slices.Contains(answeredFields, field) && field != "stores.ZoneCheck.Results":
				t.Errorf("%s writes %s, which is what a store answered", name, field)
			default:
				in = append(in, phase)
			}
		}
		if slices.Sort(in); len(in) > 1 && rewritten[field] == "" {
			t.Errorf("%s is written in the phases %q: want one, or a reason", field, in)
		} else if len(in) < 2 && rewritten[field] != "" {
			t.Errorf("%s is written in the phases %q: want no reason for several", field, in)
		}
	}
	for name, phase := range phaseOf {
		if !slices.ContainsFunc(slices.Collect(maps.Values(writes)), func(functions []string) bool { return slices.Contains(functions, name) }) {
			t.Errorf("%s, in %s, writes no field of a request: remove it from the table", name, phase)
		}
	}
	for field := range rewritten {
		if writes[field] == nil {
			t.Errorf("%s is not written: remove its reason", field)
		}
	}
}

// followed are the types of what is remembered of a request.
var followed = strings.Fields("request decision zoneResult exceeded zoneValues ending writer measured measuredZone openCharge unanswered visit passage failure headers familyValues logDecision")

// writesOf returns the functions of the limiter that write each field of the types followed, and of the checks of stores.
func writesOf(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles", "-tags", "nobadger,nomysql,nopgx", "./internal/limiter")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports, set := map[string]string{}, token.NewFileSet()
	var files []*ast.File
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if exports[p.ImportPath] = p.Export; p.ImportPath != limiterPath {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	from := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	pkg, err := (&types.Config{Importer: from}).Check(limiterPath, set, files, info)
	if err != nil {
		t.Fatal(err)
	}
	fields := fieldsOf(pkg)
	writes := map[string][]string{}
	for _, f := range files {
		for _, d := range f.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, id := range written(function) {
				name, by := fields[info.Uses[id]], function.Name.Name
				if function.Recv != nil {
					by = nameOf(function.Recv.List[0].Type) + "." + by
				}
				if name != "" && !slices.Contains(writes[name], by) {
					writes[name] = append(writes[name], by)
				}
			}
		}
	}
	return writes
}

// askedFields and answeredFields are the fields of a check that the limiter sets, and those that a store does: Results have room
// for what it answers.
var (
	askedFields = strings.Fields("stores.Check.Zones stores.Check.Shadows stores.Check.Peek " +
		"stores.ZoneCheck.Counter stores.ZoneCheck.Subject stores.ZoneCheck.Cost stores.ZoneCheck.Holding stores.ZoneCheck.WantsMore stores.ZoneCheck.IgnoreBlock " +
		"stores.Subject.Key stores.Subject.Tag stores.Subject.Group stores.Holding.Reserve stores.Holding.SeesHeld stores.Holding.KeepsPermit")
	answeredFields []string // the others of the types of checks
)

// checks are the types of stores of which a check consists.
var checks = strings.Fields("Check ZoneCheck Subject Holding Decider Enforced InUse NoRoom StoreOnly Permit LeaseRequest Result Block")

// fieldsOf returns the names of the fields of the types followed, and of checks as "stores.Check.Now".
func fieldsOf(pkg *types.Package) map[types.Object]string {
	fields := map[types.Object]string{}
	add := func(scope *types.Scope, prefix, name string) {
		o := scope.Lookup(name)
		if o == nil {
			return
		}
		if s, ok := o.Type().Underlying().(*types.Struct); ok {
			for f := range s.Fields() {
				if fields[f] = prefix + name + "." + f.Name(); prefix == "stores." && !slices.Contains(askedFields, fields[f]) {
					answeredFields = append(answeredFields, fields[f])
				}
			}
		}
	}
	for _, name := range followed {
		add(pkg.Scope(), "", name)
	}
	for _, p := range pkg.Imports() {
		switch p.Path() {
		case configPath:
			add(p.Scope(), "config.", "Response")
		case storesPath:
			for _, name := range checks {
				add(p.Scope(), "stores.", name)
			}
		}
	}
	return fields
}

// written returns what a function writes: the last names of what it assigns, and the keys of its literals.
func written(f *ast.FuncDecl) (names []*ast.Ident) {
	var add func(e ast.Expr)
	add = func(e ast.Expr) {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			names = append(names, x.Sel)
		case *ast.IndexExpr:
			add(x.X)
		case *ast.ParenExpr:
			add(x.X)
		case *ast.StarExpr:
			add(x.X)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.AssignStmt:
			for _, e := range x.Lhs {
				add(e)
			}
		case *ast.IncDecStmt:
			add(x.X)
		case *ast.KeyValueExpr:
			if id, ok := x.Key.(*ast.Ident); ok {
				names = append(names, id)
			}
		}
		return true
	})
	return names
}
