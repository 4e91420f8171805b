// The site is the Markdown of the repository as it is, of which .ci/site puts copies into pages.
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, posix } from 'node:path'
import { slug } from 'github-slugger'
import { defineConfig, type SiteConfig } from 'vitepress'

const root = process.cwd()
const repository = 'https://github.com/dianalimiter/diana'
const base = '/diana/'

// By purpose: first what a newcomer reads, last what only those who change Diana need.
const sidebar = [
	{ text: 'Start', items: [
		{ text: 'Overview', link: '/' },
		{ text: 'Installing', link: '/docs/install' },
		{ text: 'Choosing limits', link: '/docs/choosing' },
		{ text: 'Migrating from other servers', link: '/docs/migrating' },
		{ text: 'Migrating from programs', link: '/docs/migrating-programs' },
		{ text: 'Examples', link: '/examples/README' },
	] },
	{ text: 'Recipes', items: [
		...['Start', 'Logins and abuse', 'Plans and tokens', 'Many clients', 'Upstreams', 'Behind something', 'Operate', 'Instead of other limiters']
			.map((text) => ({ text: text === 'Start' ? 'First limits' : text, link: `/docs/recipes#${slug(text)}` })),
		{ text: 'Language models', link: '/docs/language-models' },
		{ text: 'Overload', link: '/docs/overload' },
	] },
	{ text: 'Reference', items: [
		{ text: 'The twenty options', link: '/docs/options' },
		{ text: 'Every option', link: '/docs/reference' },
		{ text: 'Glossary', link: '/docs/glossary' },
		{ text: 'Algorithms', link: '/docs/algorithms' },
		{ text: 'Redis', link: '/docs/redis' },
		{ text: 'Remote rules', link: '/docs/rules' },
		{ text: 'Clients', link: '/docs/clients' },
	] },
	{ text: 'Operate', items: [
		{ text: 'Page, commands, metrics', link: '/docs/operating' },
		{ text: 'All instances', link: '/docs/fleet' },
		{ text: 'Proxies and CDNs', link: '/docs/proxies' },
		{ text: 'Admin API', link: '/docs/admin-api' },
		{ text: 'Troubleshooting', link: '/docs/troubleshooting' },
		{ text: 'Capacity', link: '/docs/capacity' },
		{ text: 'Security', link: '/docs/security' },
		{ text: 'Prometheus and Grafana', link: '/examples/observability/README' },
		{ text: 'Kubernetes', link: '/examples/kubernetes/README' },
		{ text: 'Upgrading', link: '/docs/upgrading' },
		{ text: 'Changelog', link: '/CHANGELOG' },
	] },
	{ text: 'How it works', items: [
		{ text: 'When something fails', link: '/docs/failure' },
		{ text: 'Performance', link: '/docs/performance' },
	] },
	{ text: 'For contributors', collapsed: true, items: [
		{ text: 'Architecture', link: '/docs/internals/architecture' },
		{ text: 'Design decisions', link: '/docs/internals/decisions' },
		{ text: 'A new algorithm', link: '/docs/internals/new-algorithm' },
		{ text: 'A new source of rules', link: '/docs/internals/new-rule-source' },
		{ text: 'A new store', link: '/docs/internals/new-store' },
		{ text: 'How performance is measured', link: '/docs/internals/performance' },
		{ text: 'Arithmetic', link: '/docs/internals/arithmetic' },
		{ text: 'Proofs', link: '/docs/internals/proofs' },
		{ text: 'What counts as which client', link: '/docs/internals/identity' },
		{ text: 'Configurations of other plugins', link: '/docs/internals/compat' },
		{ text: 'Faults', link: '/docs/internals/faults' },
		{ text: 'Simulation', link: '/docs/internals/simulation' },
		{ text: 'What was tried on what', link: '/docs/internals/tried' },
		{ text: 'The live page', link: '/docs/internals/page' },
		{ text: 'Benchmarks', link: '/benchmarks/README' },
		{ text: 'Scripts', link: '/scripts/README' },
	] },
]

// Pages that the navigation bar leads to.
const elsewhere = ['docs/README.zh-CN']

