// Looks at the built site in a real browser, wide and as on a telephone, light and dark:
// links that lead nowhere, what axe finds, and pages wider than the screen.
import { createServer } from 'node:http'
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { extname, join } from 'node:path'
import puppeteer from 'puppeteer-core'

const root = new URL('../../bin/site/', import.meta.url).pathname
const axe = readFileSync(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8')
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json' }

// file is what a web server gives for a path: pages have no ending in links.
function file(path) {
  const name = join(root, decodeURIComponent(path))
  for (const found of [name, name + '.html', join(name, 'index.html')]) {
    if (existsSync(found) && statSync(found).isFile()) return found
  }
}

const server = createServer((request, response) => {
  const found = file(new URL(request.url, 'http://site').pathname)
  response.writeHead(found ? 200 : 404, { 'Content-Type': types[extname(found ?? '')] ?? 'application/octet-stream' })
  response.end(found ? readFileSync(found) : '')
})
await new Promise((ready) => server.listen(0, '127.0.0.1', ready))
const origin = `http://127.0.0.1:${server.address().port}`

const pages = readdirSync(root, { recursive: true }).filter((name) => name.endsWith('.html') && name !== '404.html')
const browser = await puppeteer.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] })
const faults = []
const anchors = new Map() // of each page
const links = []
let looked = 0

for (const name of pages) {
  const path = '/' + name
  const page = await browser.newPage()
  page.on('pageerror', (error) => faults.push(`${path}: ${error.message}`))
  page.on('response', (r) => r.status() >= 400 && !r.url().endsWith('favicon.ico') && faults.push(`${path}: ${r.url()} is ${r.status()}`))
  for (const [width, dark] of [[1280, false], [390, true]]) {
    await page.setViewport({ width, height: 800 })
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }])
    await page.goto(origin + path, { waitUntil: 'load' })
    await page.waitForSelector('.vp-doc')
    await page.evaluate(axe)
    const found = await page.evaluate(async () => {
      const result = await window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa'] })
      return {
        violations: result.violations.map((v) => `${v.id} (${v.nodes.length}): ${v.nodes[0].target} ${v.nodes[0].html.slice(0, 120)}`),
        wide: document.documentElement.scrollWidth > window.innerWidth,
        ids: [...document.querySelectorAll('[id]')].map((e) => e.id),
        links: [...document.querySelectorAll('.vp-doc a[href], .VPSidebar a[href], .VPNav a[href]')].map((a) => a.href),
      }
    })
    looked++
    const as = `${path} at ${width}${dark ? ', dark' : ''}`
    faults.push(...found.violations.map((v) => `${as}: ${v}`))
    if (found.wide) faults.push(`${as}: wider than the screen`)
    anchors.set(file(path), found.ids)
    links.push(...found.links.map((href) => [path, href]))
  }
  await page.close()
}
await browser.close()
server.close()

let followed = 0
for (const [from, href] of links) {
  const target = new URL(href)
  if (target.origin !== origin) continue
  followed++
  const found = file(target.pathname)
  const anchor = decodeURIComponent(target.hash.slice(1))
  if (!found) faults.push(`${from}: ${target.pathname} isn't there`)
  else if (anchor && !anchors.get(found)?.includes(anchor)) faults.push(`${from}: ${target.pathname} has no #${anchor}`)
}
for (const fault of new Set(faults)) console.error(fault)
console.log(`${looked} pages looked at, ${followed} links followed, ${new Set(faults).size} faults`)
process.exit(faults.length ? 1 : 0)
