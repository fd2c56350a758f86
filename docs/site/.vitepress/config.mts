// The site of the documents: the pages as they stand in the repository, with search,
// light and dark. `make site` builds it into bin/site.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, posix, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { withMermaid } from 'vitepress-plugin-mermaid'

const repository = resolve(dirname(fileURLToPath(import.meta.url)), '../../..')
const modules = join(repository, 'docs/site/node_modules')

// atTheTop are the pages beside docs/.
const atTheTop = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md']

function isPage(path: string): boolean {
  return path.endsWith('.md') && (path.startsWith('docs/') || atTheTop.includes(path))
}

// title is a page's heading.
function title(path: string): string {
  const heading = /^# (.+)$/m.exec(readFileSync(join(repository, path), 'utf8'))
  return (heading?.[1] ?? path).replaceAll('`', '')
}

// address is where a page is on the site. A folder's README.md is its index.
function address(path: string): string {
  return '/' + path.replace(/README\.md$/, '').replace(/\.md$/, '')
}

// sidebar has the pages that docs/README.md lists, in its order, below its headings.
function sidebar() {
  const groups: { text: string; items: { text: string; link: string }[] }[] = []
  for (const line of readFileSync(join(repository, 'docs/README.md'), 'utf8').split('\n')) {
    const heading = /^\*\*(.+?)\*\*/.exec(line)
    if (heading) groups.push({ text: heading[1], items: [] })
    for (const [, target] of line.matchAll(/\]\(([^)#]+\.md)\)/g)) {
      const path = posix.join('docs', target)
      groups.at(-1)?.items.push({ text: title(path), link: address(path) })
    }
  }
  return groups
}

function version(): string {
  try {
    return execFileSync('git', ['describe', '--tags', '--always'], { cwd: repository, encoding: 'utf8' }).trim()
  } catch {
    return 'unreleased'
  }
}

// links leads from page to page. What is a file of the repository and no page is named
// and not linked: the site doesn't hold it.
function links(md: any) {
  md.core.ruler.push('repository-links', (state: any) => {
    const from = state.env.relativePath as string
    for (const block of state.tokens) {
      let open: any[] = []
      for (const token of block.children ?? []) {
        if (token.type === 'link_close' && open.pop()?.tag === 'span') token.tag = 'span'
        if (token.type !== 'link_open') continue
        open.push(token)
        const [target, anchor] = token.attrGet('href').split('#')
        if (target === '' || /^[a-z]+:/.test(target)) continue
        let path = posix.join(posix.dirname(from), target)
        const found = join(repository, path)
        if (existsSync(found) && statSync(found).isDirectory()) path = posix.join(path, 'README.md')
        if (!isPage(path) || !existsSync(join(repository, path))) {
          token.tag = 'span'
          token.attrs = []
          continue
        }
        token.attrSet('href', address(path) + (anchor ? '#' + anchor : ''))
      }
    }
  })
}

// anchor is a heading's, as GitHub has it, so that links between pages hold there and here.
function anchor(heading: string): string {
  return heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')
}

// plain keeps braces of text what they are: the site's framework would evaluate them.
function plain(md: any) {
  for (const rule of ['text', 'code_inline']) {
    const before = md.renderer.rules[rule]
    md.renderer.rules[rule] = (...of: any[]) => before(...of).replaceAll('{{', '&#123;&#123;')
  }
}

export default withMermaid({
  title: 'Fairway',
  description: 'Kubernetes Services in one binary',
  srcDir: '../..',
  srcExclude: ['**/node_modules/**', '**/testdata/**', 'bin/**', '!(docs|README.md|CHANGELOG.md|CONTRIBUTING.md|SECURITY.md)/**', 'docs/site/**'],
  outDir: '../../bin/site',
  rewrites: { 'README.md': 'index.md', 'docs/README.md': 'docs/index.md', ':a(.*)/README.md': ':a/index.md' },
  cleanUrls: false,
  lastUpdated: false,
  markdown: {
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    anchor: { slugify: anchor },
    config: (md: any) => {
      links(md)
      plain(md)
    },
  },
  // Pages stand outside of this folder, where nothing is installed.
  vite: {
    resolve: {
      alias: [
        { find: /^vue$/, replacement: join(modules, 'vue/dist/vue.runtime.esm-bundler.js') },
        { find: /^vue\/server-renderer$/, replacement: join(modules, 'vue/server-renderer/index.mjs') },
      ],
    },
    build: { chunkSizeWarningLimit: 5000 },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Documents', link: '/docs/' },
      { text: version(), link: '/CHANGELOG' },
    ],
    sidebar: sidebar(),
  },
})