// toSite returns a link of a page as the site has it: a link to a file that is no page leads to
// GitHub.
function toSite(page: string, link: string, pages: Set<string>): string {
	if (/^[a-z]+:|^#|^\//.test(link)) return link
	const [path, anchor] = link.split('#')
	const file = posix.join(posix.dirname(page), path)
	if (!existsSync(join(root, file))) throw new Error(`${page}: no file ${file}`)
	const hash = anchor ? `#${anchor}` : ''
	if (file === 'README.md') return `/index.md${hash}`
	if (pages.has(file)) return link
	return `${repository}/${statSync(join(root, file)).isDirectory() ? 'tree' : 'blob'}/main/${file}${hash}`
}

// check fails the build for a link to an anchor that its page does not have, and for a page that
// no navigation leads to.
function check(site: SiteConfig) {
	const name = (page: string) => page.replace(/\.md$/, '').replace(/(^|\/)index$/, '$1')
	const html = new Map(site.pages.map((p) => {
		const file = site.rewrites.map[p] ?? p
		return [name(file), readFileSync(join(site.outDir, file.replace(/\.md$/, '.html')), 'utf8')]
	}))
	const wrong: string[] = []
	for (const [page, text] of html) {
		for (const [, path, anchor] of text.matchAll(/href="([^"#:]*)#([^"]+)"/g)) {
			const to = path ? new URL(path, `http://site${base}${page}`).pathname.replace(base, '') : page
			if (!html.get(to)?.includes(` id="${decodeURIComponent(anchor)}"`)) wrong.push(`${page || 'README'}: no anchor ${to}#${anchor}`)
		}
	}
	const navigation = sidebar.flatMap((group) => group.items.map((i) => i.link.slice(1).split('#')[0]))
	for (const page of html.keys()) if (![...navigation, ...elsewhere].includes(page)) wrong.push(`${page} is not in the navigation`)
	for (const page of navigation) if (!html.has(page)) wrong.push(`the navigation leads to ${page}, which is no page`)
	if (wrong.length) throw new Error(`the site is not complete:\n${[...new Set(wrong)].join('\n')}`)
}

const caddyfile = JSON.parse(readFileSync(new URL('./caddyfile.tmLanguage.json', import.meta.url), 'utf8'))
const requests = { name: 'requests', scopeName: 'source.requests', patterns: [{ match: '=>.*$', name: 'keyword.control' }] }

export default defineConfig({
	title: 'Diana',
	description: 'Rate limits for the Caddy web server, on one instance or on many that share them through Redis.',
	base,
	cleanUrls: true,
	srcDir: 'pages',
	outDir: 'dist',
	rewrites: { 'README.md': 'index.md' },
	markdown: {
		anchor: { slugify: slug }, // the anchors of GitHub
		attrs: { disable: true }, // a placeholder in braces is none
		languages: [caddyfile, requests],
		config(md) {
			const fence = md.renderer.rules.fence!
			md.renderer.rules.fence = (tokens, i, options, env, self) => tokens[i].info === 'mermaid'
				? `<Mermaid text="${encodeURIComponent(tokens[i].content)}" />\n`
				: fence(tokens, i, options, env, self)
			const code = md.renderer.rules.code_inline!
			md.renderer.rules.code_inline = (tokens, i, options, env, self) => { // {{...}} of a template is text
				tokens[i].attrSet('v-pre', '')
				return code(tokens, i, options, env, self)
			}
			const open = md.renderer.rules.link_open!
			let pages: Set<string>
			md.renderer.rules.link_open = (tokens, i, options, env, self) => {
				pages ??= new Set((globalThis as { VITEPRESS_CONFIG?: SiteConfig }).VITEPRESS_CONFIG!.pages)
				tokens[i].attrSet('href', toSite(env.relativePath, tokens[i].attrGet('href')!, pages))
				return open(tokens, i, options, env, self)
			}
		},
	},
	ignoreDeadLinks: 'localhostLinks',
	buildEnd: check,
	themeConfig: {
		sidebar,
		outline: [2, 3],
		nav: [
			{ text: 'Recipes', link: '/docs/recipes' },
			{ text: 'Reference', link: '/docs/reference' },
			{ text: 'Operate', link: '/docs/operating' },
			{ text: '中文', link: '/docs/README.zh-CN' },
		],
		socialLinks: [{ icon: 'github', link: repository }],
		editLink: { pattern: `${repository}/edit/main/:path`, text: 'Change this page' },
		// A name such as max_wait is found by all of its words.
		search: { provider: 'local', options: { miniSearch: { searchOptions: { combineWith: 'AND', fuzzy: 0.1, prefix: true, boost: { title: 4, text: 2, titles: 1 } } } } },
	},
})
